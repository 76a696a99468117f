package devdb

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// clusterSlots is how many slots a Redis Cluster has.
const clusterSlots = 16384

// RedisCluster is a Redis Cluster of our own, whose masters share the slots evenly. A master that is lost leaves the slots of
// the others served.
type RedisCluster struct {
	Masters []*Redis
	// Replicas follow the masters, if there are any: Replicas[i] follows Masters[i]. They take over only when told to.
	Replicas []*Redis
}

// StartRedisCluster starts a cluster, whose servers keep their logs and configurations in folders of dir. It returns when each
// server answers; they find each other by themselves, within a second or so. See StartRedis.
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
	return c, nil
}

// clusterConfig is the file in which a server keeps what it knows of its cluster.
const clusterConfig = "nodes.conf"

// nodesOf returns what a server of a new cluster knows: all servers with their slots, so that none need be told.
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

// URL is the address of one of the servers, which tells a client of the others.
func (c *RedisCluster) URL() string { return c.Masters[0].URL() + "?cluster=true" }

// Kill ends all servers at once.
func (c *RedisCluster) Kill() {
	for _, r := range append(c.Masters, c.Replicas...) {
		r.Kill()
	}
}
