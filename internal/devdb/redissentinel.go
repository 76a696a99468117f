package devdb

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// RedisGroup is a private master with a replica, and a sentinel that promotes the replica soon after the master's
// death.
type RedisGroup struct {
	Master, Replica, Sentinel *Redis
}

const groupName = "main"

// StartRedisGroup starts a group in subfolders of dir; the sentinel knows the replica within seconds.
func StartRedisGroup(ctx context.Context, dir string) (_ *RedisGroup, err error) {
	g := &RedisGroup{}
	defer func() {
		if err != nil {
			g.Kill()
		}
	}()
	if g.Master, err = startRedis(ctx, &Redis{dir: filepath.Join(dir, "master")}); err != nil {
		return nil, err
	}
	if g.Replica, err = startRedis(ctx, &Redis{dir: filepath.Join(dir, "replica"), master: g.Master}); err != nil {
		return nil, err
	}
	g.Sentinel, err = startRedis(ctx, &Redis{dir: filepath.Join(dir, "sentinel"), monitors: g.Master})
	return g, err
}

// URL names the group by its sentinel.
func (g *RedisGroup) URL() string { return "redis+sentinel://" + g.Sentinel.Addr() + "/" + groupName }

// Kill kills all servers.
func (g *RedisGroup) Kill() {
	for _, r := range []*Redis{g.Sentinel, g.Master, g.Replica} {
		if r != nil {
			r.Kill()
		}
	}
}

func (r *Redis) sentinelArgs(port *Port) ([]string, error) {
	host, masterPort, err := net.SplitHostPort(r.monitors.Addr())
	if err != nil {
		return nil, err
	}
	path := filepath.Join(r.dir, "sentinel.conf")
	text := fmt.Sprintf("bind 127.0.0.1\nport %s\ndir %q\nsentinel monitor %[3]s %s %s 1\n"+
		"sentinel down-after-milliseconds %[3]s 300\nsentinel failover-timeout %[3]s 2000\n", port, r.dir, groupName,
		host, masterPort)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("configure a sentinel: %w", err)
	}
	return []string{path, "--sentinel"}, nil
}
