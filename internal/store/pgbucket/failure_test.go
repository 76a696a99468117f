package pgbucket

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb/awake"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
)

var slow = enforce.Limit{Rate: 1e-6, Burst: 100, Since: 1}

type proxy struct {
	listener   net.Listener
	target     string
	loseCommit atomic.Bool
	lost       atomic.Int64
	silent     atomic.Bool

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func throughProxy(t *testing.T, databaseURL string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: u.Host}
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		p.wg.Wait()
	})
	u.Host = listener.Addr().String()
	return p, u.String()
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.conns = nil
}

func (p *proxy) serve() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, near, far)
		p.mu.Unlock()
		var losing atomic.Bool
		p.wg.Go(func() {
			defer func() { _ = far.Close() }()
			p.pass(far, near, func(b []byte) bool {
				prepares := strings.Contains(string(b), "sluice_commit\x00COMMIT")
				if strings.Contains(string(b), "sluice_commit") && !prepares && p.loseCommit.Swap(false) {
					losing.Store(true)
				}
				return true
			})
		})
		p.wg.Go(func() {
			defer func() { _ = near.Close() }()
			p.pass(near, far, func([]byte) bool {
				if losing.Load() {
					p.lost.Add(1)
				}
				return !losing.Load()
			})
		})
	}
}

func (p *proxy) pass(to io.Writer, from io.Reader, may func([]byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || !may(buf[:n]) {
			return
		}
		if p.silent.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func mustTake(t testing.TB, s *Store, checks []enforce.BucketCheck) []enforce.BucketCheck {
	t.Helper()
	if err := s.Take(context.Background(), checks); err != nil {
		t.Fatalf("take: %v", err)
	}
	return checks
}

func mustHold(t *testing.T, s *Store, tier enforce.Tier, tokens int64) {
	t.Helper()
	look := mustTake(t, s, []enforce.BucketCheck{{Tiers: []enforce.Tier{tier}}})
	if got := look[0].Tiers[0].Bucket.Level.Micros.Whole(); got != tokens {
		t.Errorf("the bucket holds %d tokens, want %d", got, tokens)
	}
}

// After a COMMIT without a reply nobody knows whether it was executed, so it must not be repeated.
func TestALostCommitChargesOnce(t *testing.T) {
	t.Parallel()
	databaseURL := devdbtest.Postgres(t)
	p, throughURL := throughProxy(t, databaseURL)
	s, direct := open(t, throughURL, testTimeout), open(t, databaseURL, testTimeout)
	tier := user("42", slow)
	mustTake(t, s, one(tier)) // the row exists
	for i, fresh := range []bool{false, true} {
		charged := tier
		if fresh {
			charged = user("new", slow)
		}
		p.loseCommit.Store(true)
		if err := s.Take(context.Background(), one(charged)); err == nil {
			t.Error("a take whose commit got no answer succeeded")
		}
		if got := p.lost.Load(); got != int64(i+1) {
			t.Fatalf("%d replies to a COMMIT were lost, want %d", got, i+1)
		}
	}
	mustHold(t, direct, tier, 98)
	mustHold(t, direct, user("new", slow), 99)
}

// As after a restart of the server, the next take finds out before anything is taken.
func TestStaleConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	p, throughURL := throughProxy(t, devdbtest.Postgres(t))
	s := open(t, throughURL, testTimeout)
	for range 5 {
		mustTake(t, s, one(user("42", slow)))
		p.cut()
	}
	mustHold(t, s, user("42", slow), 95)
}

func TestASilentServerIsAnErrorWithinTheBudgetAndThenAtOnce(t *testing.T) {
	t.Parallel()
	const budget = 200 * time.Millisecond
	p, throughURL := throughProxy(t, devdbtest.Postgres(t))
	s := open(t, throughURL, budget)
	eventually(t, "the first take", func() bool { return s.Take(context.Background(), one(user("42", slow))) == nil })
	trips := s.Trips() // a busy machine may have needed longer than the budget for the first
	p.silent.Store(true)
	var wg sync.WaitGroup
	for range 64 { // more than fit the batches in flight
		wg.Go(func() {
			watch := awake.Start()
			defer watch.Stop()
			if err := s.Take(context.Background(), one(user("42", slow))); err == nil {
				t.Error("a take was answered by nobody")
			}
			if took := watch.Now(); took > budget+100*time.Millisecond {
				t.Errorf("a take took %v, with a budget of %v", took, budget)
			}
		})
	}
	wg.Wait()
	eventually(t, "the breaker opens", func() bool {
		_ = s.Take(context.Background(), one(user("42", slow)))
		return s.State() != Up
	})
	if trips = s.Trips() - trips; trips != 1 {
		t.Errorf("the breaker opened %d times, want once", trips)
	}
	p.silent.Store(false)
	p.cut()
	back := time.Now()
	eventually(t, "PostgreSQL decides again",
		func() bool { return s.Take(context.Background(), one(user("42", slow))) == nil })
	t.Logf("decided again after %v", time.Since(back))
}

func TestADatabaseThatWasNeverThereIsAnErrorSoon(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close()
	s := open(t, "postgres://nobody@"+addr+"/none?sslmode=disable", 100*time.Millisecond)
	if err := s.Take(context.Background(), one(user("42", slow))); err == nil {
		t.Error("a take without a server succeeded")
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Error("a ping without a server succeeded")
	}
	if _, _, err := s.Credit(t.Context(), user("42", slow).Key, slow, enforce.Fill); err == nil {
		t.Error("a credit without a server succeeded")
	}
}

func TestAProcessThatHangsGivesItsRowsBack(t *testing.T) {
	t.Parallel()
	databaseURL := devdbtest.Postgres(t)
	s := open(t, databaseURL, 10*time.Second) // enough for a busy machine; the row is free after it
	eventually(t, "the first take", func() bool { return s.Take(context.Background(), one(user("42", slow))) == nil })
	conn, err := s.pool.Acquire(t.Context()) // with the settings of a store
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "BEGIN", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "SELECT FROM bucket FOR UPDATE", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	if err := s.Take(context.Background(), one(user("42", slow))); !isLockTimeout(err) {
		t.Errorf("a take of a locked bucket got %v, want a timeout of its lock", err)
	}
	if err := s.Take(context.Background(), one(user("7", slow))); err != nil {
		t.Errorf("a take of another bucket: %v", err)
	}
	eventually(t, "the row is free", func() bool { return s.Take(context.Background(), one(user("42", slow))) == nil })
	if s.Trips() > 0 {
		t.Error("a locked row opened the breaker for all")
	}
}

// The check waits for one bucket while another process first takes from the second.
func TestADenialReportsABucketThatWasInsertedMeanwhile(t *testing.T) {
	t.Parallel()
	databaseURL := devdbtest.Postgres(t)
	s, other := open(t, databaseURL, testTimeout), open(t, databaseURL, testTimeout)
	first, second := user("a", slow), user("b", slow)
	check := one(first)
	check[0].Cost = 100 * enforce.Token
	mustTake(t, s, check) // it is empty
	tx, err := other.background.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM bucket FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	denied := one(first, second)
	done := make(chan error, 1)
	go func() { done <- s.Take(context.Background(), denied) }()
	eventually(t, "the check waits for the first bucket", func() bool {
		var waits bool
		return other.background.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waits) == nil && waits
	})
	mustTake(t, other, one(second))
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || denied[0].Allowed {
		t.Fatalf("allowed %v, error %v", denied[0].Allowed, err)
	}
	if got := denied[0].Tiers[1].Bucket.Level.Micros.Whole(); got != 99 {
		t.Errorf("the second bucket is reported to hold %d tokens, want 99", got)
	}
}

func TestIdleBucketsAreRemoved(t *testing.T) {
	t.Parallel()
	databaseURL := devdbtest.Postgres(t)
	s, other := open(t, databaseURL, testTimeout), open(t, databaseURL, testTimeout)
	now := int64(1_800_000_000_000_000)
	s.stamp = func() int64 { return now }
	quick := enforce.Limit{Rate: 100, Burst: 100}
	var checks []enforce.BucketCheck
	for i := range 1000 {
		checks = append(checks, one(user(fmt.Sprint(i), quick))...)
	}
	mustTake(t, s, append(checks, one(user("slow", slow))...))
	table := &cleaned{table: "bucket", forgottenAt: "full_at"}
	clean := func(want int64) {
		t.Helper()
		if removed, err := s.cleanStep(t.Context(), table); err != nil || removed != want {
			t.Errorf("removed %d buckets, %v; want %d", removed, err, want)
		}
	}
	now += (10*time.Second + 9*time.Millisecond).Microseconds()
	clean(0)
	now += time.Second.Microseconds()
	conn, err := other.background.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), "SELECT FROM bucket WHERE subject = '7' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	table.page = 0
	clean(999)
	if err := conn.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	table.page = 0
	clean(1)
	if left := contents(t, s); len(left) != 1 {
		t.Errorf("%d buckets are left, want the slow one", len(left))
	}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, testTimeout)
		}
		<-tick.C
	}
}

// The breaker stays closed for everybody.
func TestCreditsWhoseCallersLeaveAreNoFailures(t *testing.T) {
	t.Parallel()
	s := open(t, devdbtest.Postgres(t), testTimeout)
	tier := enforce.Tier{Key: enforce.Key{Tenant: 1, Rule: 1, Subject: "42"}, Limit: slow}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	for range 2 * tripAfter {
		if _, _, err := s.Credit(ctx, tier.Key, tier.Limit, -enforce.Token); err != nil {
			t.Fatal(err)
		}
	}
	if trips := s.Trips(); trips > 0 {
		t.Errorf("the breaker opened %d times", trips)
	}
}

// One tenant's credits wait for a locked row; another checks, settles and is credited.
func TestCreditsOfOneTenantHoldUpNoOther(t *testing.T) {
	t.Parallel()
	s := open(t, devdbtest.Postgres(t), testTimeout)
	const greedy, quiet = 1, 2
	locked := enforce.Key{Tenant: greedy, Rule: 1, Subject: "42"}
	if _, _, err := s.Credit(t.Context(), locked, slow, -enforce.Token); err != nil {
		t.Fatal(err)
	}
	tx, err := s.background.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(),
		"SET LOCAL idle_in_transaction_session_timeout = 0; SELECT FROM bucket FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var credits sync.WaitGroup
	for range maxWaiting {
		credits.Go(func() {
			if _, _, err := s.Credit(t.Context(), locked, slow, -enforce.Token); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "the credits wait", func() bool { return s.changes.Count().Waiting == maxWaiting-changesPerTenant })

	check := reserving(quiet, 1, time.Hour)
	mustTake(t, s, []enforce.BucketCheck{check})
	settled, err := s.SettleReservation(t.Context(), quiet, check.Reserve.ID, enforce.Settlement{})
	if err != nil || !settled.Found {
		t.Errorf("settled as %+v, %v", settled, err)
	}
	if _, _, err := s.Credit(t.Context(), check.Tiers[0].Key, slow, -enforce.Token); err != nil {
		t.Error(err)
	}
	if waiting := s.changes.Count().Waiting; waiting != maxWaiting-changesPerTenant {
		t.Errorf("%d credits of the greedy tenant wait, though their row is locked", waiting)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	credits.Wait()
}

func TestAPanicInABatchReachesItsCaller(t *testing.T) {
	t.Parallel()
	s := open(t, devdbtest.Postgres(t), testTimeout)
	const text = "a panic in a batch"
	s.stamp = func() int64 { panic(text) }
	defer func() {
		if cause := recover(); cause != text {
			t.Errorf("recovered %v", cause)
		}
	}()
	_ = s.Take(t.Context(), one(user("42", slow)))
	t.Error("no panic")
}
