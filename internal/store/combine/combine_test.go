package combine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	budget   = 50 * time.Millisecond
	maxBatch = 1024
)

func newCombiner(send func(*Batch)) *Combiner {
	return New(Options{
		Weight: countTiers, Budget: budget, InFlight: 2, MaxInFlight: 16, FirstBatch: 64,
		MaxBatch: maxBatch, Send: send,
	})
}

func countTiers(check *enforce.BucketCheck) int { return len(check.Tiers) }

type testCombiner struct {
	*Combiner
	batches chan *sentBatch
}

type sentBatch struct {
	costs  []int // by their cost
	result chan error
}

const (
	panicking = 1_000_000
	panicText = "a panic in send"
)

func newTestCombiner() *testCombiner {
	l := &testCombiner{batches: make(chan *sentBatch, 1000)}
	l.Combiner = newCombiner(func(b *Batch) {
		s := &sentBatch{result: make(chan error)}
		for _, c := range b.Calls {
			for i := range c.Sending {
				s.costs = append(s.costs, int(c.Sending[i].Cost))
			}
		}
		if len(s.costs) == 0 {
			return
		}
		if slices.Contains(s.costs, panicking) {
			panic(panicText)
		}
		l.batches <- s
		select {
		case b.Err = <-s.result:
		case <-time.After(time.Until(b.Deadline)):
			b.Err = context.DeadlineExceeded
		}
		b.Answered = b.Err == nil
		if b.Err == nil {
			for _, c := range b.Calls {
				for i := range c.Sending {
					c.Sending[i].Answered = true
				}
			}
		}
	})
	l.pace.size = maxBatch // as if Redis had been quick
	return l
}

func (l *testCombiner) start(first, n int) <-chan error { return l.startOf(0, first, n) }

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

func (l *testCombiner) run(checks []enforce.BucketCheck) error {
	_, err := l.Submit(checks, time.Now())
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
		l := newTestCombiner()
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
		l := newTestCombiner()
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
		l := newTestCombiner()
		busy := []<-chan error{l.start(0, 1), l.start(1, 1)}
		first, second := <-l.batches, <-l.batches
		panicked := make(chan any, 1)
		go func() {
			defer func() { panicked <- recover() }()
			_ = l.run([]enforce.BucketCheck{{Cost: panicking, Tiers: make([]enforce.Tier, 4)}})
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

func TestAPanicAfterTheAnswersEndsTheLeader(t *testing.T) {
	t.Parallel()
	q := newCombiner(func(b *Batch) {
		for _, c := range b.Calls {
			for i := range c.Sending {
				c.Sending[i].Answered = true
			}
		}
		panic(panicText)
	})
	checks := make([]enforce.BucketCheck, maxBatch)
	for i := range checks {
		checks[i].Tiers = make([]enforce.Tier, 4)
	}
	for range 3 { // the memory of calls is reused
		func() {
			defer func() {
				if cause := recover(); cause != panicText {
					t.Errorf("recovered %v", cause)
				}
			}()
			_, _ = q.Submit(checks, time.Now())
		}()
	}
	if q.inFlight != 0 || q.Depth() != 0 {
		t.Errorf("%d batches are in flight and %d tiers wait, though no call is left", q.inFlight, q.Depth())
	}
}

func TestAHangingBatchHoldsUpNobodyBehindIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner()
		start := time.Now()
		hanging := []<-chan error{l.start(0, 1), l.start(1, 1)}
		waiting := l.start(2, 1)
		<-l.batches
		<-l.batches
		third := <-l.batches // nothing ended, and it goes all the same
		third.mustCarry(t, []int{2})
		if waited := time.Since(start); waited != budget/timeoutShare {
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
		if waited := time.Since(start); waited != budget {
			t.Errorf("those that hung were told after %v", waited)
		}
	})
}

func TestNobodyWaitsLongerThanTheBudgetThoughEveryBatchHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner()
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond / 2) //nolint:forbidigo // the bubble's clock
				start := time.Now()
				if err := l.run([]enforce.BucketCheck{{Tiers: make([]enforce.Tier, 4)}}); !errors.Is(err,
					context.DeadlineExceeded) {
					t.Errorf("check %d: %v", i, err)
				}
				if waited := time.Since(start); waited > budget {
					t.Errorf("check %d waited for %v", i, waited)
				}
			})
		}
		wg.Wait()
		if l.inFlight != 0 || !l.waiting.empty() {
			t.Errorf("%d batches are in flight and calls wait: %t, though all have returned", l.inFlight,
				!l.waiting.empty())
		}
	})
}

func TestAFewBatchesAreEnoughAgainOnceRedisIsQuick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner()
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
		l := newTestCombiner()
		answers := []<-chan error{
			l.start(-2, 1), l.start(-1, 1), l.start(0, 1000), l.start(5000, 1),
			l.start(6000, 1000), l.start(7000, 1),
		}
		under := []*sentBatch{<-l.batches, <-l.batches}
		under[0].result <- nil
		synctest.Wait()
		under[1].result <- nil
		half := maxBatch / 8
		first := <-l.batches
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

func TestAQuickRedisThatIsOverloadedGetsNoMoreBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner()
		const took = budget / 12
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
				if !errors.Is(err, ErrNoTurn) {
					t.Errorf("a check failed in flight: %v", err)
				}
			}
		}
		if failed == 0 || failed == len(answers) {
			t.Errorf("%d of %d calls failed, want some", failed, len(answers))
		}
	})
}

func TestThePanicOfATimerStartsItAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner()
		l.start(1, 1)
		l.start(2, 1)
		third := l.start(3, 1) // waits
		l.mu.Lock()
		held := l.waiting
		l.waiting = fairQueue{first: &flow{}} // has no call, which cannot be
		l.mu.Unlock()
		<-time.After(budget / timeoutShare)
		synctest.Wait()
		l.mu.Lock()
		l.waiting = held
		l.mu.Unlock()
		<-time.After(budget / timeoutShare)
		synctest.Wait()
		for range 3 {
			select {
			case b := <-l.batches:
				b.result <- nil
			default:
				t.Fatal("the call that waited is not sent")
			}
		}
		if err := <-third; err != nil {
			t.Error(err)
		}
	})
}
