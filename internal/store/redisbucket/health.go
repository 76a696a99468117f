package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/store/combine"
)

// State is a breaker's, or of all nodes together.
type State = combine.State

// The states. Partial is a cluster with some nodes up.
const (
	Up      = combine.Up
	Probing = combine.Probing
	Down    = combine.Down
	Partial = State("partial")
)

// Node is a Redis server that keeps buckets.
type Node struct {
	Addr  string // host:port, or the name of a Sentinel group
	State State
	Err   error // of Ping
	Trips int64 // how often the breaker opened; not of Ping
}

// Nodes returns the server, or a cluster's masters by address, without a round trip; one without an address while they
// are unknown.
func (s *Store) Nodes() []Node {
	if s.single != nil {
		return []Node{s.single.report()}
	}
	return s.cluster.states()
}

// Waiting counts queued tiers at all nodes.
func (s *Store) Waiting() (tiers int) {
	if s.single != nil {
		return s.single.combiner.Depth()
	}
	return s.cluster.waiting()
}

// State sends nothing.
func (s *Store) State() State { return Summary(s.Nodes()) }

// Summary combines nodes' states.
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

// Ping pings each node, past its breaker, within the budget, after reading a cluster's masters.
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
		return Node{Addr: addr, State: Down, Err: fmt.Errorf("ping redis: %w", err)}
	}
	return Node{Addr: addr, State: Up}
}

// CheckSettings warns of settings that break limits; masters that do not answer are left out unless none does. An error
// means no answer within the budget, or no right to read the settings.
//
// Only if INFO reports a standalone server may tenants share a script: a proxy that spreads keys would run one where
// only its first key is.
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

func settingsWarnings(ctx context.Context, name string, client redis.Cmdable) (warnings []string, err error) {
	settings, err := client.ConfigGet(ctx, "maxmemory-policy").Result()
	if err != nil {
		return nil, fmt.Errorf("read %s's maxmemory-policy: %w", name, err)
	}
	if policy := settings["maxmemory-policy"]; policy != "noeviction" {
		warnings = append(warnings, fmt.Sprintf(
			"%s's maxmemory-policy is %s, so it may drop buckets in use, which then start full; set it to noeviction",
			name, policy))
	}
	return warnings, nil
}
