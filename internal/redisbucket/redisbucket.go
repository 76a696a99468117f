// Package redisbucket keeps buckets in Redis, where every process finds them.
//
// A check costs one round trip, however many tiers it has. One script decides it atomically on Redis's clock: all its
// tokens are taken or none. Checks that come at the same time share round trips: a combiner sends those that came during
// one batch in the next. A batch is a few scripts of at most 64 checks or 256 buckets each, so that Redis is never busy
// with one for long. The checks of a script are of one tenant, whose keys are in one slot of a Redis Cluster, unless
// CheckSettings found a single server. A batch has about 1024 buckets at most. A larger Take is several batches, each with
// its own budget, and other callers' checks come in between. Start reading at take.lua, the script, and settle.lua, which has
// the format of a bucket and what all scripts share. settlement.lua settles reservations, whose records stand beside the
// buckets of their tenant.
//
// When Redis is down, Take returns an error within its budget (50 ms by default), which includes waiting for a turn. A
// failed batch fails only its own checks, and a hanging one delays others by at most a tenth of the budget. After five
// failed batches in a row a circuit breaker fails checks at once. Every quarter of a second it lets one batch through to
// see whether Redis is back; the driver's back-off after failed dials can add a second. Each master of a Redis Cluster
// has its own connections, combiner and breaker, so that its failure degrades only the tenants whose buckets it keeps.
//
// A check without an answer may have been executed, so it is never repeated: tokens are taken at most once. It is repeated
// only if Redis says that it was not executed: because it does not know the script (after SCRIPT FLUSH or a restart),
// because another node has the keys, or because the keys are in several slots or on both sides of one that moves. In the last two
// cases checks that shared a script are sent one by one, and only those fail whose own keys are apart. The scripts of that batch
// may then run in another order.
//
// A bucket's key expires ten to fifteen seconds after the bucket is full. A broken value counts as a full bucket; it is replaced and
// counted. A key of another type is replaced once tokens are taken. A value in a version that settle.lua does not know is
// left alone, and its checks are not answered. Redis must not evict keys, because an evicted bucket starts full: see
// CheckSettings.
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

// DefaultBudget is the default time that Redis has for an answer.
const DefaultBudget = 50 * time.Millisecond

const (
	// tripAfter is how many failures in a row open the breaker: more than one dropped connection causes, and few enough
	// that few checks wait for a dead Redis.
	tripAfter = 5
	// probeEvery is how long an open breaker waits before it lets a batch through (half-open).
	probeEvery = 250 * time.Millisecond
)

// Store implements enforce.Buckets, enforce.Creditor and enforce.Settler. It is safe for concurrent use.
type Store struct {
	rdb       redis.UniversalClient
	prefix    string // of all keys
	budget    time.Duration
	broken    atomic.Int64
	unknown   atomic.Int64
	forgotten atomic.Int64 // reservations
	// single is the node that rdb is connected to; nil for a Redis Cluster.
	single *node
	// cluster is nil unless rdb is a Redis Cluster.
	cluster *cluster
	// standalone: INFO reports a single server, so a script may mix tenants. crossSlot: Redis refused a mixed script, so
	// it may not.
	standalone, crossSlot atomic.Bool
	// stamp returns the time in microseconds since the Unix epoch, or 0 for Redis's clock. Only tests set a time.
	stamp func() int64
	// walkPause is the least pause of a walk after each command.
	walkPause time.Duration
	observer  Observer // or nil
	loans     loans
}

// Observer is told how calls wait for their turn, and of each script.
type Observer interface {
	// Waited is called once for each batch that has checks of a call, with the time since the call could be sent.
	Waited(wait time.Duration)
	// ScriptSent is called once for each script, with the number of its checks.
	ScriptSent(checks int)
	// Shed is called with checks that failed because more wait than Redis decides in time: early ones at once, the others
	// after they waited for a turn.
	Shed(checks int, early bool)
}

// Observe sets the Observer. It must be called before the first Take.
func (s *Store) Observe(o Observer) { s.observer = o }

func (s *Store) shed(checks int, early bool) {
	if s.observer != nil {
		s.observer.Shed(checks, early)
	}
}

var (
	_ enforce.Buckets  = (*Store)(nil)
	_ enforce.Creditor = (*Store)(nil)
	_ enforce.Settler  = (*Store)(nil)
	_ enforce.Reserver = (*Store)(nil)
)

// New returns a store on a client made with Options; with other settings a client repeats scripts or waits longer than
// the budget. Redis need not be reachable yet. A budget of 0 means DefaultBudget. The caller closes the store once no Take is in
// flight, and then the client.
func New(rdb redis.UniversalClient, budget time.Duration) *Store { return NewPrefixed(rdb, budget, "") }

// NewPrefixed is New for deployments that share a Redis database: each has its own key prefix, without braces.
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

// Take implements enforce.Buckets. It returns an error within the budget if Redis does not answer, and at once while the
// breaker is open. Checks for several batches have a budget for each.
func (s *Store) Take(ctx context.Context, checks []enforce.BucketCheck) error {
	if ctx.Done() == nil { // enforce.Limiter's cannot end
		return s.takeUncancelled(checks)
	}
	// The batch has other callers' checks too, so it must not end with this caller's ctx. The copy keeps it from writing
	// into the checks of a caller that has left.
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
			checks[i].Allowed, checks[i].Answered, checks[i].Exhausted = own[i].Allowed, own[i].Answered, own[i].Exhausted
			checks[i].Reserve = own[i].Reserve
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("take from buckets in redis for %d checks: %w", len(checks), ctx.Err())
	}
}

// outcome is the result of a function that ran in its own goroutine.
type outcome struct {
	err      error
	panicked any
}

// catch keeps a panic for the waiting goroutine, which may recover from it. In this one it would end the process.
func catch(do func() error) (o outcome) {
	defer func() { o.panicked = recover() }()
	o.err = do()
	return o
}

// result returns the error in the waiting goroutine, or panics there.
func (o outcome) result() error {
	if o.panicked != nil {
		panic(o.panicked)
	}
	return o.err
}

// takeUncancelled is Take for a caller that waits for the answer.
func (s *Store) takeUncancelled(checks []enforce.BucketCheck) error {
	for i := range checks {
		check := &checks[i]
		if len(check.Tiers) > maxTiers {
			return fmt.Errorf("a check has %d tiers: at most %d fit a script", len(check.Tiers), maxTiers)
		}
		check.Answered = len(check.Tiers) == 0
		check.Allowed, check.Exhausted = check.Answered, false
	}
	err := s.takeWhole(checks)
	if err != nil {
		return fmt.Errorf("take from buckets in redis for %d checks: %w", len(checks), err)
	}
	return nil
}

// takeWhole takes from all buckets of each check at once where one script can, and else as spread does.
func (s *Store) takeWhole(checks []enforce.BucketCheck) error {
	if !slices.ContainsFunc(checks, isSpread) {
		return s.submit(checks)
	}
	if !s.keepsApart() {
		if err := s.submit(checks); !isCrossSlot(err) { // else the checks without an answer were not executed
			return err
		}
	}
	return s.takeSpread(checks)
}

// keepsApart reports whether a script can reach the buckets of one slot alone.
func (s *Store) keepsApart() bool { return !s.standalone.Load() || s.crossSlot.Load() }

func (s *Store) submit(checks []enforce.BucketCheck) error { return s.submitAt(checks, time.Now()) }

// submitAt has checks answered within the budget from a time.
func (s *Store) submitAt(checks []enforce.BucketCheck, queuedAt time.Time) error {
	if s.single != nil {
		_, err := s.single.combiner.Submit(checks, queuedAt)
		return err
	}
	return s.cluster.dispatch(checks, queuedAt)
}

// Close reports what checks have borrowed, which takes a round trip, or the budget if Redis does not answer. No Take may be in flight.
func (s *Store) Close() { s.loans.close(s) }

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
