package rules

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestHowARuleAdaptsIsValidated(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*Rule)
		want   []string // what each error begins with
	}{
		"both targets":           {func(*Rule) {}, nil},
		"a latency":              {func(r *Rule) { r.Adapt.ErrorPercent = 0 }, nil},
		"errors":                 {func(r *Rule) { r.Adapt.P99 = 0 }, nil},
		"the ends of all ranges": {func(r *Rule) { r.Adapt = Adapt{"b", 1, MaxP99, MinErrorPercent} }, nil},
		"their other ends": {func(r *Rule) {
			r.Adapt = Adapt{
				strings.Repeat("b", 64), 99, time.Millisecond,
				MaxErrorPercent,
			}
		}, nil},
		"a queue":         {func(r *Rule) { r.Algorithm = LeakyBucket }, nil},
		"tokens in steps": {func(r *Rule) { r.RefillInterval = 10 * time.Second }, nil},
		"a shadow rule":   {func(r *Rule) { r.Mode = ModeShadow }, nil},
		"no target": {
			func(r *Rule) { r.Adapt.P99, r.Adapt.ErrorPercent = 0, 0 },
			[]string{"adapt: must have a target"},
		},
		"no backend": {
			func(r *Rule) { r.Adapt.Backend = "" },
			[]string{"adapt.backend: must be 1 to 64"},
		},
		"a backend of two words": {
			func(r *Rule) { r.Adapt.Backend = "a b" },
			[]string{"adapt.backend: must be 1 to 64"},
		},
		"a long backend": {
			func(r *Rule) { r.Adapt.Backend = strings.Repeat("b", 65) },
			[]string{"adapt.backend: must be 1 to 64"},
		},
		"no floor": {
			func(r *Rule) { r.Adapt.FloorPercent = 0 },
			[]string{"adapt.floor_percent: must be a whole percent from 1 to 99, got 0"},
		},
		"the whole rate as a floor": {
			func(r *Rule) { r.Adapt.FloorPercent = 100 },
			[]string{"adapt.floor_percent: must be a whole percent from 1 to 99, got 100"},
		},
		"a floor below the least rate": {
			func(r *Rule) { r.RatePerSecond, r.Burst = 2*MinRate, 1 },
			[]string{"adapt.floor_percent: must be at least 50"},
		},
		"a floor that takes years": {
			func(r *Rule) { r.RatePerSecond, r.Burst = 10, 157_680_000 },
			[]string{"adapt.floor_percent: must be at least 50"},
		},
		"no rate that could be lower": {
			func(r *Rule) { r.RatePerSecond, r.Burst = MinRate, 1 },
			[]string{"adapt.floor_percent: must be left out"},
		},
		"a latency of parts": {
			func(r *Rule) { r.Adapt.P99 = time.Microsecond },
			[]string{"adapt.p99_ms: must be whole milliseconds from 1 to 60000"},
		},
		"a negative latency": {func(r *Rule) { r.Adapt.P99 = -time.Millisecond }, []string{"adapt.p99_ms:"}},
		"a long latency": {
			func(r *Rule) { r.Adapt.P99 = MaxP99 + time.Millisecond },
			[]string{"adapt.p99_ms:"},
		},
		"few errors": {
			func(r *Rule) { r.Adapt.ErrorPercent = 0.001 },
			[]string{"adapt.error_percent: must be from 0.01 to 50"},
		},
		"many errors": {func(r *Rule) { r.Adapt.ErrorPercent = 51 }, []string{"adapt.error_percent:"}},
		"errors that are no number": {
			func(r *Rule) { r.Adapt.ErrorPercent = math.NaN() },
			[]string{"adapt.error_percent:"},
		},
		"all that is wrong": {
			func(r *Rule) { r.Adapt = Adapt{ErrorPercent: -1} },
			[]string{"adapt.backend:", "adapt.floor_percent:", "adapt.error_percent:"},
		},
		"a window": {func(r *Rule) {
			r.Algorithm, r.RatePerSecond, r.Window = FixedWindow, 0,
				Window{Length: time.Minute}
		}, []string{"adapt: must be left out: a fixed_window has no rate"}},
		"a log": {func(r *Rule) {
			r.Algorithm, r.RatePerSecond, r.Window = SlidingWindowLog, 0, Window{Length: time.Minute}
		}, []string{"adapt: must be left out: a sliding_window_log"}},
		"places": {func(r *Rule) {
			r.Algorithm, r.RatePerSecond, r.MaxHold = Concurrency, 0,
				time.Minute
		}, []string{"adapt: must be left out: a concurrency"}},
		"a block": {
			func(r *Rule) { r.Action, r.RatePerSecond, r.Burst = ActionBlock, 0, 0 },
			[]string{"adapt: must be left out: a block rule"},
		},
		"a bypass": {
			func(r *Rule) { r.Action, r.RatePerSecond, r.Burst = ActionBypass, 0, 0 },
			[]string{"adapt: must be left out: a bypass rule"},
		},
		"nothing, for a rule without one": {func(r *Rule) { r.Adapt = Adapt{} }, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule := limitRule(t, "user:{user_id}", 10, 50)
			rule.Adapt = Adapt{Backend: "search", FloorPercent: 20, P99: 300 * time.Millisecond, ErrorPercent: 1}
			test.change(&rule)
			errs := rule.Validate(map[string]bool{rule.Plan: true})
			if len(errs) != len(test.want) {
				t.Fatalf("got %v, want %q", errs, test.want)
			}
			for i, err := range errs {
				if text := err.Field + ": " + err.Message; !strings.HasPrefix(text, test.want[i]) {
					t.Errorf("got %q, want %q", text, test.want[i])
				}
			}
		})
	}
}
