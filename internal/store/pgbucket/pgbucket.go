// Package pgbucket keeps buckets in PostgreSQL, for teams that run no Redis.
//
// A batch of checks is one transaction of two round trips. The first locks its buckets' rows in the order of their
// keys, then reads the clock; the second writes changed buckets and commits. Without changes it rolls back, so a denial
// writes nothing. An unused bucket has no row to lock: if another inserted it meanwhile, the transaction starts over.
//
// Concurrent checks share transactions (package combine); settlements and credits have their own, also with turns for
// tenants.
//
// When PostgreSQL is down, Take fails within its budget, and after seven failures in a row a breaker fails checks at
// once. The server ends the idle transaction of a process that hangs; see idleTimeout. Tokens are taken at most once:
// after a COMMIT without an answer a transaction is not repeated.
//
// Reservations are rows beside the buckets, and one bucket counts a tenant's, so the cap costs one row. A full one
// first deletes ended reservations, in a third round trip; record ids are kept alike.
//
// The tables are unlogged, because a commit must not wait for a disk. After a crash restore.go copies the checkpoints
// of long limits; other buckets are full.
package pgbucket

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/shares"
	"github.com/sluicegate/sluice/internal/store/combine"
)

// DefaultBudget for an answer.
const DefaultBudget = 50 * time.Millisecond

const (
	// tripAfter exceeds the pool's connections, which may all be stale after a restart of the server.
	tripAfter = connections + 1
)

// Options configure a store.
type Options struct {
	Budget   time.Duration
	Observer Observer
	Restores bool
}

// Observer observes queueing and transactions.
type Observer interface {
	Waited(wait time.Duration)
	ScriptSent(checks int)
	// Shed counts early before queueing.
	Shed(checks int, early bool)
}

// Store implements enforce.Buckets, Creditor, EditStore and Reserver, and is safe for concurrent use.
type Store struct {
	pool         *pgxpool.Pool // of checks
	background   *pgxpool.Pool
	statements   atomic.Pointer[statements]
	budget       time.Duration
	breaker      *combine.Breaker
	combiner     *combine.Combiner
	restores     bool         // see Options
	restored     atomic.Int64 // buckets
	broken       atomic.Int64
	unknown      atomic.Int64
	forgotten    atomic.Int64         // reservations
	changes      *shares.Shares       // by settlements and credits
	denials      *enforce.DenialCache // or nil
	learner      enforce.Learner      // or nil
	observer     Observer             // or nil
	maxRecordIDs int64
	stamp        func() int64
}

var (
	_ enforce.Buckets   = (*Store)(nil)
	_ enforce.Creditor  = (*Store)(nil)
	_ enforce.EditStore = (*Store)(nil)
	_ enforce.Reserver  = (*Store)(nil)
)

// Open connects on first use, so the database need not be reachable yet.
func Open(ctx context.Context, databaseURL string, options Options) (*Store, error) {
	s := &Store{
		budget: options.Budget, observer: options.Observer, restores: options.Restores,
		stamp: func() int64 { return 0 }, maxRecordIDs: enforce.MaxRecordIDs,
	}
	if s.budget <= 0 {
		s.budget = DefaultBudget
	}
	if err := s.openPools(ctx, databaseURL); err != nil {
		return nil, err
	}
	// A lock timeout is an answer, not an outage.
	s.breaker = combine.NewBreaker(tripAfter, isLockTimeout)
	s.combiner = combine.New(combine.Options{
		Weight: func(check *enforce.BucketCheck) int { return len(check.Tiers) },
		Budget: s.budget, InFlight: inFlight, MaxInFlight: inFlight, FirstBatch: maxBatch, MaxBatch: maxBatch,
		Send: s.send,
		Shed: s.shed,
	})
	s.changes = shares.New(shares.Limits{
		Slots: changes, PerTenant: changesPerTenant, Waiting: maxWaiting, Timeout: s.budget / lockShare,
	})
	return s, nil
}

// Observe must be called before the first Take.
func (s *Store) Observe(o Observer) { s.observer = o }

func (s *Store) shed(checks int, early bool) {
	if s.observer != nil {
		s.observer.Shed(checks, early)
	}
}

// Close waits for connections in use.
func (s *Store) Close() {
	s.pool.Close()
	s.background.Close()
}

// Take implements enforce.Buckets; each batch has its own budget, and fails at once while the breaker is open.
func (s *Store) Take(_ context.Context, checks []enforce.BucketCheck) error {
	return s.denials.Take(checks, s.take)
}

// Teach must be called before the first Take.
func (s *Store) Teach(learner enforce.Learner) { s.learner = learner }

// RecallDenials puts a DenialCache before PostgreSQL, and must precede the first Take.
func (s *Store) RecallDenials() { s.denials = enforce.NewDenialCache(nil) }

func (s *Store) take(checks []enforce.BucketCheck) error {
	for i := range checks {
		isEmpty := len(checks[i].Tiers) == 0
		checks[i].TakeAnswer = enforce.TakeAnswer{Allowed: isEmpty, Answered: isEmpty}
	}
	_, err := s.combiner.Submit(checks, time.Now())
	if s.learner != nil {
		s.learner.LearnChecks(checks, err)
	}
	if err != nil {
		return fmt.Errorf("take from buckets in postgres for %d checks: %w", len(checks), err)
	}
	return nil
}

func (s *Store) send(b *combine.Batch) {
	if s.observer != nil {
		for _, c := range b.Calls {
			s.observer.Waited(b.SentAt.Sub(c.QueuedAt))
		}
	}
	t := newTransaction()
	defer t.release()
	checks := 0
	for _, c := range b.Calls {
		for i := range c.Sending {
			if check := &c.Sending[i]; !check.Answered {
				t.add(check)
				checks++
			}
		}
	}
	if checks == 0 {
		return
	}
	if s.observer != nil {
		s.observer.ScriptSent(checks)
	}
	ctx, cancel := context.WithDeadline(context.Background(), b.Deadline)
	defer cancel()
	if b.Err = s.guarded(ctx, t, func() { t.decideChecks(s.maxRecordIDs) }); b.Err != nil {
		if combine.IsRefusal(b.Err) {
			b.Err = fmt.Errorf("%w: %w", b.Err, enforce.ErrNothingTaken)
		}
		return
	}
	if refused := t.markAnswered(); refused > 0 {
		s.unknown.Add(int64(refused))
		b.Err = fmt.Errorf("%w; their checks took nothing", ErrUnknownVersion)
	}
}

func (s *Store) guarded(ctx context.Context, t *transaction, decide func()) error {
	_, err := s.breaker.Execute(func() (struct{}, error) { return struct{}{}, s.run(ctx, s.pool, t, decide) })
	return err
}

// ErrUnknownVersion means that a newer release wrote a bucket, which is unchanged.
var ErrUnknownVersion = errors.New("buckets have a format of a newer release")

// BrokenValues counts values that were no bucket: another program writes to the table.
func (s *Store) BrokenValues() int64 { return s.broken.Load() }

// UnknownVersions counts checks of buckets in a newer release's format.
func (s *Store) UnknownVersions() int64 { return s.unknown.Load() }

// Waiting counts queued tiers.
func (s *Store) Waiting() (tiers int) { return s.combiner.Depth() }
