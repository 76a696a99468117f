// Package redisbucket keeps buckets in Redis, where every process finds them.
//
// A check costs one round trip for any number of tiers. One script decides it atomically on Redis's clock. Concurrent
// checks share round trips: see package combine. A batch is a few scripts of at most 64 checks or 256 buckets each,
// because a script blocks Redis. The checks of a script are of one tenant, whose keys are in one slot of a Redis
// Cluster, unless CheckSettings found a single server. A batch has about 1024 buckets at most; a larger Take is several
// batches with a budget each. Settlements and credits are scripts of their own in the same batches, so a tenant has one
// queue for all its calls. Start reading at take.lua, the script of checks, and bucket.lua, which has the format of a
// bucket and the code that all scripts share. reservation.lua settles reservations, which are beside the buckets of
// their tenant.
//
// When Redis is down, Take returns an error within its budget (50 ms by default), which includes queueing; era.go says
// what takes several budgets. A failed
// batch fails only its own checks, and a hanging one delays others by at most a tenth of the budget. After five failed
// batches in a row a circuit breaker fails checks at once. It lets one batch through every quarter of a second; the
// driver's back-off after failed dials can add a second. Each master of a Redis Cluster has its own connections,
// combiner and breaker, so its failure degrades only the tenants whose buckets it keeps.
//
// Tokens are taken at most once: a check without an answer may have been executed, so it is not repeated. A check that
// Redis refused is repeated: Redis does not know the script (after SCRIPT FLUSH or a restart), another node has the
// keys, or the keys are in several slots or on both sides of a slot that moves. If keys are scattered like that, checks
// that shared a script are sent one by one, in any order, and only those with scattered keys fail.
//
// A bucket's key expires ten to fifteen seconds after the bucket is full. A broken value counts as a full bucket, and
// is replaced and counted. A key of another type is replaced once tokens are taken. A value in an unknown version is
// left alone, and its checks are not answered. Redis must not evict keys, because an evicted bucket starts full: see
// CheckSettings.
package redisbucket

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// DefaultBudget is the default time that Redis has for an answer.
const DefaultBudget = 50 * time.Millisecond

const (
	// tripAfter is the number of failures in a row that opens the breaker, more than one dropped connection causes.
	tripAfter = 5
)

// Store implements the ports of enforce: Buckets, Creditor, EditStore, Reserver and Lender. Store is safe for
// concurrent use.
type Store struct {
	rdb       redis.UniversalClient
	prefix    string // of all keys
	budget    time.Duration
	broken    atomic.Int64
	unknown   atomic.Int64
	forgotten atomic.Int64 // reservations
	refusals  refusals
	// single is the node that rdb is connected to; nil for a Redis Cluster.
	single  *node
	cluster *cluster
	// standalone: INFO reports a single server, so a script may mix tenants. crossSlot: Redis refused a mixed script,
	// so it may not.
	standalone, crossSlot atomic.Bool
	// stamp returns the time in microseconds since the Unix epoch, or 0 for Redis's clock. Only tests set a time.
	stamp     func() int64
	walkPause time.Duration
	denials   *enforce.DenialCache // or nil
	learner   enforce.Learner      // or nil
	recovery  enforce.Recovery     // or nil
	above     time.Duration        // the shortest time to refill of a long limit; 0: none is
	connects  atomic.Int64         // new connections
	observer  Observer             // or nil
}

// Observer observes queueing and scripts.
type Observer interface {
	// Waited is called for each batch of a call, with the time since the call could be sent.
	Waited(wait time.Duration)
	// ScriptSent is called for each script of checks, with their number.
	ScriptSent(checks int)
	// Shed is called with the number of checks that failed under overload: early ones at once, the others after they
	// queued.
	Shed(checks int, early bool)
}

// Observe sets the Observer, and must be called before the first Take.
func (s *Store) Observe(o Observer) { s.observer = o }

func (s *Store) shed(checks int, early bool) {
	if s.observer != nil {
		s.observer.Shed(checks, early)
	}
}

var (
	_ enforce.Buckets   = (*Store)(nil)
	_ enforce.Creditor  = (*Store)(nil)
	_ enforce.EditStore = (*Store)(nil)
	_ enforce.Reserver  = (*Store)(nil)
)

// New returns a store on a client made with Options; other settings may repeat scripts or wait longer than the budget.
// Redis need not be reachable yet. A budget of 0 means DefaultBudget. The caller closes the client once no Take is in
// flight.
func New(rdb redis.UniversalClient, budget time.Duration) *Store { return NewPrefixed(rdb, budget, "") }

// NewPrefixed is New for deployments that share a Redis database: each has its own key prefix, without braces.
func NewPrefixed(rdb redis.UniversalClient, budget time.Duration, prefix string) *Store {
	if budget <= 0 {
		budget = DefaultBudget
	}
	s := &Store{rdb: rdb, prefix: prefix, budget: budget, stamp: func() int64 { return 0 }, walkPause: leastPause}
	s.countConnections(rdb)
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

// Take implements enforce.Buckets, and returns an error within the budget if Redis does not answer, and at once while
// the breaker is open. Each batch of a call has its own budget, and each look-up of buckets that Redis lost.
func (s *Store) Take(_ context.Context, checks []enforce.BucketCheck) error {
	return s.denials.Take(checks, s.take)
}

// Teach sets who learns the states of buckets, and must be called before the first Take.
func (s *Store) Teach(learner enforce.Learner) { s.learner = learner }

// RecallDenials puts a DenialCache before Redis, and must be called before the first Take.
func (s *Store) RecallDenials() { s.denials = enforce.NewDenialCache(nil) }

func (s *Store) take(checks []enforce.BucketCheck) error {
	for i := range checks {
		check := &checks[i]
		if len(check.Tiers) > maxTiers {
			return fmt.Errorf("a check has %d tiers: at most %d fit a script", len(check.Tiers), maxTiers)
		}
		check.Answered = len(check.Tiers) == 0
		check.Allowed, check.Exhausted, check.Repeated = check.Answered, false, false
	}
	err := s.submitLong(checks)
	if s.learner != nil {
		s.learner.LearnChecks(checks, err)
	}
	if err != nil {
		return fmt.Errorf("take from buckets in redis for %d checks: %w", len(checks), err)
	}
	return nil
}

// keepsApart reports whether a script may only reach the buckets of one slot.
func (s *Store) keepsApart() bool { return !s.standalone.Load() || s.crossSlot.Load() }

func (s *Store) submit(checks []enforce.BucketCheck) error {
	if s.single != nil {
		_, err := s.single.combiner.Submit(checks, time.Now())
		return err
	}
	return s.cluster.dispatch(checks, time.Now())
}

func (s *Store) nodeOf(tenant rules.TenantID) *node {
	if s.single != nil {
		return s.single
	}
	return s.cluster.nodeOf(tenant)
}

// BrokenValues counts the stored values that were no bucket. If it grows, another program writes to this Redis.
func (s *Store) BrokenValues() int64 { return s.broken.Load() }

// UnknownVersions counts the buckets in an unknown format. If it grows, a newer release shares this Redis.
func (s *Store) UnknownVersions() int64 { return s.unknown.Load() }
