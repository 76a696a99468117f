package snapshot

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

func TestWhichEditsLetBucketsFillLater(t *testing.T) {
	t.Parallel()
	base := rules.Limit{Rate: 10, Burst: 100}
	for name, test := range map[string]struct {
		limit rules.Limit
		want  bool
	}{
		"the same":      {base, false},
		"a higher rate": {rules.Limit{Rate: 11, Burst: 100}, false},
		"a lower rate":  {rules.Limit{Rate: 5, Burst: 100}, true},
		"a rate that is lower by next to nothing": {rules.Limit{Rate: 9.5, Burst: 100}, false},
		"a lower burst":                    {rules.Limit{Rate: 10, Burst: 10}, false},
		"a higher burst":                   {rules.Limit{Rate: 10, Burst: 200}, true},
		"both raised, as early when empty": {rules.Limit{Rate: 20, Burst: 200}, true}, // but not when it held 100
		"both lowered alike":               {rules.Limit{Rate: 1, Burst: 10}, false},
		"a block":                          {rules.Limit{}, false},
	} {
		if got := test.limit.FillsLaterThan(base); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if !base.FillsLaterThan(rules.Limit{}) {
		t.Error("after a block, of which it is not known what was before: false")
	}
}

func TestTheWatcherTellsOfEditsThatSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		var told []string
		slowed := func(all []rules.Slowdown) {
			for _, s := range all {
				told = append(told, fmt.Sprintf("rule %d user %q", s.Rule, s.User))
			}
		}
		rule := func(change func(*rules.Rule)) func(*Rows) {
			return func(rows *Rows) {
				rows.Tenants[0].Revision++
				r := &rows.Rules[0]
				r.Version, r.Revision, r.InForceSince = r.Version+1, rows.Tenants[0].Revision, time.Now()
				change(r)
			}
		}
		override := func(o rules.Override) func(*Rows) {
			return func(rows *Rows) {
				rows.Tenants[0].Revision++
				o.TenantID, o.RuleID, o.UserID, o.Revision = testTenant, rows.Rules[0].ID, "42",
					rows.Tenants[0].Revision
				rows.Overrides = []rules.Override{o}
			}
		}
		share := func(percent int) func(*Rows) {
			return func(rows *Rows) {
				rows.Tenants[0].Revision++
				now := time.Now()
				rows.Steps = []rules.Step{{
					TenantID: testTenant, RuleID: rows.Rules[0].ID, Percent: percent, SteppedAt: now,
					InForceSince: now, EndsAt: now.Add(time.Minute), Revision: rows.Tenants[0].Revision,
				}}
			}
		}
		source.change(rule(func(r *rules.Rule) {
			r.Action, r.RatePerSecond, r.Burst, r.Version = rules.ActionLimit, 100,
				100, 1
		}))
		w := NewWatcher(source, WatcherOptions{Slowed: slowed, Logger: slog.New(slog.DiscardHandler)})
		noError(t, w.Refresh(t.Context()))
		id := source.rows.Rules[0].ID
		ofAll, ofUser := fmt.Sprintf("rule %d user \"\"", id), fmt.Sprintf("rule %d user \"42\"", id)
		since := time.Now().Add(time.Minute) // an override's is later than its rule's
		for _, step := range []struct {
			name   string
			change func(*Rows)
			want   []string
		}{
			{"a raise", rule(func(r *rules.Rule) { r.RatePerSecond = 200 }), nil},
			{"a cut", rule(func(r *rules.Rule) { r.RatePerSecond = 1 }), []string{ofAll}},
			{"another description", rule(func(r *rules.Rule) { r.Description = "new" }), nil},
			{"a raise for one user", override(rules.Override{
				RatePerSecond: 100, Burst: 100, InForceSince: since,
				ExpiresAt: since.Add(time.Hour),
			}), nil},
			{"a cut for one user", override(rules.Override{
				RatePerSecond: 0.1, Burst: 100,
				InForceSince: since.Add(1000),
			}), []string{ofUser}},
			{"the end of that", override(rules.Override{
				RatePerSecond: 0.1, Burst: 100, InForceSince: since.Add(1000),
				RemovedAt: since.Add(2000),
			}), nil},
			{
				"a raise again", override(rules.Override{
					RatePerSecond: 100, Burst: 100,
					InForceSince: since.Add(3000),
				}),
				nil,
			},
			{"the end of a raise", override(rules.Override{
				RatePerSecond: 100, Burst: 100,
				InForceSince: since.Add(3000), RemovedAt: since.Add(5000),
			}), []string{ofUser}},
			{"a rule that adapts", rule(func(r *rules.Rule) {
				r.Adapt = rules.Adapt{Backend: "search", FloorPercent: 10, P99: time.Second}
			}), nil},
			{"a lower share", share(40), []string{ofAll}},
			{"the same share", share(40), nil},
			{"a higher share", share(80), nil},
			{"the lowest share", share(10), []string{ofAll}},
		} {
			after(time.Second)
			told = nil
			source.change(step.change)
			noError(t, w.Refresh(t.Context()))
			if !slices.Equal(told, step.want) {
				t.Errorf("%s: told of %q, want %q", step.name, told, step.want)
			}
		}
		// A failover loses a raise, which only the full read notices.
		source.change(rule(func(r *rules.Rule) { r.RatePerSecond = 1000 }))
		noError(t, w.Refresh(t.Context()))
		told = nil
		source.change(func(rows *Rows) { rows.Rules[0].RatePerSecond, rows.Rules[0].InForceSince = 1, since })
		noError(t, w.reread(t.Context()))
		if !slices.Equal(slices.Compact(told), []string{ofAll}) { // of the rule, and of its step
			t.Errorf("a lost raise: told of %q", told)
		}
		told = nil
		source.change(rule(func(*rules.Rule) {}))
		noError(t, NewWatcher(source, WatcherOptions{Slowed: slowed}).Refresh(t.Context()))
		if !slices.Contains(told, ofAll) {
			t.Errorf("a process that starts right after an edit: told of %q", told)
		}
		after(2 * recentEdit)
		told = nil
		noError(t, NewWatcher(source, WatcherOptions{Slowed: slowed}).Refresh(t.Context()))
		if len(told) > 0 {
			t.Errorf("a process that starts long after an edit: told of %q", told)
		}
	})
}

func TestExpiredRaisesAreFound(t *testing.T) {
	t.Parallel()
	rule := activeRule(t, 1, "user:{user_id}")
	rule.RatePerSecond, rule.Burst = 1, 100
	raise := func(user string, expires time.Time) rules.Override {
		return rules.Override{
			TenantID: testTenant, RuleID: 1, UserID: user, RatePerSecond: 100, Burst: 100,
			InForceSince: testNow.Add(-time.Hour), ExpiresAt: expires,
		}
	}
	cut := raise("cut", testNow)
	cut.RatePerSecond = 0.1
	removed := raise("removed", testNow)
	removed.RemovedAt = testNow.Add(-time.Minute)
	snapshot := New(Rows{
		Tenants: []rules.Tenant{tenantRow()}, Rules: []rules.Rule{rule},
		Overrides: []rules.Override{
			raise("now", testNow), raise("earlier", testNow.Add(-time.Second)),
			raise("later", testNow.Add(1000)), cut, removed, raise("never", time.Time{}),
		},
	})
	got := snapshot.Expired(testNow.Add(-time.Second), testNow)
	if len(got) != 1 || got[0].User != "now" || got[0].Rule != 1 || got[0].To != testNow.UnixMicro() {
		t.Errorf("found %+v", got)
	}
}

func TestALimitIsCommonUnlessUsersHaveOverridesForThatRuleOrTheOneItIsTriedFor(t *testing.T) {
	t.Parallel()
	overridden, other, global := activeRule(t, 1, "user:{user_id}"), activeRule(t, 2, "user:{user_id}"),
		activeRule(t, 3, "global")
	other.Name = "other"
	candidate := activeRule(t, 5, "user:{user_id}")
	candidate.Name, candidate.CandidateFor = "candidate", 1
	rows := Rows{Tenants: []rules.Tenant{tenantRow()}, Rules: []rules.Rule{overridden, other, global, candidate}}
	before := New(rows)
	after := before.With(Rows{Overrides: []rules.Override{{
		TenantID: testTenant, RuleID: 1, UserID: "42",
		RatePerSecond: 1, Burst: 1, InForceSince: testNow,
	}}})
	for i, snapshot := range []*Snapshot{before, after} {
		for id, want := range map[rules.RuleID]bool{1: i == 0, 2: true, 3: true, 4: false, 5: i == 0} {
			if _, ok := snapshot.Tenant(testTenant).CommonLimit(id, testNow); ok != want {
				t.Errorf("with %d overrides, rule %d has a common limit: %t", i, id, ok)
			}
		}
	}
}

func TestProcessesGiveAnEditOneIDWheneverTheyReadIt(t *testing.T) {
	t.Parallel()
	first, second := rules.Slowdown{Rule: 1, From: 3, To: 7}, rules.Slowdown{Rule: 1, From: 5, To: 7}
	if first.ID() != second.ID() {
		t.Errorf("%s and %s", first.ID(), second.ID())
	}
	lost := rules.Slowdown{Rule: 1, From: 9, To: 7}
	if lost.ID() == first.ID() {
		t.Errorf("the return to a limit after one that was lost has the ID of the edit: %s", lost.ID())
	}
}

func TestOfTwoVersionsOfARuleTheLaterOneHoldsAfterAnOverride(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]rules.Override{
		"expired": {
			RatePerSecond: 100, Burst: 100, InForceSince: testNow.Add(-time.Hour),
			ExpiresAt: testNow.Add(-time.Minute),
		},
		"removed": {
			RatePerSecond: 100, Burst: 100, InForceSince: testNow.Add(-time.Hour),
			RemovedAt: testNow.Add(-time.Minute),
		},
	} {
		o.TenantID, o.RuleID, o.UserID = testTenant, 1, "42"
		var last rules.Limit
		for version := range int64(3) { // each was edited before the override ended
			rule := activeRule(t, 1, "user:{user_id}")
			rule.RatePerSecond, rule.Burst, rule.Version = float64(version+1), 10, version+1
			rule.InForceSince = testNow.Add(-30*time.Minute + time.Duration(version)*time.Minute)
			tenant := New(Rows{
				Tenants: []rules.Tenant{tenantRow()}, Rules: []rules.Rule{rule},
				Overrides: []rules.Override{o},
			}).Tenant(testTenant)
			limit := tenant.Match(&rules.Request{UserID: "42"}, "", testNow, nil)[0].Limit
			if limit.Since <= last.Since || limit.Rate != rule.RatePerSecond {
				t.Errorf("%s: version %d has the limit %+v, and the one before %+v", name, rule.Version, limit, last)
			}
			last = limit
		}
	}
}

func TestRulesWithUnknownWordsAreCountedAndLoggedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newMemorySource(t)
		source.change(func(rows *Rows) {
			rows.Rules[0].Algorithm, rows.Rules[0].Action = "token_ring",
				rules.ActionLimit
		})
		var log bytes.Buffer
		w := NewWatcher(source, WatcherOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 3 {
			noError(t, w.reread(t.Context()))
		}
		if lines := strings.Count(log.String(), "algorithm token_ring"); lines != 1 ||
			w.Snapshot().Sizes().UnknownRules != 1 {
			t.Errorf("%d rules, logged %d times: %s", w.Snapshot().Sizes().UnknownRules, lines, log.String())
		}
		source.change(func(rows *Rows) {
			rows.Tenants[0].Revision++
			rows.Rules[0].Active, rows.Rules[0].Revision = false, rows.Tenants[0].Revision
		})
		noError(t, w.Refresh(t.Context()))
		if n := w.Snapshot().Sizes().UnknownRules; n != 0 {
			t.Errorf("%d, although the rule is off", n)
		}
	})
}

func TestWhichWordsOfARuleMatter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*rules.Rule)
		want   string
		mode   rules.FailureMode
	}{
		"none":         {func(*rules.Rule) {}, "", rules.FailOpen},
		"an algorithm": {func(r *rules.Rule) { r.Algorithm = "gcra" }, "algorithm gcra", rules.FailOpen},
		"an algorithm of a block": {
			func(r *rules.Rule) { r.Algorithm, r.Action = "gcra", rules.ActionBlock }, "",
			rules.FailOpen,
		},
		"a mode":    {func(r *rules.Rule) { r.Mode = "canary" }, "mode canary", rules.FailOpen},
		"an action": {func(r *rules.Rule) { r.Action = "queue" }, "action queue", rules.FailOpen},
		// from the tenant
		"a failure mode": {
			func(r *rules.Rule) { r.FailureMode = "stale" }, "failure mode stale",
			rules.FailClosed,
		},
		"a unit, which means nothing": {func(r *rules.Rule) { r.RateUnit = "week" }, "", rules.FailOpen},
	} {
		rule := activeRule(t, 1, "global")
		rule.Action, rule.FailureMode = rules.ActionLimit, rules.FailOpen
		test.change(&rule)
		tenant := tenantRow()
		tenant.Settings.FailureMode = rules.FailClosed
		m := New(Rows{Tenants: []rules.Tenant{tenant}, Rules: []rules.Rule{rule}}).Tenant(testTenant).Match(
			&rules.Request{}, "", testNow, nil)[0]
		if m.Rule.Unknown != test.want || m.FailureMode != test.mode {
			t.Errorf("%s: %q, failure mode %s", name, m.Rule.Unknown, m.FailureMode)
		}
	}
}
