package replay_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
)

func limit(rate float64, burst int64, changes ...func(*rules.Rule)) rules.Rule {
	r := rules.Rule{
		Algorithm: rules.TokenBucket, RatePerSecond: rate, Burst: burst, Mode: rules.ModeEnforce,
		Action: rules.ActionLimit,
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func at(seconds ...float64) (arrivals []replay.Arrival) {
	for _, s := range seconds {
		arrivals = append(arrivals, replay.Arrival{At: time.Duration(s * float64(time.Second)), Cost: enforce.Token})
	}
	return arrivals
}

func levelAt(levels []replay.Level, moment time.Duration) float64 {
	tokens := func(l replay.Level) float64 { return float64(l.Tokens) / float64(enforce.Token) }
	i := slices.IndexFunc(levels, func(l replay.Level) bool { return l.At > moment })
	if i < 0 {
		return tokens(levels[len(levels)-1])
	}
	a, b := levels[i-1], levels[i]
	return tokens(a) + (tokens(b)-tokens(a))*float64(moment-a.At)/float64(b.At-a.At)
}

func TestEveryAlgorithmIsSimulatedWithItsLevels(t *testing.T) {
	t.Parallel()
	window := func(algorithm rules.Algorithm) func(*rules.Rule) {
		return func(r *rules.Rule) {
			r.Algorithm, r.RatePerSecond, r.Window = algorithm, 0, rules.Window{Length: 10 * time.Second}
		}
	}
	// Two tokens. Three checks after one second, one after eleven and one after twelve.
	for name, test := range map[string]struct {
		rule    rules.Rule
		allowed []bool
		levels  map[float64]float64
	}{
		"a token bucket": {
			limit(0.5, 2),
			[]bool{true, true, false, true, true},
			map[float64]float64{0: 2, 0.9: 2, 1: 0, 3: 1, 5.1: 2, 10.9: 2, 11: 1, 12: 0.5},
		},
		"a window": {
			limit(0, 2, window(rules.FixedWindow)),
			[]bool{true, true, false, true, true},
			map[float64]float64{0: 2, 1: 0, 9.9: 0, 10.1: 2, 11: 1, 12: 0},
		},
		"a log": {
			limit(0, 2, window(rules.SlidingWindowLog)),
			[]bool{true, true, false, true, true},
			map[float64]float64{0: 2, 1: 0, 10.9: 0, 11: 1, 12: 0},
		},
		"a sliding window": {
			limit(0, 2, window(rules.SlidingWindow)),
			[]bool{true, true, false, false, false},
			map[float64]float64{0: 2, 1: 0, 9.9: 0, 11: 0, 12: 0},
		},
		"places": {
			limit(0, 2, func(r *rules.Rule) { r.Algorithm, r.MaxHold = rules.Concurrency, 5*time.Second }),
			[]bool{true, true, false, true, true},
			map[float64]float64{0: 2, 1: 0, 5.9: 0, 6.1: 2, 11: 1, 12: 0},
		},
		"steps": {
			limit(0.2, 2, func(r *rules.Rule) { r.RefillInterval = 5 * time.Second }),
			[]bool{true, true, false, true, true},
			map[float64]float64{0: 2, 1: 0, 4.9: 0, 5.1: 1, 9.9: 1, 10.1: 2, 11: 1, 12: 0},
		},
	} {
		got, err := replay.Simulate(t.Context(), []rules.Rule{test.rule}, at(1, 1, 1, 11, 12))
		if err != nil {
			t.Fatal(err)
		}
		for i, allowed := range test.allowed {
			if got.Checks[i].Allowed != allowed {
				t.Errorf("%s: arrival %d is answered %+v", name, i, got.Checks[i])
			}
		}
		for seconds, want := range test.levels {
			if level := levelAt(got.Levels[0], at(seconds)[0].At); math.Abs(level-want) > 0.01 {
				t.Errorf("%s: after %v s the bucket holds %v, want %v", name, seconds, level, want)
			}
		}
	}
}

func TestASimulatedQueueTellsItsDelays(t *testing.T) {
	t.Parallel()
	queue := limit(1, 2, func(r *rules.Rule) { r.Algorithm = rules.LeakyBucket })
	got, err := replay.Simulate(t.Context(), []rules.Rule{queue}, at(0, 0, 0, 0.5, 1.5))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []replay.Simulated{
		{Allowed: true},
		{Allowed: true, Delay: time.Second},
		{Delay: 2 * time.Second, RetryAfter: time.Second},
		{Delay: time.Second * 3 / 2, RetryAfter: time.Second / 2},
		{Allowed: true, Delay: time.Second / 2},
	} {
		if c := got.Checks[i]; c.Allowed != want.Allowed || c.Delay != want.Delay || c.RetryAfter != want.RetryAfter {
			t.Errorf("arrival %d is answered %+v, want %+v", i, c, want)
		}
	}
}

func TestSimulatedRulesDecideAsRulesDo(t *testing.T) {
	t.Parallel()
	shadow := func(r *rules.Rule) { r.Mode = rules.ModeShadow }
	block := rules.Rule{Mode: rules.ModeEnforce, Action: rules.ActionBlock}
	bypass := rules.Rule{Mode: rules.ModeEnforce, Action: rules.ActionBypass}
	for name, test := range map[string]struct {
		candidates []rules.Rule
		arrivals   []replay.Arrival
		want       []replay.Simulated
	}{
		"the longest wait decides": {
			[]rules.Rule{limit(1, 1), limit(0.5, 1), limit(1, 1)},
			at(0, 0),
			[]replay.Simulated{
				{Allowed: true, Deciding: 1},
				{Reason: enforce.LimitExceeded, Deciding: 1, RetryAfter: 2 * time.Second},
			},
		},
		"a cost above the burst has no wait": {
			[]rules.Rule{limit(1, 10), limit(1, 1)},
			[]replay.Arrival{{Cost: 2 * enforce.Token}},
			[]replay.Simulated{{Reason: enforce.CostExceedsLimit, Deciding: 1}},
		},
		"a cost of 0 looks": {
			[]rules.Rule{limit(1, 1)},
			[]replay.Arrival{{}, {Cost: enforce.Token}},
			[]replay.Simulated{{Allowed: true}, {Allowed: true}},
		},
		"a block denies": {
			[]rules.Rule{limit(1, 1), block}, at(0), []replay.Simulated{{Reason: enforce.Blocked, Deciding: 1}},
		},
		"a bypass passes": {
			[]rules.Rule{limit(1, 1), block, bypass}, at(0), []replay.Simulated{{Allowed: true, Deciding: -1}},
		},
		"shadow rules never decide": {
			[]rules.Rule{limit(1, 1, shadow), limit(1, 3)},
			at(0, 0),
			[]replay.Simulated{{Allowed: true, Deciding: 1}, {Allowed: true, Deciding: 1}},
		},
		"arrivals are put in order of time": {
			[]rules.Rule{limit(1, 1)},
			at(0.5, 0),
			[]replay.Simulated{
				{Allowed: true},
				{Reason: enforce.LimitExceeded, RetryAfter: time.Second / 2},
			},
		},
	} {
		got, err := replay.Simulate(t.Context(), test.candidates, test.arrivals)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range test.want {
			check := got.Checks[i]
			check.Arrival = replay.Arrival{}
			if check != want {
				t.Errorf("%s: arrival %d is answered %+v, want %+v", name, i, check, want)
			}
		}
	}
}

func TestASimulationEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := replay.Simulate(ended, []rules.Rule{limit(1, 1)}, at(0)); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}
