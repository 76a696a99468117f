// Package redisbucket keeps token buckets in Redis, where every process finds them.
//
// A check costs one round trip, however many tiers it has, and is decided atomically on Redis's own
// clock: all its tokens are taken or none. Checks that are asked at the same time share round trips:
// an idle store sends a check at once, and those that come while its few connections are busy go
// together when one is free (see queue). Together means a few scripts in one pipeline, at most 64
// checks or 256 buckets each, so that Redis is never busy with one for long. The checks of a script
// are of one tenant, whose keys are all in one slot of a Redis Cluster, unless Check finds a single
// server. A pipeline asks about 1024 buckets at most; a larger batch is several, one after the other
// and each with a time budget of its own, and other
// callers' checks come in between. take.lua is the script, the format of a bucket, and the place to
// start reading.
//
// When Redis is down, Take says so within its time budget (50 ms unless told otherwise) and decides
// nothing; what happens to the check is for the caller. The budget counts from the call, waiting
// included. A pipeline that fails fails its own checks alone, and one that hangs holds up no others for
// longer than a tenth of the budget. After five pipelines in a row have failed, a circuit breaker
// answers for Redis at once, and lets one through every quarter of a second to see whether it is back;
// the driver's own back-off after failed dials can add a second to that. Each master of a Redis Cluster has
// connections, a queue and a circuit breaker of its own, so that one that fails degrades its own tenants alone.
//
// An ask that got no answer may have been executed, so it is never repeated: tokens are taken at
// most once. The exceptions are answers that say nothing was executed: that Redis does not
// know the script (after SCRIPT FLUSH or a restart), and then the source is sent; that another node of a cluster
// has the keys, and then that one is asked; or that the keys are of several slots, and then tenants go apart. The scripts of that one pipeline may run in another order.
//
// A bucket's key expires ten seconds after it is full. A broken value counts as a fresh bucket, is
// replaced, and counted; a key of another type is replaced once tokens are taken. A value in a version that
// take.lua does not know is left alone, and the checks that need it are not answered. Redis
// must not evict keys on its own, since that hands out fresh buckets: see Check.
package redisbucket

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
)

// DefaultBudget is how long Redis has for an answer when nothing else is said.
const DefaultBudget = 50 * time.Millisecond

const (
	// tripAfter is how many failures in a row open the breaker: enough that one dropped
	// connection does not, and few enough that hardly anybody waits for a dead Redis.
	tripAfter = 5
	// probeEvery is how long an open breaker waits before it lets one ask through.
	probeEvery = 250 * time.Millisecond
)

// Store implements enforce.Buckets, enforce.Creditor and enforce.Settler. It is safe for concurrent use.
type Store struct {
	rdb     redis.UniversalClient
	prefix  string // of all keys
	budget  time.Duration
	broken  atomic.Int64
	unknown atomic.Int64
	// single is the node that rdb is connected to; nil for a Redis Cluster.
	single *node
	// cluster knows the nodes of a Redis Cluster; nil for anything else.
	cluster *cluster
	// standalone: INFO reports a single server, so a script may mix tenants. crossSlot: Redis refused a mixed script, so
	// it may not.
	standalone, crossSlot atomic.Bool
	// stamp is the time in microseconds since the Unix epoch, 0 for Redis's own. Only tests name a time.
	stamp func() int64
	// walkPause is the least pause of a walk after each command.
	walkPause time.Duration
}

var (
	_ enforce.Buckets  = (*Store)(nil)
	_ enforce.Creditor = (*Store)(nil)
	_ enforce.Settler  = (*Store)(nil)
)

// New returns a store on a client made from Options; other settings of the client retry scripts or
// wait longer than the budget. Redis need not be reachable yet. A budget of 0 means DefaultBudget.
// The caller closes the client, once no Take is under way: the store itself has no goroutines that
// outlive one by more than the budget.
func New(rdb redis.UniversalClient, budget time.Duration) *Store { return NewPrefixed(rdb, budget, "") }

// NewPrefixed is New for one of several deployments that keep their buckets in one Redis database: each
// has a prefix of its own, without braces.
func NewPrefixed(rdb redis.UniversalClient, budget time.Duration, prefix string) *Store {
	if budget <= 0 {
		budget = DefaultBudget
	}
	s := &Store{rdb: rdb, prefix: prefix, budget: budget, stamp: func() int64 { return 0 }, walkPause: leastPause}
	switch rdb := rdb.(type) {
	case *redis.ClusterClient:
		s.cluster = newCluster(s, rdb)
	case *redis.Client:
		s.single = s.newNode(rdb.Options().Addr, rdb)
	default:
		s.single = s.newNode("", rdb)
	}
	return s
}

// Take implements enforce.Buckets. It returns an error within the budget if Redis does not answer,
// and at once while the breaker is open. A batch of several pipelines that Redis does answer can take
// as many budgets.
func (s *Store) Take(ctx context.Context, checks []enforce.BucketCheck) error {
	if ctx.Done() == nil { // as from enforce.Limiter
		return s.takeUncancelled(checks)
	}
	// The pipeline carries others' checks too and must not end with this caller, who must not find
	// its asks written to after it has left.
	own := make([]enforce.BucketCheck, len(checks))
	for i := range checks {
		own[i] = checks[i]
		own[i].Tiers = slices.Clone(checks[i].Tiers)
	}
	answered := make(chan outcome, 1)
	go func() { answered <- catch(func() error { return s.takeUncancelled(own) }) }()
	select {
	case o := <-answered:
		err := o.result()
		for i := range checks {
			copy(checks[i].Tiers, own[i].Tiers)
			checks[i].Allowed, checks[i].Answered = own[i].Allowed, own[i].Answered
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("ask redis about %d checks: %w", len(checks), ctx.Err())
	}
}

// outcome is what came of a function that ran in a goroutine of its own.
type outcome struct {
	err      error
	panicked any
}

// catch keeps a panic for the goroutine that waits, which may recover from it. In its own it would end the process.
func catch(do func() error) (o outcome) {
	defer func() { o.panicked = recover() }()
	o.err = do()
	return o
}

// result returns the error, in the goroutine that waited, or panics there.
func (o outcome) result() error {
	if o.panicked != nil {
		panic(o.panicked)
	}
	return o.err
}

// take is Take for a caller that stays.
func (s *Store) takeUncancelled(checks []enforce.BucketCheck) error {
	for i := range checks {
		check := &checks[i]
		if len(check.Tiers) > maxTiers {
			return fmt.Errorf("a check of %d tiers: redis is asked about %d at most", len(check.Tiers), maxTiers)
		}
		// Without tiers there is nothing to ask.
		check.Answered = len(check.Tiers) == 0
		check.Allowed = check.Answered
	}
	var err error
	if s.single != nil {
		_, err = s.single.combiner.submit(checks, time.Now())
	} else {
		err = s.cluster.dispatch(checks)
	}
	if err != nil {
		return fmt.Errorf("ask redis about %d checks: %w", len(checks), err)
	}
	return nil
}

// nodeOf returns the node that keeps a bucket.
func (s *Store) nodeOf(key enforce.Key) *node {
	if s.single != nil {
		return s.single
	}
	return s.cluster.nodeOf(key)
}

// BrokenValues counts the stored values that were no bucket. If it grows, another program writes to this Redis.
func (s *Store) BrokenValues() int64 { return s.broken.Load() }

// UnknownVersions counts the buckets met in a format that this process does not know. If it grows, a newer release
// shares this Redis.
func (s *Store) UnknownVersions() int64 { return s.unknown.Load() }
