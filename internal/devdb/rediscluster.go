package devdb

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const clusterSlots = 16384

// RedisCluster is a private Redis Cluster, whose masters share the slots evenly.
type RedisCluster struct {
	Masters  []*Redis
	Replicas []*Redis // of the master with the same index; failover is manual
}

// StartRedisCluster starts a cluster in subfolders of dir, whose servers find each other within about a second.
func StartRedisCluster(ctx context.Context, dir string, masters int, withReplicas bool) (_ *RedisCluster, err error) {
	c := &RedisCluster{}
	defer func() {
		if err != nil {
			c.Kill()
		}
	}()
	n := masters
	if withReplicas {
		n *= 2
	}
	all := make([]*Redis, n)
	for i := range all {
		r := &Redis{dir: filepath.Join(dir, fmt.Sprint("node-", i))}
		if r.port, err = ReservePort(); err != nil {
			return nil, err
		}
		if r.bus, err = ReservePort(); err != nil {
			return nil, err
		}
		all[i] = r
	}
	for i, r := range all {
		if err := os.MkdirAll(r.dir, 0o700); err != nil {
			return nil, fmt.Errorf("start a Redis Cluster: %w", err)
		}
		if err := os.WriteFile(filepath.Join(r.dir, clusterConfig), nodesOf(all, masters, i), 0o600); err != nil {
			return nil, fmt.Errorf("start a Redis Cluster: %w", err)
		}
		if _, err := startRedis(ctx, r); err != nil {
			return nil, err
		}
		if i < masters {
			c.Masters = append(c.Masters, r)
		} else {
			c.Replicas = append(c.Replicas, r)
		}
	}
	for _, r := range all { // a master refuses writes in its first two seconds
		if err := r.proc.awaitReady(ctx, r.isServing); err != nil {
			return nil, fmt.Errorf("start a Redis Cluster: %w", err)
		}
	}
	return c, nil
}

const clusterConfig = "nodes.conf"

func nodesOf(all []*Redis, masters, self int) []byte {
	id := func(i int) string { return fmt.Sprintf("%040x", i+1) }
	var b strings.Builder
	for i, r := range all {
		flags, slots := "master -", ""
		if i < masters {
			slots = fmt.Sprintf(" %d-%d", i*clusterSlots/masters, (i+1)*clusterSlots/masters-1)
		} else {
			flags = "slave " + id(i-masters)
		}
		if i == self {
			flags = "myself," + flags
		}
		fmt.Fprintf(&b, "%s %s@%s %s 0 0 %d connected%s\n", id(i), r.port.Addr(), r.bus, flags, i%masters+1, slots)
	}
	fmt.Fprintf(&b, "vars currentEpoch %d lastVoteEpoch 0\n", masters)
	return []byte(b.String())
}

// URL returns the address of one server, which tells clients the others.
func (c *RedisCluster) URL() string { return c.Masters[0].URL() + "?cluster=true" }

// Kill kills all servers.
func (c *RedisCluster) Kill() {
	for _, r := range append(c.Masters, c.Replicas...) {
		r.Kill()
	}
}
