package pgstore_test

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestStats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, at := t.Context(), lately()
	verdicts := func(tenant rules.TenantID, rule rules.RuleID, at time.Time, allowed,
		denied int64,
	) violations.DecisionCount {
		return violations.DecisionCount{
			Tenant: tenant, Rule: rule, Minute: at,
			Verdicts: violations.Verdicts{Allowed: allowed, Denied: denied, Taken: allowed},
		}
	}
	err := w.WriteViolations(ctx, &violations.Batch{Writer: "stats", Number: 1, Decisions: []violations.DecisionCount{
		verdicts(w.ours.ID, 0, at, 30, 10), verdicts(w.ours.ID, 12, at, 35, 5), verdicts(w.ours.ID, 13, at, 20, 20),
		verdicts(w.ours.ID, 0, at.Add(-2*time.Minute), 60, 0), verdicts(w.ours.ID, 0, at.Add(-7*time.Minute), 1, 3),
		verdicts(w.ours.ID, 14, at, 40, 0), verdicts(w.theirs.ID, 0, at, 1000, 1000),
		verdicts(w.theirs.ID, 12, at, 1000, 1000),
	}})
	if err != nil {
		t.Fatal(err)
	}
	chart := must(violations.Traffic(ctx, w.Store, w.ours.ID, 0, at.Add(-4*time.Minute), at.Add(time.Minute)))(t)
	var denied, allowed []int64
	for _, p := range chart.Points {
		denied, allowed = append(denied, p.Denied), append(allowed, p.Allowed)
	}
	if !slices.Equal(denied, []int64{0, 0, 0, 0, 10}) || !slices.Equal(allowed, []int64{0, 0, 60, 0, 30}) {
		t.Errorf("the chart has %v denied and %v allowed", denied, allowed)
	}
	if chart.Total.ShareDenied() != 0.1 || chart.Total.Taken != 90 || chart.Before.ShareDenied() != 0.75 {
		t.Errorf("in total %+v, and before %+v", chart.Total, chart.Before)
	}
	for _, since := range []time.Time{at.Add(-time.Minute), at.Add(-24 * 30 * time.Hour)} {
		top := must(w.TopRules(ctx, w.ours.ID, violations.StepsFor(since, at.Add(time.Minute)), 10))(t)
		var ids []rules.RuleID
		for _, r := range top.Rules {
			ids = append(ids, r.Rule)
		}
		if !slices.Equal(ids, []rules.RuleID{13, 12}) || top.Rules[0].Denied != 20 {
			t.Errorf("since %s the top rules are %+v, want 13 and 12", since, top)
		}
	}
}

func TestTotalsAreTheSumOfTheirSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, end := t.Context(), time.Date(2026, time.March, 20, 10, 30, 0, 0, time.UTC)
	batch := violations.Batch{Writer: "totals", Number: 1}
	for i := range 400 { // every 47 minutes for two weeks
		for _, tenant := range []rules.TenantID{w.ours.ID, w.theirs.ID} {
			batch.Decisions = append(batch.Decisions, violations.DecisionCount{
				Tenant: tenant, Rule: rules.RuleID(i % 3), Minute: end.Add(time.Duration(-47*i) * time.Minute),
				Verdicts: violations.Verdicts{Allowed: int64(i), Denied: 1, Taken: int64(i)},
			})
		}
	}
	if err := w.WriteViolations(ctx, &batch); err != nil {
		t.Fatal(err)
	}
	for _, length := range []time.Duration{
		5 * time.Minute, 50 * time.Minute, time.Hour, 61 * time.Minute, 24 * time.Hour, 7 * 24 * time.Hour,
		8 * 24 * time.Hour, 30 * 24 * time.Hour,
	} {
		since, step := end.Add(-length), time.Minute
		if length > 7*24*time.Hour {
			step = time.Hour
		}
		totals := must(violations.Totals(ctx, w.Store, w.ours.ID, []rules.RuleID{0, 1, 99}, since,
			end.Add(time.Minute)))(t)
		for rule := range rules.RuleID(2) {
			var want violations.Verdicts
			for _, point := range must(w.Decisions(ctx, w.ours.ID, rule,
				violations.StepsOf(since, end.Add(time.Minute), step)))(t) {
				want.Allowed, want.Denied, want.Taken = want.Allowed+point.Allowed, want.Denied+point.Denied,
					want.Taken+point.Taken
			}
			if totals[rule] != want {
				t.Errorf("over %s rule %d decided %+v, want %+v", length, rule, totals[rule], want)
			}
		}
		if _, ok := totals[99]; ok || len(totals) > 2 {
			t.Errorf("over %s there are totals of other rules: %+v", length, totals)
		}
	}
}

func TestTopsLookAtFewRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, at := t.Context(), lately()
	w.LookAtTop(3)
	w.record(t, at.Add(-time.Minute), func(v *violations.Violation) { v.Mode, v.UserID = rules.ModeShadow, "7" })
	w.record(t, at, func(*violations.Violation) {}, func(v *violations.Violation) { v.Rule = 13 },
		func(v *violations.Violation) { v.Rule = 14 })
	top := must(w.Top(ctx, w.ours.ID, violations.TopOf{
		Dimension: violations.ByEndpoint, Since: at.Add(-time.Hour), Until: at.Add(time.Hour),
	}, 10))(t)
	if len(top.Values) != 1 || top.Values[0].Denied != 3*2 || !top.LookedBackTo.Equal(at) {
		t.Errorf("looking at 3 rows found %+v", top)
	}
	batch := violations.Batch{Writer: "tops", Number: 1}
	for i := range 4 {
		batch.Decisions = append(batch.Decisions, violations.DecisionCount{
			Tenant: w.ours.ID, Rule: rules.RuleID(i + 1), Minute: at.Add(time.Duration(-i) * time.Minute),
			Verdicts: violations.Verdicts{Denied: 1},
		})
	}
	if err := w.WriteViolations(ctx, &batch); err != nil {
		t.Fatal(err)
	}
	byRule := must(w.TopRules(ctx, w.ours.ID, violations.StepsOf(at.Add(-time.Hour), at.Add(time.Hour), time.Minute),
		10))(t)
	if len(byRule.Rules) != 3 || !byRule.LookedBackTo.Equal(at.Add(-2*time.Minute)) {
		t.Errorf("looking at 3 rows found %+v", byRule)
	}
}

func TestViolationsAreCountedInTheirSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := lately()
	w.record(t, at,
		func(v *violations.Violation) { v.Count = 3 },
		func(v *violations.Violation) { v.ID.At, v.Count = at.Add(59*time.Second), 4 },
		func(v *violations.Violation) { v.ID.At, v.UserID = at.Add(3*time.Minute), "7" },
		func(v *violations.Violation) { v.ID.At, v.Count = at.Add(3*time.Minute), 5 },
	)
	filter := violations.Filter{UserID: "42"}
	got := must(w.ViolationsInSteps(t.Context(), w.ours.ID, &filter,
		violations.StepsOf(at, at.Add(4*time.Minute), time.Minute)))(t)
	want := []violations.StepCount{{At: at, Checks: 7}, {At: at.Add(3 * time.Minute), Checks: 5}}
	if !reflect.DeepEqual(got.Counts, want) || got.LookedAt != 3 || !got.LookedBackTo.Equal(at) {
		t.Errorf("the steps are %+v, want %+v from 3 rows back to %s", got, want, at)
	}
}

func TestTop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := lately()
	w.record(t, at,
		func(v *violations.Violation) { v.Count = 3 },
		func(v *violations.Violation) { v.Rule, v.Count = 13, 4 },
		func(v *violations.Violation) { v.UserID, v.Count = "7", 6 },
		func(v *violations.Violation) { v.UserID, v.IP, v.Count = "", netip.MustParseAddr("2001:db8::1"), 100 },
	)
	tests := map[string]struct {
		of   violations.TopOf
		want []violations.TopValue
	}{
		"users": {
			violations.TopOf{Dimension: violations.ByUser},
			[]violations.TopValue{{Value: "42", Denied: 7}, {Value: "7", Denied: 6}},
		},
		"users of a rule": {
			violations.TopOf{Dimension: violations.ByUser, Rule: 12},
			[]violations.TopValue{{Value: "7", Denied: 6}, {Value: "42", Denied: 3}},
		},
		"addresses": {
			violations.TopOf{Dimension: violations.ByIP},
			[]violations.TopValue{{Value: "2001:db8::1", Denied: 100}, {Value: "203.0.113.9", Denied: 13}},
		},
		"endpoints": {
			violations.TopOf{Dimension: violations.ByEndpoint},
			[]violations.TopValue{{Value: "/api/search", Denied: 113}},
		},
		"of an empty time": {violations.TopOf{Dimension: violations.ByUser, Until: at}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			of := test.of
			of.Since = at.Add(-time.Hour)
			if of.Until.IsZero() {
				of.Until = at.Add(time.Hour)
			}
			top := must(w.Top(t.Context(), w.ours.ID, of, 10))(t)
			for i := range top.Values {
				top.Values[i].LastAt = time.Time{}
			}
			if !reflect.DeepEqual(top.Values, test.want) {
				t.Errorf("the top is %+v, want %+v", top.Values, test.want)
			}
			if !top.LookedBackTo.IsZero() {
				t.Errorf("it looked back to %s only", top.LookedBackTo)
			}
		})
	}
}
