// Package pgbucket keeps buckets in PostgreSQL, for teams that run no Redis.
//
// A batch of checks is one transaction of two round trips. The first locks the rows of its buckets in the order of
// their keys, and then reads the clock. This process decides with the code of the memory store (enforce.TakeFrom). The
// second round trip writes each changed bucket once and commits. A batch without changes is rolled back, so a denial
// writes nothing. An unused bucket has no row to lock: a transaction that inserts it, or reports it as unused, fails
// and starts over if another has inserted it meanwhile.
//
// Concurrent checks share transactions, in which tenants take turns: see package combine. Settlements and credits are
// transactions of their own, a few at a time, also with turns for tenants.
//
// When PostgreSQL is down, Take returns an error within its budget, which includes queueing and waiting for locks.
// After seven failed transactions in a row a circuit breaker fails checks at once, and lets one batch through every
// quarter of a second. The server frees the row locks of a process that hangs by ending its idle transaction: see
// idleTimeout. A transaction is repeated only if it changed nothing, which is unknown once COMMIT was sent without an
// answer. Tokens are therefore taken at most once.
//
// Reservations are rows beside the buckets, written in the transaction of their check. A bucket counts a tenant's open
// reservations, so the cap costs one row. A transaction that finds no room deletes ended reservations first, in a third
// round trip. The ids of records are rows as well, and a log counts those of a tenant.
//
// The tables are unlogged, because a commit must not wait for a disk. A crash of the server or a failover to a standby
// empties them; restore.go then copies the checkpoints of long limits, and other buckets are full. Run removes a row
// ten seconds or more after its bucket is full.
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

// DefaultBudget is the default time that PostgreSQL has for an answer.
const DefaultBudget = 50 * time.Millisecond

const (
	// tripAfter is the number of failures in a row that opens the breaker. tripAfter exceeds the pool's connections,
	// which may all be stale after a restart of the server.
	tripAfter = connections + 1
)

// Options configure a store.
type Options struct {
	// Budget is the time for an answer; 0 means DefaultBudget.
	Budget time.Duration
	// Observer may be nil.
	Observer Observer
	// Restores: what PostgreSQL lost in a crash is copied from the checkpoints.
	Restores bool
}

// Observer observes queueing and transactions.
type Observer interface {
	// Waited is called for each batch of a call, with the time since the call could be sent.
	Waited(wait time.Duration)
	// ScriptSent is called for each transaction, with the number of its checks.
	ScriptSent(checks int)
	// Shed is called with the number of checks that failed under overload: early ones at once, the others after they
	// queued.
	Shed(checks int, early bool)
}

// Store implements enforce.Buckets, enforce.Creditor, enforce.EditStore and enforce.Reserver. Store is safe for
// concurrent use.
type Store struct {
	pool       *pgxpool.Pool // of checks
	background *pgxpool.Pool
	statements atomic.Pointer[statements]
	budget     time.Duration
	breaker    *combine.Breaker
	combiner   *combine.Combiner
	restores   bool         // see Options
	restored   atomic.Int64 // buckets
	broken     atomic.Int64
	unknown    atomic.Int64
	forgotten  atomic.Int64         // reservations
	changes    *shares.Shares       // by settlements and credits
	denials    *enforce.DenialCache // or nil
	learner    enforce.Learner      // or nil
	observer   Observer             // or nil
	// maxRecordIDs is enforce.MaxRecordIDs, except in tests.
	maxRecordIDs int64
	// stamp returns the time in microseconds since the Unix epoch, or 0 for PostgreSQL's clock. Only tests set a time.
	stamp func() int64
}

var (
	_ enforce.Buckets   = (*Store)(nil)
	_ enforce.Creditor  = (*Store)(nil)
	_ enforce.EditStore = (*Store)(nil)
	_ enforce.Reserver  = (*Store)(nil)
)

// Open returns a store in the database at a URL, and connects on first use, so the database need not be reachable yet.
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
	// A lock timeout is an answer of PostgreSQL, not an outage.
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

// Observe sets the Observer, and must be called before the first Take.
func (s *Store) Observe(o Observer) { s.observer = o }

func (s *Store) shed(checks int, early bool) {
	if s.observer != nil {
		s.observer.Shed(checks, early)
	}
}

// Close closes the connections after their use.
func (s *Store) Close() {
	s.pool.Close()
	s.background.Close()
}

// Take implements enforce.Buckets, and returns an error within the budget if PostgreSQL does not answer, and at once
// while the breaker is open. Each batch of a call has its own budget.
func (s *Store) Take(_ context.Context, checks []enforce.BucketCheck) error {
	return s.denials.Take(checks, s.take)
}

// Teach sets who learns the states of buckets, and must be called before the first Take.
func (s *Store) Teach(learner enforce.Learner) { s.learner = learner }

// RecallDenials puts a DenialCache before PostgreSQL, and must be called before the first Take.
func (s *Store) RecallDenials() { s.denials = enforce.NewDenialCache(nil) }

func (s *Store) take(checks []enforce.BucketCheck) error {
	for i := range checks {
		checks[i].Answered = len(checks[i].Tiers) == 0
		checks[i].Allowed, checks[i].Exhausted, checks[i].Repeated = checks[i].Answered, false, false
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

// ErrUnknownVersion means that a newer release wrote a bucket in an unknown format. The bucket is unchanged.
var ErrUnknownVersion = errors.New("buckets have a format of a newer release")

// BrokenValues counts the stored values that were no bucket. If it grows, another program writes to the table.
func (s *Store) BrokenValues() int64 { return s.broken.Load() }

// UnknownVersions counts the checks of a bucket in an unknown format. If it grows, a newer release shares this
// database.
func (s *Store) UnknownVersions() int64 { return s.unknown.Load() }

// Waiting returns the number of queued tiers.
func (s *Store) Waiting() (tiers int) { return s.combiner.Depth() }
