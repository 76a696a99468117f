package pgstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/rules"
)

func spreadTenant() rules.Tenant {
	return rules.Tenant{Slug: "busy", Name: "Busy", Spread: true, Settings: rules.DefaultSettings()}
}

func TestATenantIsSpreadOnceNoOlderProcessLives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.report(t, fleet.Report{Process: fleet.Process{ID: "old", Name: "api-1", Version: "v1", Algorithms: []string{"token_bucket", rules.WordLeases}}})
	var unknown rules.UnknownToProcessError
	if _, err := w.CreateTenant(t.Context(), spreadTenant()); !errors.As(err, &unknown) || unknown.Word != rules.WordSpread {
		t.Errorf("beside a process of an older release: %v", err)
	}
	if err := w.EndProcess(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	created := must(w.CreateTenant(t.Context(), spreadTenant()))(t)
	created.Spread, created.Name = false, "Renamed"
	if updated := must(w.UpdateTenant(t.Context(), created))(t); !updated.Spread {
		t.Error("a tenant is not spread any more after another change")
	}
}

func TestASpreadTenantHasOnlyRulesThatItsBucketsCanDecide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spread := must(w.CreateTenant(t.Context(), spreadTenant()))(t)
	rule := func(pattern string, change func(*rules.Rule)) rules.Rule {
		r := limit(t, spread.ID, pattern, "", "a")
		change(&r)
		return r
	}
	window := func(r *rules.Rule) {
		r.Algorithm, r.RatePerSecond, r.Window = rules.FixedWindow, 0, rules.Window{Length: time.Hour}
	}
	places := func(r *rules.Rule) {
		r.Algorithm, r.RatePerSecond, r.MaxHold = rules.Concurrency, 0, time.Minute
	}
	for what, test := range map[string]struct {
		rule  rules.Rule
		field string // "" if it is accepted
	}{
		"a shared token bucket":    {rule("global", func(*rules.Rule) {}), ""},
		"a shared window":          {rule("endpoint:{endpoint}", window), "key_pattern"},
		"a window of each user":    {rule("user:{user_id}", window), ""},
		"a shared bucket of steps": {rule("ip:{ip}", func(r *rules.Rule) { r.RefillInterval = time.Minute }), "key_pattern"},
		"places of each user":      {rule("user:{user_id}", places), "algorithm"},
		"an inactive window":       {rule("ip:{ip}", func(r *rules.Rule) { window(r); r.Active = false }), ""},
	} {
		var wrong rules.FieldErrors
		_, err := w.CreateRule(t.Context(), test.rule)
		if test.field == "" && err != nil || test.field != "" && (!errors.As(err, &wrong) || wrong[0].Field != test.field) {
			t.Errorf("%s: %v", what, err)
		}
		dry := w.RequireKnown(t.Context(), spread.ID, []rules.Rule{test.rule})
		if (dry == nil) != (test.field == "") {
			t.Errorf("%s, in a dry run: %v", what, dry)
		}
		test.rule.TenantID, test.rule.Name = w.ours.ID, what
		must(w.CreateRule(t.Context(), test.rule))(t) // where buckets are together
	}
}
