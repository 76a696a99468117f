package adminapi_test

import (
	"cmp"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
)

type effect struct {
	IsRecording    bool `json:"is_recording"`
	Since, Until   *time.Time
	NoneSince      *time.Time `json:"none_since"`
	Note           *string
	NewlyDenied    struct{ Value float64 } `json:"newly_denied"`
	NoLongerDenied struct{ Value float64 } `json:"no_longer_denied"`
	BoundBy        *rules.RuleID           `json:"bound_by,string"`
	Users          []struct {
		UserID      string `json:"user_id"`
		NewlyDenied int64  `json:"newly_denied"`
	}
	Rules []struct{ Note *string }
}

func TestAnEffectIsWhatTheLimitWouldHaveDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	viewer, owner := w.person(w.acme, auth.Viewer), w.person(w.acme, auth.Owner)
	const path = "/api/v1/tenants/acme/effect"
	question := map[string]any{"rules": []any{map[string]any{
		"key_pattern": "user:{user_id}", "name": "tight",
		"rate_per_second": 0.001, "burst_capacity": 2,
	}}}
	if got := read[effect](t, w.want(w.send(viewer, "POST", path, question), http.StatusOK)); got.IsRecording ||
		got.Since != nil {
		t.Errorf("nothing is recorded, and the effect is %+v", got)
	}
	tenant := w.get(owner, "/api/v1/tenants/acme")
	w.want(w.send(owner, "PATCH", "/api/v1/tenants/acme", map[string]any{"settings": map[string]any{"record_days": 7}},
		"If-Match", tenant.header.Get("ETag")), http.StatusOK)
	block := traffic.Block{
		Tenant: w.acme.ID, Writer: "w", Number: 1, First: time.Now().Add(-time.Minute),
		Last: time.Now().Add(-time.Minute),
	}
	block.SetRuns([]traffic.Run{{UserID: "42", Endpoint: "/a", Cost: 1_000_000, Times: []uint32{0, 1, 2, 3, 4}}})
	if err := w.store.WriteTraffic(w.ctx(), []traffic.Block{block}); err != nil {
		t.Fatal(err)
	}
	got := read[effect](t, w.want(w.send(viewer, "POST", path, question), http.StatusOK))
	if !got.IsRecording || got.Since == nil || got.NewlyDenied.Value != 3 || len(got.Users) != 1 ||
		got.Users[0].UserID != "42" {
		t.Errorf("the effect is %+v", got)
	}
	if from, to := got.Since.Sub(block.First).Abs(), got.Until.Sub(block.Last).Abs(); from > time.Second ||
		to > time.Second {
		t.Errorf("the checks came from %v to %v, and the effect covers %v to %v", block.First, block.Last, got.Since,
			got.Until)
	}
	w.want(w.send(w.person(w.other, auth.Owner), "POST", path, question), http.StatusNotFound)
	question["rules"].([]any)[0].(map[string]any)["burst_capacity"] = 0
	w.want(w.send(viewer, "POST", path, question), http.StatusBadRequest)
}

func TestAnEffectOfAnotherMeterCountsItsCosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	w.record(w.acme, 10) // which name no dollars
	at := time.Now().Add(-time.Minute)
	block := traffic.Block{Tenant: w.acme.ID, Writer: "dollars", Number: 1, First: at, Last: at}
	const requests, cents40 = 1_000_000, 400_000
	block.SetRuns([]traffic.Run{{
		UserID: "7", Endpoint: "/a", Flags: traffic.Metered, Meters: []rules.Meter{"usd"},
		Times: []uint32{0, 1, 2, 3, 4},
		Costs: []int64{requests, cents40, requests, cents40, requests, cents40, requests, 0, requests, cents40},
	}})
	if err := w.store.WriteTraffic(w.ctx(), []traffic.Block{block}); err != nil {
		t.Fatal(err)
	}
	const path = "/api/v1/tenants/acme/effect"
	for charge, denied := range map[string]float64{
		"before": 2, // the third and the fifth find 0.20 left
		"after":  2, // the third passes, since something is left; the fourth, of 0, and the fifth do not
	} {
		question := map[string]any{"rules": []any{map[string]any{
			"key_pattern": "user:{user_id}", "meter": "usd", "charge": charge, "algorithm": "token_bucket",
			"rate_per_second": 0.00001, "burst_capacity": 1,
		}}}
		got := read[effect](t, w.want(w.send(by, "POST", path, question), http.StatusOK))
		if got.NewlyDenied.Value != denied || len(got.Users) != 1 || got.Users[0].UserID != "7" {
			t.Errorf("charged %s, the effect is %+v", charge, got)
		}
	}
}

func TestAnEffectNamesTheRuleThatBindsAUserInstead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	w.record(w.acme, 10)
	of := func(burst int64) rules.Rule {
		return w.rule(w.acme, func(r *rules.Rule) {
			r.Burst, r.RatePerSecond, r.Mode = burst, 0.001, rules.ModeEnforce
		})
	}
	loose, tight := of(4), of(2)
	raise := func(rule rules.Rule, mostChecks int) map[string]any {
		return map[string]any{"most_checks": mostChecks, "override": map[string]any{
			"rule_id": fmt.Sprint(rule.ID), "user_id": "42", "rate_per_second": 0.001, "burst_capacity": 20,
		}}
	}
	const path, most = "/api/v1/tenants/acme/effect", 1_000_000
	got := read[effect](t, w.want(w.send(by, "POST", path, raise(loose, most)), http.StatusOK))
	if got.NoLongerDenied.Value != 0 || got.BoundBy == nil || *got.BoundBy != tight.ID {
		t.Errorf("the raise of the looser limit: %+v, want it bound by %d", got, tight.ID)
	}
	got = read[effect](t, w.want(w.send(by, "POST", path, raise(tight, most)), http.StatusOK))
	if got.NoLongerDenied.Value != 2 || got.BoundBy != nil {
		t.Errorf("the raise of the tighter limit: %+v, want 2 fewer denied", got)
	}
	w.want(w.send(by, "POST", path, raise(tight, most+1)), http.StatusBadRequest)
}

func TestTheEffectOfChangesOfSeveralRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	const path = "/api/v1/tenants/acme/effect"
	w.record(w.acme, 10)
	tight := w.rule(w.acme, func(r *rules.Rule) {
		r.Burst, r.RatePerSecond, r.Mode, r.Plan = 2, 0.001,
			rules.ModeEnforce, "free"
	})
	newRule := func(burst int, name string) map[string]any {
		return map[string]any{
			"key_pattern": "user:{user_id}", "name": name, "plan": "free", "rate_per_second": 0.001,
			"burst_capacity": burst,
		}
	}
	file := fmt.Sprintf("rules:\n  - {key_pattern: \"user:{user_id}\", name: %s, plan: free, rate_per_second: 0.001, "+
		"burst_capacity: 5}\n", tight.Name)
	for name, test := range map[string]struct {
		question    map[string]any
		more, fewer float64
	}{
		"a lower limit":        {map[string]any{"rules": []any{newRule(1, tight.Name)}}, 1, 0},
		"a higher and a lower": {map[string]any{"rules": []any{newRule(100, tight.Name), newRule(4, "new")}}, 0, 2},
		"a removed rule":       {map[string]any{"remove": []any{fmt.Sprint(tight.ID)}}, 0, 8},
		"a file":               {map[string]any{"file": file}, 0, 3},
		"an empty file":        {map[string]any{"file": "rules: []", "prune": true}, 0, 8},
		"a raise": {map[string]any{"override": map[string]any{
			"rule_id": fmt.Sprint(tight.ID), "user_id": "42",
			"rate_per_second": 0.001, "burst_capacity": 9,
		}}, 0, 7},
	} {
		got := read[effect](t, w.want(w.send(by, "POST", path, test.question), http.StatusOK))
		if got.NewlyDenied.Value != test.more || got.NoLongerDenied.Value != test.fewer {
			t.Errorf("%s denies %g more and %g fewer, want %g and %g", name, got.NewlyDenied.Value,
				got.NoLongerDenied.Value, test.more, test.fewer)
		}
	}
	must(w.system().PutOverride(w.ctx(),
		rules.Override{
			TenantID: w.acme.ID, RuleID: tight.ID, UserID: "42", RatePerSecond: 1, RateUnit: rules.PerSecond,
			Burst: 100, Reason: "migration",
		}, rules.NoneStored))(t)
	overridden := map[string]any{"rules": []any{newRule(1, tight.Name)}}
	if got := read[effect](t, w.want(w.send(by, "POST", path, overridden),
		http.StatusOK)); got.NewlyDenied.Value+got.NoLongerDenied.Value != 0 {
		t.Errorf("a lower limit changes %g checks of a user who has an override",
			got.NewlyDenied.Value+got.NoLongerDenied.Value)
	}
	unused := newRule(1, "unused")
	unused["plan"] = "pro"
	got := read[effect](t, w.want(w.send(by, "POST", path,
		map[string]any{"rules": []any{newRule(1, tight.Name), unused}}), http.StatusOK))
	if notes := []*string{got.Rules[0].Note, got.Rules[1].Note}; notes[0] != nil && notes[1] != nil ||
		cmp.Or(notes[0], notes[1]) == nil || *cmp.Or(notes[0], notes[1]) != "No recorded check was on the plan pro." {
		t.Errorf("rules of plans with and without checks say %v", got.Rules)
	}
	nobody := map[string]any{"override": map[string]any{
		"rule_id": fmt.Sprint(tight.ID), "user_id": "43", "rate_per_second": 1,
		"burst_capacity": 9,
	}}
	if got := read[effect](t, w.want(w.send(by, "POST", path, nobody), http.StatusOK)); got.Since != nil ||
		got.Note != nil || got.NoneSince == nil || time.Since(*got.NoneSince) < 23*time.Hour {
		t.Errorf("the effect on a user without checks is %+v", got)
	}
	for name, test := range map[string]struct {
		question map[string]any
		pointer  string
	}{
		"nothing":        {map[string]any{}, "/rules"},
		"two candidates": {map[string]any{"file": file, "rules": []any{newRule(1, "x")}}, "/rules"},
		"a bad override": {map[string]any{"override": map[string]any{
			"rule_id": fmt.Sprint(tight.ID), "user_id": "42",
			"rate_per_second": 1, "burst_capacity": 0,
		}}, "/override/burst_capacity"},
		"another's rule": {map[string]any{"override": map[string]any{
			"rule_id": fmt.Sprint(w.rule(w.other).ID), "user_id": "42",
			"rate_per_second": 1, "burst_capacity": 5,
		}}, "/override/rule_id"},
		"another's removal": {map[string]any{"remove": []any{fmt.Sprint(w.rule(w.other).ID)}}, "/remove/0"},
		"a bad file":        {map[string]any{"file": "rules: 1"}, "/file/lines/1"},
	} {
		got := w.want(w.send(by, "POST", path, test.question), http.StatusBadRequest)
		if found := pointersOf(t, got); len(found) != 1 || found[0] != test.pointer {
			t.Errorf("%s is refused at %v, want %s", name, found, test.pointer)
		}
	}
}
