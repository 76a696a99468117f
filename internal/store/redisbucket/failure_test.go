package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/sluicegate/sluice/internal/devdb/awake"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

var still = enforce.Limit{Rate: rules.MinRate, Burst: 1_000_000}

// slack is a few wake-ups over the budget, on the clock of an awake.Watch.
const slack = 15 * time.Millisecond

// wantWithin allows the median slack and the worst starved, because other tests may keep a goroutine waiting.
func wantWithin(t *testing.T, what string, promise time.Duration, took []time.Duration) {
	t.Helper()
	slices.Sort(took)
	if median, worst := took[len(took)/2], took[len(took)-1]; median > promise+slack || worst > promise+starved {
		t.Errorf("%s: calls took %v, want at most %v", what, took, promise)
	}
}

func TestScriptFlushUnderLoadLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	stop := make(chan struct{})
	var flusher, load sync.WaitGroup
	var flushes atomic.Int64
	flusher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := s.rdb.ScriptFlush(t.Context()).Err(); err != nil {
				t.Errorf("flush: %v", err)
				return
			}
			flushes.Add(1)
		}
	})
	var allowed atomic.Int64
	for worker := range 4 {
		load.Go(func() {
			for range 100 {
				checks := make([]enforce.BucketCheck, 1+99*(worker%2)) // single checks, and batches of two scripts
				for i := range checks {
					checks[i] = enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{user("42", still)}}
				}
				if err := s.Take(t.Context(), checks); err != nil {
					t.Errorf("take: %v", err)
					return
				}
				for _, check := range checks {
					if check.Allowed {
						allowed.Add(1)
					}
				}
			}
		})
	}
	load.Wait()
	close(stop)
	flusher.Wait()
	left := mustTake(t, s, []enforce.BucketCheck{{Tiers: []enforce.Tier{user("42", still)}}})[0].Tiers[0].Bucket.Level
	if taken := still.Burst - left.Micros.Whole(); taken != allowed.Load() || flushes.Load() == 0 {
		t.Errorf("%d tokens were taken for %d allowed checks in %d flushes", taken, allowed.Load(), flushes.Load())
	}
}

func TestConcurrentTakesNeverExceedTheBurst(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	limit := enforce.Limit{Rate: rules.MinRate, Burst: 500}
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				checks := one(user("42", limit))
				if err := s.Take(t.Context(), checks); err != nil {
					t.Errorf("take: %v", err)
				}
				if checks[0].Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if allowed.Load() != 500 {
		t.Errorf("%d checks passed a burst of 500", allowed.Load())
	}
}

func TestALostReplyChargesAtMostOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tenants int
		apart   bool
	}{"one script": {1, false}, "one script of several tenants": {3, false}, "several scripts": {3, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := devdbtest.Redis(t)
			p := newProxy(t, server.Addr())
			s := New(client(t, "redis://"+p.addr(), testTimeout), testTimeout)
			mustCheck(t, s)
			s.standalone.Store(!test.apart)
			direct := New(client(t, server.URL(), testTimeout), testTimeout)
			loseReply(t, s, direct, p, test.tenants)
		})
	}
}

func loseReply(t *testing.T, s, direct *Store, p *proxy, tenants int) {
	t.Helper()
	checks := make([]enforce.BucketCheck, tenants)
	for i := range checks {
		tier := user("42", still)
		tier.Key.Tenant = rules.TenantID(i)
		checks[i] = enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{tier}}
	}
	mustTake(t, s, checks)
	p.loseReply.Store(true)
	if err := s.Take(t.Context(), checks); err == nil {
		t.Error("no error though the reply was lost")
	}
	if p.lost.Load() != 1 {
		t.Fatalf("%d replies were lost, want 1", p.lost.Load())
	}
	for i := range checks {
		checks[i].Cost = 0
	}
	for i, check := range mustTake(t, direct, checks) {
		if taken := still.Burst - check.Tiers[0].Bucket.Level.Micros.Whole(); taken != 2 {
			t.Errorf("tenant %d: %d tokens taken, want 2", i, taken)
		}
	}
}

func TestAFrozenRedisIsAnErrorWithinTheBudget(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	known := New(client(t, server.URL(), DefaultBudget), DefaultBudget)
	eventually(t, "redis answers", testTimeout,
		func() bool { return known.Take(t.Context(), one(user("42", still))) == nil })
	fresh := New(client(t, server.URL(), DefaultBudget), DefaultBudget)
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	watch := awake.Start()
	defer watch.Stop()
	for name, s := range map[string]*Store{"on an open connection": known, "on a new connection": fresh} {
		var took []time.Duration
		for range tripAfter {
			start := watch.Now()
			if err := s.Take(t.Context(), one(user("42", still))); err == nil {
				t.Errorf("%s: no error", name)
			}
			took = append(took, watch.Since(start))
		}
		wantWithin(t, name, DefaultBudget, took)
		if s.State() == Up {
			t.Errorf("%s: the breaker is closed after %d failures", name, tripAfter)
		}
		if Summary(s.Ping(t.Context())) != Down {
			t.Errorf("%s: a ping was answered", name)
		}
		if _, err := s.CheckSettings(t.Context()); err == nil {
			t.Errorf("%s: settings were read", name)
		}
	}
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Store{"on an open connection": known, "on a new connection": fresh} {
		eventually(t, name+": the store enforces again", 2*time.Second, func() bool {
			return s.Take(t.Context(), one(user("42", still))) == nil
		})
	}
}

func TestAKilledRedisIsEnforcedWithin2SecondsOfItsReturn(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	s := New(client(t, server.URL(), DefaultBudget), DefaultBudget)
	take := func() error { return s.Take(t.Context(), one(user("42", still))) }
	eventually(t, "redis answers", testTimeout, func() bool { return take() == nil })
	server.Kill()
	// The driver's pool backs off after as many failed dials as it has connections.
	failed := 0
	eventually(t, "the breaker has tried many times", testTimeout, func() bool {
		if err := take(); err != nil && !errors.Is(err, gobreaker.ErrOpenState) {
			failed++
		}
		return failed > 4*tripAfter
	})
	if s.State() == Up {
		t.Error("the breaker is closed")
	}
	watch := awake.Start()
	defer watch.Stop()
	var took []time.Duration
	for range 100 {
		start := watch.Now()
		if err := take(); err == nil {
			t.Fatal("a dead redis answered")
		}
		took = append(took, watch.Since(start))
	}
	wantWithin(t, "with the breaker open", 0, took)
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("enforcing %v after redis's return", eventually(t, "the store enforces again", 2*time.Second,
		func() bool { return take() == nil }))
	if s.State() != Up {
		t.Errorf("the store says %s", s.State())
	}
}

func TestARedisWithoutMemoryIsAnErrorAndTakesNothing(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	mustTake(t, s, one(user("42", still)))
	setMemory := func(bytes string) {
		if err := s.rdb.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	setMemory("1000")
	for range tripAfter {
		err := s.Take(t.Context(), one(user("42", still), user("43", still)))
		if err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("take: %v", err)
		}
	}
	if s.State() == Up {
		t.Error("the breaker is closed")
	}
	setMemory("0")
	eventually(t, "the store enforces again", 2*time.Second, func() bool {
		return s.Take(t.Context(), one(user("42", still))) == nil
	})
	checks := []enforce.BucketCheck{{Tiers: []enforce.Tier{user("42", still), user("43", still)}}}
	mustTake(t, s, checks)
	for i, want := range []int64{still.Burst - 2, still.Burst} {
		if got := checks[0].Tiers[i].Bucket.Level.Micros.Whole(); got != want {
			t.Errorf("tier %d holds %d tokens, want %d", i, got, want)
		}
	}
}

func TestAConnectionToWhatBecameAReplicaIsDropped(t *testing.T) {
	t.Parallel()
	for name, tenants := range map[string]int{"one script": 1, "several scripts": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, promoted := devdbtest.Redis(t), devdbtest.Redis(t)
			p := newProxy(t, old.Addr())
			s := New(client(t, "redis://"+p.addr(), testTimeout), testTimeout)
			take := func() error {
				var checks []enforce.BucketCheck
				for i := range tenants {
					tier := user("42", still)
					tier.Key.Tenant = rules.TenantID(i)
					checks = append(checks, enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{tier}})
				}
				return s.Take(t.Context(), checks)
			}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					if err := take(); err != nil {
						t.Errorf("take: %v", err)
					}
				})
			}
			wg.Wait()
			demote(t, client(t, old.URL(), testTimeout), promoted.Addr())
			p.target.Store(promoted.Addr())
			if err := take(); err == nil || !strings.Contains(err.Error(), "READONLY") {
				t.Errorf("the first take after the failover: %v", err)
			}
			eventually(t, "the store enforces on the new master", 3*time.Second, func() bool { return take() == nil })
			if err := take(); err != nil {
				t.Errorf("a later take: %v", err)
			}
		})
	}
}

func TestOfABatchThatFailsTheAnsweredAsksAreMarked(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	spent := enforce.Limit{Rate: rules.MinRate, Burst: 1}
	mustTake(t, s, one(user("denied", spent)))
	if err := s.rdb.ConfigSet(t.Context(), "maxmemory", "1000").Err(); err != nil {
		t.Fatal(err)
	}
	other := user("42", still)
	other.Key.Tenant = 2 // so it is another script, which wants to write
	checks := []enforce.BucketCheck{
		{Cost: enforce.Token, Tiers: []enforce.Tier{user("denied", spent)}},
		{Cost: enforce.Token, Tiers: []enforce.Tier{other}},
		{Cost: enforce.Token},
	}
	if err := s.Take(t.Context(), checks); err == nil {
		t.Fatal("no error")
	}
	for i, want := range []struct{ answered, allowed bool }{{true, false}, {false, false}, {true, true}} {
		if checks[i].Answered != want.answered || checks[i].Allowed != want.allowed {
			t.Errorf("check %d: answered %t, allowed %t; want %+v", i, checks[i].Answered, checks[i].Allowed, want)
		}
	}
}

func demote(t *testing.T, rdb redis.UniversalClient, master string) {
	t.Helper()
	host, port, _ := strings.Cut(master, ":")
	if err := rdb.(*redis.Client).ReplicaOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica follows", testTimeout, func() bool {
		info, err := rdb.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
}

func TestARedisThatWasNeverThereIsAnErrorSoon(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	server.Kill()
	s := New(client(t, server.URL(), DefaultBudget), DefaultBudget)
	watch := awake.Start()
	defer watch.Stop()
	var took []time.Duration
	for i := range 3 * tripAfter {
		start := watch.Now()
		if err := s.Take(t.Context(), one(user(fmt.Sprint(i), still))); err == nil {
			t.Fatal("no error")
		}
		took = append(took, watch.Since(start))
	}
	wantWithin(t, "with the breaker closed", DefaultBudget, took[:tripAfter])
	wantWithin(t, "with the breaker open", 0, took[tripAfter:])
	if s.State() != Down {
		t.Errorf("the store says %s", s.State())
	}
}

type cutAfter struct{ left *int }

func (cutAfter) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (cutAfter) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (c cutAfter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if *c.left--; *c.left < 0 {
			for _, cmd := range cmds {
				cmd.SetErr(io.ErrUnexpectedEOF)
			}
			return io.ErrUnexpectedEOF
		}
		return next(ctx, cmds)
	}
}

func TestWhatWasAnsweredBeforeAFailureIsMarked(t *testing.T) {
	t.Parallel()
	_, s := generous(t)
	limit := enforce.Limit{Rate: 0.001, Burst: 1}
	checks := make([]enforce.BucketCheck, 1000)
	for i := range checks {
		checks[i] = enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{
			user(fmt.Sprint(i), limit),
			user(fmt.Sprint("second-", i), limit),
		}}
	}
	mustTake(t, s, one(user("warm", limit))) // so that the script is known
	left := 1
	s.rdb.AddHook(cutAfter{&left})
	if err := s.Take(t.Context(), checks); err == nil {
		t.Fatal("the second batch broke without an error")
	}
	answered := 0
	for i := range checks {
		if checks[i].Answered {
			answered++
			if i != answered-1 || !checks[i].Allowed {
				t.Fatalf("check %d is answered (allowed: %v), after %d others", i, checks[i].Allowed, answered-1)
			}
		}
	}
	if answered == 0 || answered == len(checks) {
		t.Errorf("%d of %d checks are answered, want those of the first batch", answered, len(checks))
	}
}

func TestASpikeBeyondTheConnectionsDoesNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	options, err := Options(server.URL(), testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	// Far below the budget, so that even a busy machine does not end both at once.
	options.PoolSize, options.PoolTimeout = 1, 50*time.Millisecond
	rdb := redis.NewUniversalClient(options)
	defer func() { _ = rdb.Close() }()
	s := New(rdb, testTimeout)
	conn := rdb.(*redis.Client).Conn() // the one connection is taken
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 * tripAfter {
		if err := s.Take(t.Context(), one(user("42", enforce.Limit{Rate: 1, Burst: 1}))); !errors.Is(err,
			redis.ErrPoolTimeout) {
			t.Fatalf("error is %v, want that of a full pool", err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if s.State() != Up {
		t.Errorf("the store takes Redis for %s because callers waited for each other", s.State())
	}
}
