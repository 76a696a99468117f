package pgstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/traffic"
)

const oneToken = 1_000_000

func everyMillisecond(n int) (times []uint32) {
	for at := range n {
		times = append(times, uint32(at))
	}
	return times
}

func (w *world) userOf(stratum int) string {
	for n := 0; ; n++ {
		if user := fmt.Sprint("user-", n); traffic.StratumOfUser(w.ours.ID, user) == stratum {
			return user
		}
	}
}

func (w *world) writeBlocks(t *testing.T, like traffic.Block, blocks int, run traffic.Run) {
	t.Helper()
	length := time.Duration(run.Times[len(run.Times)-1]+1) * time.Millisecond
	var all []traffic.Block
	for n := range blocks {
		b := like
		b.Tenant, b.First = w.ours.ID, like.First.Add(time.Duration(n)*length)
		b.Number, b.Last, b.Seen = b.First.UnixMilli(), b.First.Add(length-time.Millisecond), int64(len(run.Times))
		b.SetRuns([]traffic.Run{run})
		all = append(all, b)
	}
	if err := w.WriteTraffic(t.Context(), all); err != nil {
		t.Fatal(err)
	}
}

func TestAnEffectLooksAtTheLatest100000Checks(t *testing.T) {
	t.Parallel()
	const most = 100_000
	now := time.Now().UTC().Truncate(time.Minute)
	record := func(t *testing.T, w *world, user string, first time.Time, blocks, checks int) {
		t.Helper()
		run := traffic.Run{UserID: user, Endpoint: "/a", Cost: oneToken, Times: everyMillisecond(checks)}
		w.writeBlocks(t, traffic.Block{Writer: user, First: first, Stratum: traffic.StratumOfUser(w.ours.ID, user)},
			blocks, run)
	}
	heavy := func(w *world) string { return w.userOf(traffic.Strata - 1) } // in every sample
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
			override := rules.Override{
				RuleID: w.ours.user.ID, UserID: "42", RatePerSecond: 1,
				RateUnit: rules.PerSecond, Burst: 5,
			}
			return &replay.Candidate{Config: ruleset.Config{
				Overrides: []ruleset.ConfigOverride{{Rule: w.ours.user.Identity(), Override: override}},
			}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.recordFor(t, 7)
			test.record(t, w)
			result := must(replay.Effect(t.Context(), w, w.ours.ID, test.candidate(w), replay.EffectChecks, now))(t)
			last := now.Add(-10*time.Minute + 12*30*time.Second - time.Millisecond)
			first := last.Add(-(most - 1) * time.Millisecond)
			if result.Read != most || !result.First.Equal(first) || !result.Last.Equal(last) {
				t.Errorf("it looked at %d checks from %s to %s, want the latest %d from %s to %s", result.Read,
					result.First, result.Last, most, first, last)
			}
		})
	}
}

func TestAnEffectIsOfTheSampleHoweverMuchIsBesideIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.recordFor(t, 7)
	now := time.Now().UTC().Truncate(time.Minute)
	const level, sampled = 1, 5000
	inSample, outside := w.userOf(2), w.userOf(0)
	checks := traffic.Run{UserID: inSample, Endpoint: "/a", Cost: oneToken}
	for at := range 50 {
		checks.Times = append(checks.Times, uint32(at*1000))
	}
	extras := traffic.Run{
		UserID: outside, Endpoint: "/a", Cost: oneToken, Decider: 1,
		Flags: traffic.Denied | traffic.Extra, Times: everyMillisecond(30_000),
	}
	w.writeBlocks(t, traffic.Block{
		Writer: "extras", First: now.Add(-30 * time.Minute),
		Stratum: traffic.StratumOfExtras, Level: level,
	}, 40, extras)
	sums := traffic.Run{Endpoint: "/a", Flags: traffic.Sum}
	for second := range 300 {
		sums.Times, sums.Costs = append(sums.Times, uint32(second*1000)), append(sums.Costs, 100*oneToken)
	}
	for hour := range 20 {
		begins := now.Add(-time.Duration(hour+1) * time.Hour)
		w.writeBlocks(t, traffic.Block{Writer: "sample", First: begins, Stratum: 2, Level: level}, sampled/20/50,
			checks)
		w.writeBlocks(t, traffic.Block{Writer: "sums", First: begins, Stratum: traffic.StratumOfSums, Level: level}, 12,
			sums)
	}
	each := replay.Candidate{Config: ruleset.Config{Rules: []rules.Rule{limit(t, 0, "user:{user_id}", "", "each")}}}
	all := replay.Candidate{Config: ruleset.Config{Rules: []rules.Rule{limit(t, 0, "global", "", "all")}}}
	override := rules.Override{
		RuleID: w.ours.user.ID, UserID: inSample, RatePerSecond: 1, RateUnit: rules.PerSecond,
		Burst: 5,
	}
	raise := replay.Candidate{Config: ruleset.Config{Overrides: []ruleset.ConfigOverride{{
		Rule:     w.ours.user.Identity(),
		Override: override,
	}}}}
	for name, test := range map[string]struct {
		candidate replay.Candidate
		read      int64
		share     float64
	}{
		"a limit of users": {each, sampled, traffic.Share(level)},
		// The last 300,000 checks and parts of seconds, 50 in each, take an hour and 40 minutes.
		"a limit that they share": {all, sampled / 20, traffic.Share(level)},
		"an override":             {raise, sampled, 1},
	} {
		result := must(replay.Effect(t.Context(), w, w.ours.ID, &test.candidate, replay.EffectChecks, now))(t)
		if result.Read < test.read || result.Share != test.share {
			t.Errorf("%s: it looked at %d checks since %s, as a share of %g, want %d and %g", name, result.Read,
				result.First, result.Share, test.read, test.share)
		}
	}
}

func TestAnEffectSaysHowFarBackItLooked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.recordFor(t, 7)
	now := time.Now().UTC().Truncate(time.Hour)
	exec(t, w.url,
		fmt.Sprintf(
			`INSERT INTO traffic_block (tenant_id, day, writer, number, first_at, last_at, stratum, level, checks,
				seen, left_out, dropped, users, payload)
		SELECT %d, ((at AT TIME ZONE 'UTC')::date), 'w', n, at, at, 0, 0, 500, 500, 0, 0, ARRAY['43'], ''
		FROM generate_series(1, 25000) AS n, LATERAL (SELECT timestamptz '%s' - n * interval '2 seconds' AS at) AS b`,
			w.ours.ID, now.Format(time.RFC3339)))
	override := rules.Override{
		RuleID: w.ours.user.ID, UserID: "42", RatePerSecond: 1, RateUnit: rules.PerSecond,
		Burst: 5,
	}
	candidate := replay.Candidate{Config: ruleset.Config{
		Overrides: []ruleset.ConfigOverride{{Rule: w.ours.user.Identity(), Override: override}},
	}}
	result := must(replay.Effect(t.Context(), w, w.ours.ID, &candidate, replay.EffectChecks, now))(t)
	if want := now.Add(-20_000 * 2 * time.Second); result.Read != 0 || !result.Since.Equal(want) {
		t.Errorf("it looked at %d checks since %s, want none since %s", result.Read, result.Since, want)
	}
}
