package pgstore_test

import (
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/ruleset"
	"github.com/sluicegate/sluice/internal/traffic"
)

// TestAnEffectLooksAtTheLatest100000Checks: however the checks of the day are spread over time and users, and whatever is asked.
func TestAnEffectLooksAtTheLatest100000Checks(t *testing.T) {
	t.Parallel()
	const most = 100_000
	now := time.Now().UTC().Truncate(time.Minute)
	// record writes blocks of so many checks of a user, a check a millisecond.
	record := func(t *testing.T, w *world, user string, first time.Time, blocks, checks int) {
		t.Helper()
		var all []traffic.Block
		for n := range blocks {
			run := traffic.Run{UserID: user, Endpoint: "/a", Cost: 1_000_000}
			for at := range checks {
				run.Times = append(run.Times, uint32(at))
			}
			begins := first.Add(time.Duration(n*checks) * time.Millisecond)
			b := traffic.Block{
				Tenant: w.ours.ID, Writer: user, Number: begins.UnixMilli(), First: begins, Last: begins.Add(time.Duration(checks-1) * time.Millisecond),
				Stratum: traffic.StratumOfUser(w.ours.ID, user),
			}
			b.SetRuns([]traffic.Run{run})
			all = append(all, b)
		}
		if err := w.WriteTraffic(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	heavy := func(w *world) string { // in the last stratum, so in every sample
		for n := 0; ; n++ {
			if user := "heavy-" + string(rune('a'+n%26)) + time.Duration(n).String(); traffic.StratumOfUser(w.ours.ID, user) == traffic.Strata-1 {
				return user
			}
		}
	}
	shared := replay.Candidate{Config: ruleset.Config{Rules: []rules.Rule{limit(t, 0, "global", "", "all")}}}
	each := replay.Candidate{Config: ruleset.Config{Rules: []rules.Rule{limit(t, 0, "user:{user_id}", "", "each")}}}
	for name, test := range map[string]struct {
		record    func(t *testing.T, w *world)
		candidate func(w *world) *replay.Candidate
	}{
		"a burst at the end": {func(t *testing.T, w *world) {
			record(t, w, "42", now.Add(-20*time.Hour), 10, 1000)
			record(t, w, "42", now.Add(-10*time.Minute), 12, 30_000)
		}, func(*world) *replay.Candidate { return &shared }},
		"one heavy user": {func(t *testing.T, w *world) {
			record(t, w, heavy(w), now.Add(-10*time.Minute), 12, 30_000)
		}, func(*world) *replay.Candidate { return &each }},
		"an override of a heavy user": {func(t *testing.T, w *world) {
			record(t, w, "42", now.Add(-10*time.Minute), 12, 30_000)
		}, func(w *world) *replay.Candidate {
			override := rules.Override{RuleID: w.ours.user.ID, UserID: "42", RatePerSecond: 1, RateUnit: rules.PerSecond, Burst: 5}
			return &replay.Candidate{Config: ruleset.Config{Overrides: []ruleset.ConfigOverride{{Rule: w.ours.user.Identity(), Override: override}}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.recordFor(t, 7)
			test.record(t, w)
			result := must(replay.Effect(t.Context(), w, w.ours.ID, test.candidate(w), now))(t)
			last := now.Add(-10*time.Minute + 12*30*time.Second - time.Millisecond)
			first := last.Add(-(most - 1) * time.Millisecond)
			if result.Read != most || !result.First.Equal(first) || !result.Last.Equal(last) {
				t.Errorf("it looked at %d checks from %s to %s, want the latest %d from %s to %s", result.Read, result.First, result.Last, most, first, last)
			}
		})
	}
}
