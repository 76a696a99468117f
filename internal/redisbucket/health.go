package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// State is what the store thinks of Redis.
type State string

// The states. A probing store or node waits for the answer to the one pipeline that it let through; Partial is a
// cluster of which some nodes are up and some are not.
const (
	Up      State = "up"
	Probing State = "probing"
	Down    State = "down"
	Partial State = "partial"
)

// Node is a Redis server that keeps buckets.
type Node struct {
	Addr  string // host:port, or the name of a Sentinel group
	State State
	Err   error // why Ping says that it is down
}

// Nodes returns the server, or the masters of a Redis Cluster by address, with what their circuit breakers think of
// them. It asks nobody. While a cluster's masters are not known there is one node without an address.
func (s *Store) Nodes() []Node {
	if s.single != nil {
		return []Node{{Addr: s.single.addr, State: s.single.state()}}
	}
	return s.cluster.states()
}

// State returns what the store thinks of Redis, without asking it.
func (s *Store) State() State { return Summary(s.Nodes()) }

// Summary returns the state of all nodes together.
func Summary(nodes []Node) State {
	seen := map[State]int{}
	for _, n := range nodes {
		seen[n.State]++
	}
	for _, state := range []State{Up, Down} {
		if seen[state] == len(nodes) {
			return state
		}
	}
	if seen[Up] == 0 {
		return Probing
	}
	return Partial
}

// Ping asks each node for a sign of life, past its breaker, and gives it the budget to answer. Of a cluster it reads
// the masters first, so that Nodes knows those that were added and forgets those that are gone.
func (s *Store) Ping(ctx context.Context) []Node {
	if s.single != nil {
		return []Node{s.ping(ctx, s.single.addr, s.rdb)}
	}
	var mu sync.Mutex
	var nodes []Node
	var masters []*redis.Client
	err := s.cluster.client.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		node := s.ping(ctx, master.Options().Addr, master)
		mu.Lock()
		defer mu.Unlock()
		nodes, masters = append(nodes, node), append(masters, master)
		return nil
	})
	if len(nodes) == 0 {
		if err == nil {
			err = errors.New("no master has slots")
		}
		return []Node{{State: Down, Err: fmt.Errorf("read the nodes of the redis cluster: %w", err)}}
	}
	s.cluster.keepOnly(masters)
	byAddr(nodes)
	return nodes
}

func (s *Store) ping(ctx context.Context, addr string, client redis.Cmdable) Node {
	ctx, cancel := context.WithTimeout(ctx, s.budget)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return Node{addr, Down, fmt.Errorf("ping redis: %w", err)}
	}
	return Node{Addr: addr, State: Up}
}

// CheckSettings looks for settings of Redis under which limits do not hold, and returns a sentence for
// people about each. An error means that Redis did not answer, within the budget, or does not let
// this client read its settings. Of a cluster, masters that do not answer are left out unless none does.
//
// It also finds out whether one server keeps all buckets, in which case checks of several tenants share scripts. A
// server that does not say so, in what INFO answers, is taken for several: a proxy that spreads keys over servers
// would look for a script's keys where only the first is.
func (s *Store) CheckSettings(ctx context.Context) (warnings []string, err error) {
	if s.single != nil {
		ctx, cancel := context.WithTimeout(ctx, s.budget)
		defer cancel()
		about, err := s.rdb.Info(ctx, "server").Result()
		if err == nil || isAnswer(err) {
			s.standalone.Store(strings.Contains(about, "_mode:standalone")) // Redis says redis_mode, Valkey server_mode
		}
		return settingsWarnings(ctx, "redis", s.rdb)
	}
	var mu sync.Mutex
	var refused error
	answered := false
	err = s.cluster.client.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		ctx, cancel := context.WithTimeout(ctx, s.budget)
		defer cancel()
		found, err := settingsWarnings(ctx, "redis node "+master.Options().Addr, master)
		mu.Lock()
		defer mu.Unlock()
		warnings = append(warnings, found...)
		if isAnswer(err) {
			refused = err
		}
		answered = answered || err == nil || refused != nil
		return err
	})
	slices.Sort(warnings)
	if answered {
		return warnings, refused
	}
	return nil, err
}

// checkSettings reads the settings of one server, which has a name for people.
func settingsWarnings(ctx context.Context, name string, client redis.Cmdable) (warnings []string, err error) {
	settings, err := client.ConfigGet(ctx, "maxmemory-policy").Result()
	if err != nil {
		return nil, fmt.Errorf("read %s's maxmemory-policy: %w", name, err)
	}
	if policy := settings["maxmemory-policy"]; policy != "noeviction" {
		warnings = append(warnings, fmt.Sprintf(
			"%s's maxmemory-policy is %s: it may drop buckets that are in use, whose owners then start with a full one; set noeviction",
			name, policy))
	}
	return warnings, nil
}
