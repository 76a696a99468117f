// Package pgbucket keeps buckets in PostgreSQL, for teams that run no Redis.
//
// A batch of checks is one transaction of two round trips. The first locks the rows of its buckets in the order of their
// keys, and then reads the clock. This process decides with the code that the memory store uses (enforce.TakeFrom). The
// second round trip writes each changed bucket once and commits. A batch that changes nothing is rolled back, so a denial
// writes nothing. A bucket that nobody used has no row to lock: if two transactions insert it, one fails, has changed
// nothing, and begins again.
//
// Checks that come at the same time share transactions: see package combine. Tenants take turns in them, so a flooding tenant
// waits behind itself.
//
// When PostgreSQL is down, Take returns an error within its budget, which includes waiting for a turn and for locks. After
// seven failed transactions in a row a circuit breaker fails checks at once, and lets one batch through every quarter of a
// second. Row locks of a process that hangs are freed when the server ends its idle transaction: see idleTimeout. A
// transaction is repeated only if it certainly changed nothing, which is never so once COMMIT was sent without an answer.
// So tokens are taken at most once.
//
// Reservations are rows beside the buckets, written in the transaction of their check. A tenant's open ones are counted by a
// bucket of their own, so to bound them reads one row. A transaction that finds no room deletes ended ones first, which is a
// third round trip.
//
// The tables are unlogged: a commit waits for no disk. A crash of the server, and a failover to a standby, empty them, and
// all buckets are full then. A row is removed ten seconds or more after its bucket is full: see Run.
package pgbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/sony/gobreaker/v2"

	"github.com/sluicegate/sluice/internal/combine"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/shares"
)

// DefaultBudget is the default time that PostgreSQL has for an answer.
const DefaultBudget = 50 * time.Millisecond

const (
	// tripAfter is how many failures in a row open the breaker: more than there are pooled connections, all of which may be
	// stale after a restart of the server.
	tripAfter = connections + 1
	// probeEvery is how long an open breaker waits before it lets a batch through (half-open).
	probeEvery = 250 * time.Millisecond
)

// Options are the settings of a store.
type Options struct {
	// Budget is the time for an answer; 0 means DefaultBudget.
	Budget time.Duration
	// Observer may be nil.
	Observer Observer
}

// Observer is told how calls wait for their turn, and of each transaction.
type Observer interface {
	// Waited is called once for each batch that has checks of a call, with the time since the call could be sent.
	Waited(wait time.Duration)
	// ScriptSent is called once for each transaction, with the number of its checks.
	ScriptSent(checks int)
	// Shed is called with checks that failed because more wait than PostgreSQL decides in time: early ones at once, the
	// others after they waited for a turn.
	Shed(checks int, early bool)
}

// Store implements enforce.Buckets, enforce.Creditor, enforce.Settler and enforce.Reserver. It is safe for concurrent use.
type Store struct {
	pool *pgxpool.Pool // of checks
	// background serves walks, pings and cleaning, so that they take no connection from checks.
	background *pgxpool.Pool
	statements atomic.Pointer[statements]
	budget     time.Duration
	breaker    *gobreaker.CircuitBreaker[struct{}]
	combiner   *combine.Combiner
	trips      atomic.Int64
	broken     atomic.Int64
	unknown    atomic.Int64
	forgotten  atomic.Int64 // reservations
	settling   *shares.Shares
	observer   Observer // or nil
	// stamp returns the time in microseconds since the Unix epoch, or 0 for PostgreSQL's clock. Only tests set a time.
	stamp func() int64
}

var (
	_ enforce.Buckets  = (*Store)(nil)
	_ enforce.Creditor = (*Store)(nil)
	_ enforce.Settler  = (*Store)(nil)
	_ enforce.Reserver = (*Store)(nil)
)

// Open returns a store in the database at a URL. It connects on first use, so the database need not be reachable yet.
func Open(ctx context.Context, databaseURL string, options Options) (*Store, error) {
	s := &Store{budget: options.Budget, observer: options.Observer, stamp: func() int64 { return 0 }}
	if s.budget <= 0 {
		s.budget = DefaultBudget
	}
	if err := s.openPools(ctx, databaseURL); err != nil {
		return nil, err
	}
	s.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout: probeEvery,
		OnStateChange: func(_ string, from, to gobreaker.State) {
			if from == gobreaker.StateClosed && to == gobreaker.StateOpen {
				s.trips.Add(1)
			}
		},
		ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= tripAfter },
		// A lock that was not freed in time is no outage: PostgreSQL answered.
		IsExcluded: isLockTimeout,
	})
	s.combiner = combine.New(combine.Options{
		Budget: s.budget, InFlight: inFlight, MaxInFlight: inFlight, FirstBatch: maxBatch, MaxBatch: maxBatch, Send: s.send,
		Shed: s.shed,
	})
	s.settling = shares.New(shares.Limits{Places: settling, PerTenant: settling, Waiting: maxSettling, Patience: s.budget / lockShare})
	return s, nil
}

// Observe sets the Observer. It must be called before the first Take.
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

// Take implements enforce.Buckets. It returns an error within the budget if PostgreSQL does not answer, and at once while
// the breaker is open. Checks for several batches have a budget for each.
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
	answered := make(chan error, 1)
	go func() { answered <- s.takeUncancelled(own) }()
	select {
	case err := <-answered:
		for i := range checks {
			copy(checks[i].Tiers, own[i].Tiers)
			checks[i].Allowed, checks[i].Answered, checks[i].Exhausted = own[i].Allowed, own[i].Answered, own[i].Exhausted
			checks[i].Reserve = own[i].Reserve
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("take from buckets in postgres for %d checks: %w", len(checks), ctx.Err())
	}
}

// takeUncancelled is Take for a caller that waits for the answer.
func (s *Store) takeUncancelled(checks []enforce.BucketCheck) error {
	for i := range checks {
		checks[i].Answered = len(checks[i].Tiers) == 0
		checks[i].Allowed, checks[i].Exhausted = checks[i].Answered, false
	}
	if _, err := s.combiner.Submit(checks, time.Now()); err != nil {
		return fmt.Errorf("take from buckets in postgres for %d checks: %w", len(checks), err)
	}
	return nil
}

// send decides a batch of the combiner in one transaction.
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
	if b.Err = s.guarded(ctx, t, t.decideChecks); b.Err != nil {
		if errors.Is(b.Err, gobreaker.ErrOpenState) || errors.Is(b.Err, gobreaker.ErrTooManyRequests) {
			b.Err = fmt.Errorf("%w: %w", b.Err, enforce.ErrNothingTaken)
		}
		return
	}
	if refused := t.markAnswered(); refused > 0 {
		s.unknown.Add(int64(refused))
		b.Err = fmt.Errorf("%w; their checks took nothing", ErrUnknownVersion)
	}
}

// guarded runs a transaction unless the breaker is open.
func (s *Store) guarded(ctx context.Context, t *transaction, decide func()) error {
	_, err := s.breaker.Execute(func() (struct{}, error) { return struct{}{}, s.run(ctx, s.pool, t, decide) })
	return err
}

// ErrUnknownVersion means that a newer release wrote a bucket in a format that this process does not know. The bucket was
// left alone.
var ErrUnknownVersion = errors.New("buckets have a format of a newer release")

// BrokenValues counts the stored values that were no bucket. If it grows, another program writes to the table.
func (s *Store) BrokenValues() int64 { return s.broken.Load() }

// UnknownVersions counts the checks that met a bucket in a format that this process does not know. If it grows, a newer
// release shares this database.
func (s *Store) UnknownVersions() int64 { return s.unknown.Load() }

// Waiting returns how many reads of buckets wait for their turn.
func (s *Store) Waiting() (tiers int) { return s.combiner.Depth() }
