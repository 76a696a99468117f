// Package redisbucket keeps buckets in Redis, where every process finds them.
//
// A check costs one round trip for any number of tiers, decided by one script on Redis's clock. Concurrent checks share
// round trips (package combine), in scripts of at most 64 checks or 256 buckets, which block Redis. A script is for one
// tenant, in one slot of a Redis Cluster, unless CheckSettings found a single server. Settlements and credits are
// scripts of their own in the same batches and queues. Start reading at take.lua, the script of checks, and bucket.lua,
// which all scripts share.
//
// When Redis is down, Take fails within its budget (50 ms by default); era.go says what takes several. A failed batch
// fails only its own checks, and a hanging one delays others by a tenth of the budget. After five failed batches in a
// row a breaker fails checks at once, and probes every quarter of a second. A master of a Redis Cluster has its own
// connections, combiner and breaker, so its failure degrades only its own tenants.
//
// Tokens are taken at most once: a check without an answer may have been executed, and is not repeated. Refused checks
// are repeated, after SCRIPT FLUSH, a restart, a redirect, or for keys in several slots. Only checks whose own keys are
// scattered then fail.
//
// A bucket's key expires ten to fifteen seconds after the bucket is full. A broken value, or once tokens are taken a
// key of another type, is replaced; an unknown version is left alone. Redis must not evict keys, because an evicted
// bucket starts full: see CheckSettings.
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

// DefaultBudget for an answer.
const DefaultBudget = 50 * time.Millisecond

const (
	// tripAfter is more than one dropped connection causes.
	tripAfter = 5
)

// Store implements enforce's Buckets, Creditor, EditStore, Reserver and Lender, and is safe for concurrent use.
type Store struct {
	rdb       redis.UniversalClient
	prefix    string // of all keys
	budget    time.Duration
	broken    atomic.Int64
	unknown   atomic.Int64
	forgotten atomic.Int64 // reservations
	refusals  refusals
	// single is nil for a Redis Cluster.
	single  *node
	cluster *cluster
	// INFO reports a standalone server, whose scripts may mix tenants until it refuses one (crossSlot).
	standalone, crossSlot atomic.Bool
	// stamp is a test's time in µs since the Unix epoch; 0 is Redis's clock.
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
	// Waited gets the time since a call's batch could be sent.
	Waited(wait time.Duration)
	// ScriptSent gets a script's number of checks.
	ScriptSent(checks int)
	// Shed gets the checks that failed under overload, early before queueing.
	Shed(checks int, early bool)
}

// Observe must be called before the first Take.
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

// New returns a store on a client made with Options, because others may repeat scripts or exceed the budget (0:
// DefaultBudget). Redis need not be reachable yet; close the client once no Take is in flight.
func New(rdb redis.UniversalClient, budget time.Duration) *Store { return NewPrefixed(rdb, budget, "") }

// NewPrefixed is New with a key prefix without braces, for deployments that share a Redis database.
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

// Take implements enforce.Buckets; batches and look-ups of lost buckets have a budget each, and fail at once while the
// breaker is open.
func (s *Store) Take(_ context.Context, checks []enforce.BucketCheck) error {
	return s.denials.Take(checks, s.take)
}

// Teach must be called before the first Take.
func (s *Store) Teach(learner enforce.Learner) { s.learner = learner }

// RecallDenials puts a DenialCache before Redis, and must precede the first Take.
func (s *Store) RecallDenials() { s.denials = enforce.NewDenialCache(nil) }

func (s *Store) take(checks []enforce.BucketCheck) error {
	for i := range checks {
		check := &checks[i]
		if len(check.Tiers) > maxTiers {
			return fmt.Errorf("a check has %d tiers: at most %d fit a script", len(check.Tiers), maxTiers)
		}
		isEmpty := len(check.Tiers) == 0
		check.TakeAnswer = enforce.TakeAnswer{Allowed: isEmpty, Answered: isEmpty}
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

// BrokenValues counts values that were no bucket: another program writes to this Redis.
func (s *Store) BrokenValues() int64 { return s.broken.Load() }

// UnknownVersions counts buckets in a newer release's format.
func (s *Store) UnknownVersions() int64 { return s.unknown.Load() }
