package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// testCombiner is a combiner whose batches end when a test says so, or at their deadline.
type testCombiner struct {
	*combiner
	batches chan *sentBatch
}

// sent is a batch in flight.
type sentBatch struct {
	costs  []int // by their cost
	result chan error
}

// A check of that cost makes send panic.
const (
	panics    = 1_000_000
	panicText = "a panic in send"
)

func newTestCombiner(budget time.Duration) *testCombiner {
	l := &testCombiner{batches: make(chan *sentBatch, 1000)}
	l.combiner = newCombiner(budget, func(b *batch) {
		s := &sentBatch{result: make(chan error)}
		for _, c := range b.calls {
			for i := range c.sending {
				s.costs = append(s.costs, int(c.sending[i].Cost))
			}
		}
		if len(s.costs) == 0 {
			return
		}
		if slices.Contains(s.costs, panics) {
			panic(panicText)
		}
		l.batches <- s
		select {
		case b.err = <-s.result:
		case <-time.After(time.Until(b.deadline)):
			b.err = context.DeadlineExceeded
		}
		b.answered = b.err == nil
		if b.err == nil {
			for _, c := range b.calls {
				for i := range c.sending {
					c.sending[i].Answered = true
				}
			}
		}
	})
	l.pace.size = maxBatch // as if Redis had been quick
	return l
}

// start submits checks of four tiers, whose costs count up from first, and returns where the error will be.
func (l *testCombiner) start(first, n int) <-chan error { return l.startOf(0, first, n) }

// startOf is start for a tenant.
func (l *testCombiner) startOf(tenant rules.TenantID, first, n int) <-chan error {
	checks := make([]enforce.BucketCheck, n)
	for i := range checks {
		checks[i] = enforce.BucketCheck{Cost: enforce.Tokens(first + i), Tiers: make([]enforce.Tier, 4)}
		checks[i].Tiers[0].Key.Tenant = tenant
	}
	answer := make(chan error, 1)
	go func() { answer <- l.run(checks) }()
	synctest.Wait()
	return answer
}

// run submits checks.
func (l *testCombiner) run(checks []enforce.BucketCheck) error {
	_, err := l.submit(checks, time.Now())
	return err
}

func numbers(first, n int) []int {
	var all []int
	for i := range n {
		all = append(all, first+i)
	}
	return all
}

func (s *sentBatch) mustCarry(t *testing.T, want []int) {
	t.Helper()
	if !slices.Equal(s.costs, want) {
		t.Fatalf("a batch carries %v, want %v", s.costs, want)
	}
}

func TestAnIdleCombinerSendsAtOnceAndWaitingCallsGoTogetherInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner(DefaultBudget)
		start := time.Now()
		var answers []<-chan error
		for i := range 10 {
			answers = append(answers, l.start(i, 1))
		}
		first, second := <-l.batches, <-l.batches
		first.mustCarry(t, []int{0})
		second.mustCarry(t, []int{1})
		first.result <- nil
		third := <-l.batches
		third.mustCarry(t, numbers(2, 8))
		third.result <- nil
		second.result <- nil
		for i, answer := range answers {
			if err := <-answer; err != nil {
				t.Errorf("check %d: %v", i, err)
			}
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("somebody waited for a timer, %v", waited)
		}
	})
}

func TestAFailedBatchFailsOnlyItsOwnChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner(DefaultBudget)
		bad, good, later := l.start(0, 1), l.start(1, 1), l.start(2, 1)
		broken := errors.New("connection reset")
		(<-l.batches).result <- broken
		if err := <-bad; !errors.Is(err, broken) {
			t.Errorf("the failed check: %v", err)
		}
		(<-l.batches).result <- nil
		(<-l.batches).result <- nil
		for _, answer := range []<-chan error{good, later} {
			if err := <-answer; err != nil {
				t.Errorf("another check: %v", err)
			}
		}
	})
}

func TestAPanicOfALeaderFailsItsFollowersAndNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner(DefaultBudget)
		busy := []<-chan error{l.start(0, 1), l.start(1, 1)}
		first, second := <-l.batches, <-l.batches
		panicked := make(chan any, 1)
		go func() {
			defer func() { panicked <- recover() }()
			_ = l.run([]enforce.BucketCheck{{Cost: panics, Tiers: make([]enforce.Tier, 4)}})
		}()
		synctest.Wait()
		followers := []<-chan error{l.start(2, 1), l.start(3, 1)}
		first.result <- nil
		for _, answer := range followers {
			if err := <-answer; !errors.Is(err, errPanicked) {
				t.Errorf("a follower: %v", err)
			}
		}
		if cause := <-panicked; cause != panicText {
			t.Errorf("the leader's goroutine recovered %v", cause)
		}
		next := l.start(4, 1)
		third := <-l.batches
		third.mustCarry(t, []int{4})
		third.result <- nil
		second.result <- nil
		for _, answer := range append(busy, next) {
			if err := <-answer; err != nil {
				t.Errorf("another call: %v", err)
			}
		}
		if l.inFlight != 0 {
			t.Errorf("%d batches are in flight, though all calls have returned", l.inFlight)
		}
	})
}

func TestAPanicReachesACallerThatCanLeave(t *testing.T) {
	t.Parallel()
	s := New(client(t, "redis://127.0.0.1:1", patience), patience)
	s.stamp = func() int64 { panic(panicText) }
	defer func() {
		if cause := recover(); cause != panicText {
			t.Errorf("recovered %v", cause)
		}
	}()
	_ = s.Take(t.Context(), one(user("42", still)))
	t.Error("no panic")
}

func TestAHangingBatchHoldsUpNobodyBehindIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner(DefaultBudget)
		start := time.Now()
		hanging := []<-chan error{l.start(0, 1), l.start(1, 1)}
		waiting := l.start(2, 1)
		<-l.batches
		<-l.batches
		third := <-l.batches // nothing ended, and it goes all the same
		third.mustCarry(t, []int{2})
		if waited := time.Since(start); waited != DefaultBudget/patienceShare {
			t.Errorf("it went after %v", waited)
		}
		third.result <- nil
		if err := <-waiting; err != nil {
			t.Errorf("the check that waited: %v", err)
		}
		for _, answer := range hanging {
			if err := <-answer; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a check that hung: %v", err)
			}
		}
		if waited := time.Since(start); waited != DefaultBudget {
			t.Errorf("those that hung were told after %v", waited)
		}
	})
}

func TestNobodyWaitsLongerThanTheBudgetThoughEveryBatchHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner(DefaultBudget)
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond / 2) //nolint:forbidigo // the bubble's clock
				start := time.Now()
				if err := l.run([]enforce.BucketCheck{{Tiers: make([]enforce.Tier, 4)}}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("check %d: %v", i, err)
				}
				if waited := time.Since(start); waited > DefaultBudget {
					t.Errorf("check %d waited for %v", i, waited)
				}
			})
		}
		wg.Wait()
		if l.inFlight != 0 || !l.waiting.empty() {
			t.Errorf("%d batches are in flight and calls wait: %t, though all have returned", l.inFlight, !l.waiting.empty())
		}
	})
}

func TestAFewBatchesAreEnoughAgainOnceRedisIsQuick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner(DefaultBudget)
		answers := []<-chan error{l.start(0, 1), l.start(1, 1), l.start(2, 1)}
		under := []*sentBatch{<-l.batches, <-l.batches, <-l.batches} // the third because the others were slow
		answers = append(answers, l.start(3, 1))
		under[0].result <- nil
		synctest.Wait()
		if len(l.batches) != 0 {
			t.Error("a third batch took the place of the one that ended")
		}
		under[1].result <- nil
		last := <-l.batches
		last.mustCarry(t, []int{3})
		under[2].result <- nil
		last.result <- nil
		for _, answer := range answers {
			if err := <-answer; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestALargeBatchLetsSingleChecksIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner(DefaultBudget)
		answers := []<-chan error{l.start(-2, 1), l.start(-1, 1), l.start(0, 1000), l.start(5000, 1), l.start(6000, 1000), l.start(7000, 1)}
		under := []*sentBatch{<-l.batches, <-l.batches}
		under[0].result <- nil
		synctest.Wait()
		under[1].result <- nil
		half := maxBatch / 8
		first := <-l.batches
		// The half of the first batch, the single check, and as much of the second batch as fits.
		first.mustCarry(t, slices.Concat(numbers(0, half), []int{5000}, numbers(6000, half-1)))
		second := <-l.batches
		second.mustCarry(t, []int{7000})
		pending := []*sentBatch{first, second}
		carried := []int{}
		for len(pending) > 0 {
			s := pending[0]
			pending = pending[1:]
			s.result <- nil
			synctest.Wait()
			for len(l.batches) > 0 {
				next := <-l.batches
				carried = append(carried, next.costs...)
				pending = append(pending, next)
			}
		}
		for i, answer := range answers {
			if err := <-answer; err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
		for _, batch := range []int{0, 6000} { // each in its own order
			rest := slices.DeleteFunc(slices.Clone(carried), func(n int) bool { return n < batch || n >= batch+1000 })
			if !slices.IsSorted(rest) || rest[len(rest)-1] != batch+999 {
				t.Errorf("the rest of batch %d went as %v", batch, rest)
			}
		}
	})
}

func TestAThousandChecksAtOnceAreAllAnsweredInAFewBatches(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	s := New(client(t, server.URL(), patience), patience)
	mustTake(t, s, one(user("warm", still)))
	before := scriptCalls(t, s)
	limit := enforce.Limit{Rate: rules.MinRate, Burst: 700}
	if err := server.Freeze(); err != nil { // until all have come, however slowly
		t.Fatal(err)
	}
	var mu sync.Mutex
	allowed := 0
	var came atomic.Int64
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			came.Add(1)
			checks := []enforce.BucketCheck{fourTiers(i, limit)}
			if err := s.Take(context.Background(), checks); err != nil {
				t.Errorf("check %d was not answered: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if checks[0].Allowed {
				allowed++
			}
		})
	}
	eventually(t, "all have come", patience, func() bool { return came.Load() == 1000 })
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if allowed != 700 {
		t.Errorf("%d of 1000 passed a burst of 700", allowed)
	}
	calls := scriptCalls(t, s) - before
	t.Logf("%d scripts for 1000 checks", calls)
	if calls > 100 { // of up to 64 checks; the last who came may have sent their own
		t.Errorf("%d scripts for 1000 checks at once", calls)
	}
}

func TestACallerThatLeavesDisturbsNoneOfThoseItWentWith(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	s := New(client(t, server.URL(), patience), patience)
	mustTake(t, s, one(user("42", still)))
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	var stay, leave sync.WaitGroup
	leaving, cancel := context.WithCancel(t.Context())
	for i := range 20 {
		stay.Go(func() { mustTake(t, s, one(user(fmt.Sprint(i), still))) })
		leave.Go(func() {
			checks := one(user(fmt.Sprint(i), still))
			if err := s.Take(leaving, checks); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that left: %v", err)
			}
			checks[0] = enforce.BucketCheck{} // it is the caller's again; the race detector looks on
		})
	}
	cancel()
	leave.Wait()
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	stay.Wait()
}

func TestAQuickRedisThatIsOverloadedGetsNoMoreBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner(DefaultBudget)
		const took = DefaultBudget / 12
		var answers []<-chan error
		for i := range 40 { // ten batches, one of which ends every 4 ms
			answers = append(answers, l.start(i*256, 256))
		}
		under := []*sentBatch{<-l.batches, <-l.batches}
		for len(under) > 0 {
			time.Sleep(took) //nolint:forbidigo // the bubble's clock
			if len(l.batches) > 0 {
				t.Fatalf("a third batch was started %v after one had ended", took)
			}
			under[0].result <- nil
			under = under[1:]
			synctest.Wait()
			for len(l.batches) > 0 {
				under = append(under, <-l.batches)
			}
		}
		failed := 0
		for _, answer := range answers {
			if err := <-answer; err != nil {
				failed++
				if !errors.Is(err, errNoTurn) {
					t.Errorf("a check failed in flight: %v", err)
				}
			}
		}
		if failed == 0 || failed == len(answers) {
			t.Errorf("%d of %d calls failed, want some", failed, len(answers))
		}
	})
}
