package pgstore_test

import (
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

var limitsOfAlgorithms = map[string]func(*rules.Rule){
	"steps":  func(r *rules.Rule) { r.RefillInterval = 10 * time.Second },
	"queue":  func(r *rules.Rule) { r.Algorithm = rules.LeakyBucket },
	"window": func(r *rules.Rule) { window(r, rules.FixedWindow, rules.Window{Length: 90 * time.Second}) },
	"quota": func(r *rules.Rule) {
		window(r, rules.FixedWindow, rules.Window{Calendar: rules.CalendarMonth, Zone: "Europe/Berlin", StartDay: 31})
		r.NotifyAt = []int{80, 100}
	},
	"sliding": func(r *rules.Rule) { window(r, rules.SlidingWindow, rules.Window{Length: rules.MaxWindow}) },
	"log":     func(r *rules.Rule) { window(r, rules.SlidingWindowLog, rules.Window{Length: time.Second}) },
	"places": func(r *rules.Rule) {
		r.Algorithm, r.RatePerSecond, r.Burst, r.MaxHold = rules.Concurrency, 0, rules.MaxListed, rules.MaxHold
	},
}

func window(r *rules.Rule, algorithm rules.Algorithm, window rules.Window) {
	r.Algorithm, r.Window, r.RatePerSecond = algorithm, window, 0
}

func TestLimitsOfAllAlgorithmsAreStoredEditedPromotedAndReverted(t *testing.T) {
	t.Parallel()
	for name, change := range limitsOfAlgorithms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ctx, ours := t.Context(), w.ours.ID
			candidate := limit(t, ours, "user:{user_id}", "", "candidate")
			candidate.Mode = rules.ModeShadow
			change(&candidate)
			if wrong := candidate.Validate(nil); len(wrong) > 0 {
				t.Fatal(wrong)
			}
			created := must(w.CreateRule(ctx, candidate))(t)
			sameLimit(t, created, candidate)
			sameLimit(t, must(w.Rule(ctx, ours, created.ID))(t), candidate)
			found := false
			for _, polled := range w.poll(t, nil).Rules {
				if polled.ID == created.ID {
					found = true
					sameLimit(t, polled, candidate)
				}
			}
			if !found {
				t.Error("a poll does not read the rule")
			}

			before, since := w.content(t), w.latest(t)
			promoted := must(w.PromoteRule(ctx, ours, created.ID, rules.AnyVersion, w.ours.user.ID,
				rules.AnyVersion))(t)
			sameLimit(t, promoted, candidate)
			if !promoted.InForceSince.After(w.ours.user.InForceSince) {
				t.Errorf("promoted, it is in force since %s, and the limit before since %s", promoted.InForceSince,
					w.ours.user.InForceSince)
			}
			_, entries := w.written(t, ours, since)
			must(w.Revert(ctx, ours, entries[0].ID, true))(t)
			if reverted := w.content(t); reverted != before {
				t.Errorf("it was\n%s\nand is, reverted,\n%s", before, reverted)
			}
		})
	}
}

func sameLimit(t *testing.T, got, want rules.Rule) {
	t.Helper()
	if got.DescribeLimit() != want.DescribeLimit() || !got.Limit().SameAmounts(want.Limit()) {
		t.Errorf("the limit is %s, %+v; want %s, %+v", got.DescribeLimit(), got.Limit(), want.DescribeLimit(),
			want.Limit())
	}
	same(t, got.NotifyAt, want.NotifyAt)
	same(t, got.Window, want.Window)
}

func TestEachPartOfALimitComesIntoForceLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, test := range map[string]struct {
		from   string
		change func(*rules.Rule)
		later  bool
	}{
		"an algorithm of one shape": {
			"steps",
			func(r *rules.Rule) { r.Algorithm, r.RefillInterval = rules.LeakyBucket, 0 }, true,
		},
		"another window alike": {"sliding", func(r *rules.Rule) { r.Algorithm = rules.FixedWindow }, true},
		"a window":             {"window", func(r *rules.Rule) { r.Window.Length = time.Minute }, true},
		"a unit of the calendar": {
			"quota",
			func(r *rules.Rule) { r.Window.Calendar, r.Window.StartDay = rules.CalendarWeek, 1 }, true,
		},
		"a zone":            {"quota", func(r *rules.Rule) { r.Window.Zone = "" }, true},
		"a day":             {"quota", func(r *rules.Rule) { r.Window.StartDay = 30 }, true},
		"an interval":       {"steps", func(r *rules.Rule) { r.RefillInterval = time.Minute }, true},
		"no interval":       {"steps", func(r *rules.Rule) { r.RefillInterval = 0 }, true},
		"a time to hold":    {"places", func(r *rules.Rule) { r.MaxHold = time.Minute }, true},
		"a burst":           {"places", func(r *rules.Rule) { r.Burst = 1 }, true},
		"shares to note":    {"quota", func(r *rules.Rule) { r.NotifyAt = []int{50} }, false},
		"no shares to note": {"quota", func(r *rules.Rule) { r.NotifyAt = nil }, false},
		"a description":     {"quota", func(r *rules.Rule) { r.Description = "new" }, false},
	} {
		rule := limit(t, w.ours.ID, "global", "", name)
		limitsOfAlgorithms[test.from](&rule)
		rule = must(w.CreateRule(t.Context(), rule))(t)
		changed := rule
		test.change(&changed)
		changed = must(w.UpdateRule(t.Context(), changed))(t)
		if later := changed.InForceSince.After(rule.InForceSince); later != test.later || changed.Version != 2 {
			t.Errorf("%s: version %d, in force since %s, before since %s", name, changed.Version, changed.InForceSince,
				rule.InForceSince)
		}
	}
}

func TestTheDatabaseRefusesLimitsThatCannotWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, test := range map[string]struct {
		from   string
		change func(*rules.Rule)
	}{
		"an unknown algorithm":     {"queue", func(r *rules.Rule) { r.Algorithm = "gcra" }},
		"a queue without a rate":   {"queue", func(r *rules.Rule) { r.RatePerSecond = 0 }},
		"a queue that is too slow": {"queue", func(r *rules.Rule) { r.RatePerSecond, r.Burst = 1e-6, 1e6 }},
		"a window with a rate":     {"window", func(r *rules.Rule) { r.RatePerSecond = 1 }},
		"a window of no length":    {"window", func(r *rules.Rule) { r.Window = rules.Window{} }},
		"a window of both":         {"window", func(r *rules.Rule) { r.Window.Calendar = rules.CalendarDay }},
		"a window that is too long": {
			"window",
			func(r *rules.Rule) { r.Window.Length = rules.MaxWindow + time.Second },
		},
		"a zone without a calendar": {"window", func(r *rules.Rule) { r.Window.Zone = "UTC" }},
		"a day without a calendar":  {"window", func(r *rules.Rule) { r.Window.StartDay = 1 }},
		"a month's 32nd":            {"quota", func(r *rules.Rule) { r.Window.StartDay = 32 }},
		"a week's eighth day": {
			"quota",
			func(r *rules.Rule) { r.Window.Calendar, r.Window.StartDay = rules.CalendarWeek, 8 },
		},
		"a day's day": {
			"quota",
			func(r *rules.Rule) { r.Window.Calendar, r.Window.StartDay = rules.CalendarDay, 1 },
		},
		"a year": {
			"quota",
			func(r *rules.Rule) { r.Window.Calendar, r.Window.StartDay = "year", 0 },
		},
		"a sliding month": {
			"quota",
			func(r *rules.Rule) { r.Algorithm, r.NotifyAt = rules.SlidingWindow, nil },
		},
		"a share above the limit":  {"quota", func(r *rules.Rule) { r.NotifyAt = []int{101} }},
		"a share of nothing":       {"quota", func(r *rules.Rule) { r.NotifyAt = []int{0} }},
		"too many shares":          {"quota", func(r *rules.Rule) { r.NotifyAt = []int{1, 2, 3, 4, 5, 6} }},
		"a share of a log":         {"log", func(r *rules.Rule) { r.NotifyAt = []int{80} }},
		"too long a log":           {"log", func(r *rules.Rule) { r.Burst = rules.MaxListed + 1 }},
		"too many places":          {"places", func(r *rules.Rule) { r.Burst = rules.MaxListed + 1 }},
		"places that are held on":  {"places", func(r *rules.Rule) { r.MaxHold = 0 }},
		"places held for too long": {"places", func(r *rules.Rule) { r.MaxHold += time.Second }},
		"places with a window":     {"places", func(r *rules.Rule) { r.Window.Length = time.Second }},
		"a queue that holds":       {"queue", func(r *rules.Rule) { r.MaxHold = time.Second }},
		"a queue in steps":         {"queue", func(r *rules.Rule) { r.RefillInterval = time.Second }},
		"steps that are too far": {
			"steps",
			func(r *rules.Rule) { r.RefillInterval = rules.MaxWindow + time.Second },
		},
		"a block with a window": {"window", func(r *rules.Rule) { r.Action, r.Burst = rules.ActionBlock, 0 }},
		"a block with places":   {"places", func(r *rules.Rule) { r.Action, r.Burst = rules.ActionBlock, 0 }},
		"a block with steps": {
			"steps",
			func(r *rules.Rule) { r.Action, r.RatePerSecond, r.Burst = rules.ActionBlock, 0, 0 },
		},
		"a window that gives naught": {"window", func(r *rules.Rule) { r.Burst = 0 }},
	} {
		rule := limit(t, w.ours.ID, "global", "", name)
		limitsOfAlgorithms[test.from](&rule)
		test.change(&rule)
		if wrong := rule.Validate(nil); len(wrong) == 0 {
			t.Errorf("%s: the domain accepts it", name)
		}
		if created, err := w.CreateRule(t.Context(), rule); err == nil {
			t.Errorf("%s: stored as %+v", name, created)
		}
	}
}

func TestAnOverrideOfALimitWithoutARateHasNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rule := limit(t, w.ours.ID, "user:{user_id}", "", "quota")
	limitsOfAlgorithms["quota"](&rule)
	rule = must(w.CreateRule(t.Context(), rule))(t)
	override := overrideOf(rule, "42")
	override.RatePerSecond, override.Burst = 0, rules.MaxBurst
	stored := must(w.PutOverride(t.Context(), override, rules.AnyVersion))(t)
	if stored.RatePerSecond != 0 || stored.Burst != rules.MaxBurst {
		t.Errorf("stored as %+v", stored)
	}
	override.RatePerSecond = 1e-7
	if _, err := w.PutOverride(t.Context(), override, rules.AnyVersion); err == nil {
		t.Error("a rate below the least is stored")
	}
}
