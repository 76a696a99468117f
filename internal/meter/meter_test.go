package meter_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/meter"
)

// pass lets time pass, which synctest does when everybody waits.
func pass(d time.Duration) { <-time.After(d) }

// processor is one processor that works for nobody else.
func processor() *meter.Processors {
	began := time.Now()
	return meter.NewProcessors(func() time.Duration { return time.Since(began) })
}

func TestWaitsAndTheNetworkAreNoWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, m := meter.With(t.Context(), processor())
		want := func(want time.Duration) {
			t.Helper()
			if got := m.Worked(); got != want {
				t.Errorf("worked for %v, want %v", got, want)
			}
		}
		pass(3 * time.Millisecond) // computes
		ended := meter.Wait(ctx)
		pass(time.Second)
		ended()
		answered := meter.Ask(ctx)
		pass(10 * time.Millisecond)
		answered(8 * time.Millisecond)
		want(11 * time.Millisecond)
		// Two queries in parallel keep two processors busy.
		one, two := meter.Ask(ctx), meter.Ask(ctx)
		pass(10 * time.Millisecond)
		one(10 * time.Millisecond)
		pass(time.Millisecond)
		two(11 * time.Millisecond)
		want(32 * time.Millisecond)
		// A query may have been faster than usual.
		meter.Ask(ctx)(-40 * time.Millisecond)
		want(-8 * time.Millisecond)
		pass(time.Millisecond)
		m.End()
		pass(time.Second)
		meter.Wait(ctx)()
		pass(time.Second)
		want(-7 * time.Millisecond)
		meter.Wait(t.Context())() // without a Meter
		meter.Ask(t.Context())(time.Second)
	})
}

// TestAQuietRequestCostsTheSameBesideBusyOnes has one processor, which all that compute take turns on. The clock's rate is
// a mean, which is too fast while more requests compute than usual; most so beside a single one.
func TestAQuietRequestCostsTheSameBesideBusyOnes(t *testing.T) {
	t.Parallel()
	const requests, computes = 200, 3 * time.Millisecond
	alone := quietWork(t, requests, computes, 0)
	if want := requests * computes; alone != want {
		t.Errorf("alone they work for %v, want %v", alone, want)
	}
	for _, busy := range []int{1, 3, 20} {
		beside := quietWork(t, requests, computes, busy)
		if ratio := float64(beside) / float64(alone); ratio < 0.9 || ratio > 1.5 {
			t.Errorf("beside %d requests that always compute, a request costs %.2f times as much as alone", busy, ratio)
		}
	}
}

// quietWork returns the work of requests that compute for some time each, beside others that compute all the time.
func quietWork(t *testing.T, requests int, computes time.Duration, busy int) (worked time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var idle time.Duration
		processors := meter.NewProcessors(func() time.Duration { return time.Since(began) - idle })
		var others []*meter.Meter
		for range busy {
			_, m := meter.With(t.Context(), processors)
			others = append(others, m)
		}
		for range requests {
			_, m := meter.With(t.Context(), processors)
			pass(computes * time.Duration(1+busy))
			worked += m.Worked()
			m.End()
			pass(10 * time.Millisecond)
			if busy == 0 {
				idle += 10 * time.Millisecond
			}
		}
		used := time.Since(began) - idle
		all := worked
		for _, m := range others {
			all += m.Worked()
			m.End()
		}
		if ratio := float64(all) / float64(used); ratio < 0.9 || ratio > 1.1 {
			t.Errorf("beside %d: requests are charged for %.2f of the processor time", busy, ratio)
		}
	})
	return worked
}

func TestOtherWorkOfTheProcessIsNotBilledBeyondTheTimeThatPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		processors := meter.NewProcessors(func() time.Duration { return 8 * time.Since(began) })
		_, m := meter.With(t.Context(), processors)
		for range 100 {
			pass(10 * time.Millisecond)
			m.Worked()
		}
		if got := m.Worked(); got != time.Second {
			t.Errorf("a second of work is %v", got)
		}
	})
}

func TestUsedGrowsByWhatAProcessComputes(t *testing.T) {
	t.Parallel()
	before := meter.Used()
	for x := 0; meter.Used() < before+20*time.Millisecond; x++ {
		_ = x * x // computes until the kernel has counted it
	}
}

func TestAQueryCostsWhatItTakesLongerThanALookup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var usual meter.Usual
		lookup := func(took time.Duration, isAnswered bool) (work time.Duration) {
			q := usual.Begin(true)
			pass(took)
			return usual.End(q, isAnswered)
		}
		query := func(took, want time.Duration) {
			t.Helper()
			q := usual.Begin(false)
			pass(took)
			if got := usual.End(q, true); got != want {
				t.Errorf("a query of %d costs %d, want %d", took, got, want)
			}
		}
		query(9, 9) // before any lookup
		lookup(160, true)
		query(200, 40)
		query(100, -60) // was lucky
		lookup(320, true)
		query(200, 30)     // the mean is 170
		lookup(500, false) // is no answer
		query(200, 30)
		lookup(10, true)
		query(200, 40) // and 160
		// One that takes very long is no work, and says little of the next ones.
		if got := lookup(time.Hour, true); got != 0 {
			t.Errorf("a lookup that was held up costs %v", got)
		}
		query(time.Second, time.Second-160-50*time.Millisecond/16)
	})
}

// TestAQueryThatIsHeldUpCostsNoMoreThanItsWork has a database that stands still for a second, while a lookup is under way.
func TestAQueryThatIsHeldUpCostsNoMoreThanItsWork(t *testing.T) {
	t.Parallel()
	const trip, works, stall = 2 * time.Millisecond, 20 * time.Millisecond, time.Second
	for _, endsFirst := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var usual meter.Usual
			for range 100 {
				q := usual.Begin(true)
				pass(trip)
				usual.End(q, true)
			}
			lookup := usual.Begin(true)
			q := usual.Begin(false)
			pass(stall)
			if endsFirst {
				usual.End(lookup, true)
			}
			pass(works + trip)
			if got := usual.End(q, true); got < 0 || got > works+trip {
				t.Errorf("lookup ends first %t: the query costs %v, want %v", endsFirst, got, works)
			}
			if !endsFirst {
				usual.End(lookup, true)
			}
			// One that begins later was not held up, though lookups were slow meanwhile.
			q = usual.Begin(false)
			slow := usual.Begin(true)
			pass(stall / 3)
			usual.End(slow, true)
			pass(stall - stall/3 + trip)
			if got := usual.End(q, true); got < stall*95/100 {
				t.Errorf("lookup ends first %t: a query that works for %v costs %v", endsFirst, stall, got)
			}
		})
	}
}

// TestDelaysOfAllQueriesAreNobodysWork delays each query by chance, as busy processors and a busy network do. Each request
// has two lookups and a query that works for 2 ms.
func TestDelaysOfAllQueriesAreNobodysWork(t *testing.T) {
	t.Parallel()
	const requests, works = 20_000, 2 * time.Millisecond
	for _, delay := range []time.Duration{0, 2 * time.Millisecond, 20 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var usual meter.Usual
			dice := rand.New(rand.NewPCG(1, 2)) // the same in each run
			query := func(isLookup bool, work time.Duration) time.Duration {
				q := usual.Begin(isLookup)
				pass(work + delay/2 + time.Duration(dice.ExpFloat64()*float64(delay/2)))
				return usual.End(q, true)
			}
			var cost time.Duration
			for range requests {
				for range 2 {
					cost += query(true, 0)
				}
				cost += query(false, works)
			}
			if each := cost / requests; each < works*8/10 || each > works*12/10 {
				t.Errorf("with delays of %v a request costs %v, want %v", delay, each, works)
			}
		})
	}
}

// TestAMeterIsSafeForParallelQueries is for the race detector.
func TestAMeterIsSafeForParallelQueries(t *testing.T) {
	t.Parallel()
	ctx, m := meter.With(t.Context(), meter.NewProcessors(meter.Used))
	var queries sync.WaitGroup
	for range 8 {
		queries.Go(func() {
			for range 100 {
				meter.Wait(ctx)()
				meter.Ask(ctx)(time.Second)
			}
		})
	}
	queries.Wait()
	m.End()
	if got := m.Worked(); got < 800*time.Second {
		t.Errorf("800 queries of a second cost %v", got)
	}
}
