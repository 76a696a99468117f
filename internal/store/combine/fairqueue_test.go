package combine

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestTenantsTakeTurnsHoweverMuchOneOfThemAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner()
		answers := []<-chan error{l.start(-2, 1), l.start(-1, 1)}
		inFlight := []*sentBatch{<-l.batches, <-l.batches}
		l.pace.size = 40 * 4
		const flooder, quiet, batcher = 1, 2, 3
		for i := range 100 {
			answers = append(answers, l.startOf(flooder, i, 1))
		}
		answers = append(answers, l.startOf(quiet, 1000, 1), l.startOf(batcher, 2000, 20), l.startOf(quiet, 1001, 1))
		inFlight[0].result <- nil
		first := <-l.batches
		first.mustCarry(t, slices.Concat([]int{0}, []int{1000, 1001}, numbers(2000, 20), numbers(1, 17)))
		answers = append(answers, l.startOf(quiet, 1002, 1))
		first.result <- nil
		second := <-l.batches
		second.mustCarry(t, slices.Concat([]int{18, 1002}, numbers(19, 46)))
		second.result <- nil
		(<-l.batches).result <- nil
		inFlight[1].result <- nil
		for i, answer := range answers {
			if err := <-answer; err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if len(l.waiting.flows) != 0 {
			t.Errorf("%d flows are remembered though nothing waits", len(l.waiting.flows))
		}
	})
}

// A store that needs 0.1 ms for a tier is sent ten times that.
func TestAFloodIsShedBeforeTheChecksOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const perTier = 100 * time.Microsecond
		busy := make(chan struct{}, 1)
		q := newCombiner(func(b *Batch) {
			busy <- struct{}{}
			time.Sleep(time.Duration(b.Tiers) * perTier) //nolint:forbidigo // the bubble's clock
			<-busy
			b.Answered = true
			for _, c := range b.Calls {
				for i := range c.Sending {
					c.Sending[i].Answered = true
				}
			}
		})
		take := func(tenant rules.TenantID) error {
			tier := enforce.Tier{Key: enforce.Key{Tenant: tenant}}
			_, err := q.Submit([]enforce.BucketCheck{{Tiers: []enforce.Tier{tier}}}, time.Now())
			return err
		}
		const flooder, warmUp, ticks = 1, 150, 350 // until then the queue learns how slow the store is
		var shed, waitedToBeShed, decided, quietFailed atomic.Int64
		var calls sync.WaitGroup
		for tick := range ticks {
			for range 100 { // a millisecond, in which ten are decided
				calls.Go(func() {
					switch began, err := time.Now(), take(flooder); {
					case errors.Is(err, ErrOverloaded), errors.Is(err, ErrNoTurn):
						shed.Add(1)
						if time.Since(began) > 0 && tick >= warmUp {
							waitedToBeShed.Add(1)
						}
					case err == nil && tick >= warmUp:
						decided.Add(1)
					}
				})
			}
			if tick >= warmUp {
				calls.Go(func() {
					if take(rules.TenantID(flooder+1+tick%10)) != nil {
						quietFailed.Add(1)
					}
				})
			}
			time.Sleep(time.Millisecond) //nolint:forbidigo // the bubble's clock
		}
		calls.Wait()
		if waited := waitedToBeShed.Load(); waited > shed.Load()/20 {
			t.Errorf("%d of the %d checks that were shed had waited, want few", waited, shed.Load())
		}
		// Ten are decided in a millisecond, one of a quiet tenant.
		if most := int64(9 * (ticks - warmUp)); decided.Load() < most*8/10 {
			t.Errorf("%d checks of the flooder were decided, want nearly the %d that the store has time for",
				decided.Load(), most)
		}
		// After the flood, a burst that is decided in time is not shed.
		time.Sleep(2 * overloadLasts) //nolint:forbidigo // the bubble's clock
		for range 60 {
			calls.Go(func() {
				if err := take(flooder); err != nil {
					t.Errorf("after the flood: %v", err)
				}
			})
		}
		calls.Wait()
		if quietFailed.Load() > 0 || shed.Load() < 70*ticks {
			t.Errorf("%d checks of quiet tenants failed, and %d of %d of the flooder were shed", quietFailed.Load(),
				shed.Load(), 100*ticks)
		}
	})
}

// Calls as heavy as 16 tiers: 4 in each turn, like 16 checks of 4.
func TestHeavyCallsOfATenantTakeTurnsByWeight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const heavyTenant, quiet = 1, 2
		l := newTestCombiner()
		l.Weight = func(check *enforce.BucketCheck) int {
			if check.Tiers[0].Key.Tenant == heavyTenant {
				return 16
			}
			return len(check.Tiers)
		}
		answers := []<-chan error{l.start(-2, 1), l.start(-1, 1)}
		inFlight := []*sentBatch{<-l.batches, <-l.batches}
		l.pace.size = 2 * quantum
		for i := range 20 {
			answers = append(answers, l.startOf(heavyTenant, i, 1))
		}
		answers = append(answers, l.startOf(quiet, 1000, 30))
		if got, want := l.Depth(), 20*16+30*4; got != want {
			t.Errorf("%d tiers wait, want %d", got, want)
		}
		inFlight[0].result <- nil
		next := <-l.batches
		next.mustCarry(t, slices.Concat(numbers(0, 1), numbers(1000, 16), numbers(1, 3)))
		for inFlight = append(inFlight[1:], next); len(inFlight) > 0; inFlight = inFlight[1:] {
			inFlight[0].result <- nil
			synctest.Wait()
			for len(l.batches) > 0 {
				inFlight = append(inFlight, <-l.batches)
			}
		}
		for _, answer := range answers {
			if err := <-answer; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestTheFairQueueIsBoundedAndDropsEmptyFlows(t *testing.T) {
	t.Parallel()
	var l fairQueue
	checks := []enforce.BucketCheck{{Tiers: make([]enforce.Tier, 1024)}}
	pushed := 0
	for l.push(&Call{checks: checks, tenant: 1}, 1024) {
		pushed++
	}
	if want := maxWaiting/1024 + 1; pushed != want {
		t.Errorf("%d calls of a tenant wait, want %d", pushed, want)
	}
	if !l.push(&Call{checks: checks, tenant: 2}, 1024) {
		t.Error("another tenant may not wait")
	}
	for !l.empty() {
		l.pop()
	}
	if len(l.flows) != 0 || l.first != nil || l.last != nil {
		t.Errorf("of an empty queue %d flows are left", len(l.flows))
	}
}

func TestTheDepthOfAQueueIsThatOfAllTenants(t *testing.T) {
	t.Parallel()
	q := newCombiner(nil)
	for tenant := range rules.TenantID(3) {
		for range 2 {
			q.waiting.push(&Call{tenant: tenant}, 4)
		}
	}
	if got := q.Depth(); got != 24 {
		t.Errorf("the depth is %d, want that of 6 checks of 4 tiers", got)
	}
}

func TestAFixedCombinerStaysAsItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size = 256
		var most, inFlight, largest int
		var mu sync.Mutex
		q := New(Options{
			Weight: countTiers, Budget: budget, InFlight: 2, MaxInFlight: 2, FirstBatch: size, MaxBatch: size,
			Send: func(b *Batch) {
				mu.Lock()
				inFlight++
				most, largest = max(most, inFlight), max(largest, b.Tiers)
				mu.Unlock()
				time.Sleep(budget / 5) //nolint:forbidigo // the bubble's clock
				mu.Lock()
				inFlight--
				mu.Unlock()
				for _, c := range b.Calls {
					for i := range c.Sending {
						c.Sending[i].Answered = true
					}
				}
			},
		})
		var calls sync.WaitGroup
		for range 400 {
			calls.Go(func() {
				_, _ = q.Submit([]enforce.BucketCheck{{Tiers: make([]enforce.Tier, 4)}}, time.Now())
			})
		}
		calls.Wait()
		if most != 2 || largest != size || q.pace.size != size {
			t.Errorf("%d batches in flight, the largest of %d tiers, and a limit of %d; want 2, %d and %d", most,
				largest, q.pace.size, size, size)
		}
	})
}
