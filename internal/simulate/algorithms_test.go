package simulate

import (
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

func TestEveryAlgorithmIsSimulatedWithItsCurve(t *testing.T) {
	t.Parallel()
	second := func(n int64) time.Duration { return time.Duration(n) * time.Second }
	arrivals := []Arrival{{second(1), token}, {second(1), token}, {second(1), token}, {second(11), token}}
	window := func(algorithm rules.Algorithm, length time.Duration) func(*rules.Rule) {
		return func(r *rules.Rule) {
			r.Algorithm, r.RatePerSecond, r.Window = algorithm, 0, rules.Window{Length: length}
		}
	}
	for name, test := range map[string]struct {
		change  func(*rules.Rule)
		allowed []bool
		curve   []Point
	}{
		"a window": {
			window(rules.FixedWindow, second(10)),
			[]bool{true, true, false, true},
			[]Point{{0, 2 * token}, {second(1), 2 * token}, {second(1), token}, {second(1), 0}, {second(10), 0}, {second(10), 2 * token}, {second(11), 2 * token}, {second(11), token}, {second(12), token}},
		},
		"a log": {
			window(rules.SlidingWindowLog, second(10)),
			[]bool{true, true, false, true},
			[]Point{{0, 2 * token}, {second(1), 2 * token}, {second(1), token}, {second(1), 0}, {second(11), 0}, {second(11), 2 * token}, {second(11), token}, {second(12), token}},
		},
		"places": {
			func(r *rules.Rule) {
				r.Algorithm, r.RatePerSecond, r.MaxHold = rules.Concurrency, 0, second(5)
			},
			[]bool{true, true, false, true},
			[]Point{{0, 2 * token}, {second(1), 2 * token}, {second(1), token}, {second(1), 0}, {second(6), 0}, {second(6), 2 * token}, {second(11), 2 * token}, {second(11), token}, {second(12), token}},
		},
		"steps": {
			func(r *rules.Rule) { r.RatePerSecond, r.RefillInterval = 0.2, second(5) },
			[]bool{true, true, false, true},
			[]Point{{0, 2 * token}, {second(1), 2 * token}, {second(1), token}, {second(1), 0}, {second(5), 0}, {second(5), token}, {second(10), token}, {second(10), 2 * token}, {second(11), 2 * token}, {second(11), token}, {second(12), token}},
		},
	} {
		c := candidate(1, 2)
		test.change(&c.Rule)
		got := simulate(t, []Candidate{c}, arrivals, second(12))
		for i, allowed := range test.allowed {
			if got.Verdicts[i].Allowed != allowed {
				t.Errorf("%s: arrival %d is answered %+v", name, i, got.Verdicts[i])
			}
		}
		if curve := got.Tiers[0].Curve; !slices.Equal(curve, test.curve) {
			t.Errorf("%s: the curve is\n%v\nwant\n%v", name, curve, test.curve)
		}
	}
}

// TestAQueueTellsItsDelays lets four arrive at once at a queue of two that drains in one second each, and one later.
func TestAQueueTellsItsDelays(t *testing.T) {
	t.Parallel()
	queue := candidate(1, 2)
	queue.Algorithm = rules.LeakyBucket
	arrivals := []Arrival{{0, token}, {0, token}, {0, token}, {time.Second / 2, token}, {time.Second * 3 / 2, token}}
	got := simulate(t, []Candidate{queue}, arrivals, 2*time.Second)
	for i, want := range []Verdict{
		{Allowed: true},
		{Allowed: true, Delay: time.Second},
		{Delay: 2 * time.Second, Wait: time.Second},
		{Delay: time.Second * 3 / 2, Wait: time.Second / 2},
		{Allowed: true, Delay: time.Second / 2},
	} {
		if v := got.Verdicts[i]; v.Allowed != want.Allowed || v.Delay != want.Delay || v.Wait != want.Wait {
			t.Errorf("arrival %d is answered %+v, want %+v", i, v, want)
		}
	}
	if got.LongestDelay != time.Second {
		t.Errorf("the longest delay of an allowed arrival is %v, want 1 s", got.LongestDelay)
	}
}

func TestLongListsMeetFewerArrivals(t *testing.T) {
	t.Parallel()
	log := candidate(1, rules.MaxListed)
	log.Algorithm, log.RatePerSecond, log.Window.Length = rules.SlidingWindowLog, 0, time.Second
	_, err := Run(t.Context(), []Candidate{log, log, log}, make([]Arrival, maxArrivals), 0)
	expectFields(t, "three full logs", err, "rules")
}
