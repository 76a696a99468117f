package adminapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

const stats = "/api/v1/tenants/acme/stats"

func (w *world) decided(tenant rules.Tenant, rule rules.RuleID, minute time.Time, allowed, denied int64) {
	w.t.Helper()
	err := w.store.WriteViolations(w.ctx(), &violations.Batch{
		Writer: w.name("writer"), Number: 1,
		Decisions: []violations.DecisionCount{{
			Tenant: tenant.ID, Rule: rule, Minute: minute,
			Verdicts: violations.Verdicts{
				Allowed: allowed, Denied: denied, Degraded: 1, Taken: allowed, TakenParts: violations.Token / 2,
			},
		}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

type verdicts struct {
	At       time.Time `json:"at"`
	Allowed  int64     `json:"allowed"`
	Denied   int64     `json:"denied"`
	Degraded int64     `json:"degraded"`
	Cost     float64   `json:"cost"`
}

func TestASeriesHasEveryStepAndNothingOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, at := w.person(w.acme, auth.Viewer), lately()
	for _, rule := range []rules.RuleID{0, 12} {
		w.decided(w.other, rule, at, 1000, 1000)
	}
	w.decided(w.acme, 0, at, 90, 10)
	w.decided(w.acme, 0, at.Add(3*time.Minute), 5, 0)
	w.decided(w.acme, 12, at, 7, 3)
	type series struct {
		StepSeconds int        `json:"step_seconds"`
		Points      []verdicts `json:"points"`
		Total       verdicts   `json:"total"`
	}
	between := fmt.Sprintf("?from=%s&until=%s", stamp(at.Add(-time.Minute)), stamp(at.Add(4*time.Minute)))
	get := func(query string) series {
		t.Helper()
		return read[series](t, w.get(by, stats+"/series"+query))
	}
	all := get(between)
	var allowed []int64
	for _, point := range all.Points {
		allowed = append(allowed, point.Allowed)
	}
	if all.StepSeconds != 60 || !slices.Equal(allowed, []int64{0, 90, 0, 0, 5}) || !all.Points[1].At.Equal(at) {
		t.Errorf("the series is %+v", all)
	}
	if want := (verdicts{Allowed: 95, Denied: 10, Degraded: 2, Cost: 96}); all.Total != want {
		t.Errorf("in all it is %+v, want %+v", all.Total, want)
	}
	if one := get(between + "&rule_id=12"); one.Total.Allowed != 7 || one.Total.Denied != 3 {
		t.Errorf("of one rule it is %+v", one.Total)
	}
	if hours := get(between + "&step_seconds=3600"); hours.StepSeconds != 3600 || len(hours.Points) > 2 ||
		hours.Total.Allowed != 95 {
		t.Errorf("by the hour it is %+v", hours)
	}
	if day := get(""); day.StepSeconds != 900 || day.Total.Allowed != 95 {
		t.Errorf("of the last day it is %+v in steps of %d s", day.Total, day.StepSeconds)
	}
	for query, pointer := range map[string]string{
		"?step_seconds=60&from=2026-01-01T00:00:00Z&until=2026-02-01T00:00:00Z": "/query/step_seconds",
		"?step_seconds=61": "/query/step_seconds",
		"?from=2024-01-01T00:00:00Z&until=2026-01-01T00:00:00Z": "/query/from",
		"?from=2026-01-01T00:00:00Z&until=2026-01-01T00:00:00Z": "/query/from",
	} {
		got := w.want(w.send(by, "GET", stats+"/series"+query, nil), http.StatusBadRequest)
		if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{pointer}) {
			t.Errorf("%s points at %v, want %s", query, pointers, pointer)
		}
	}
}

func TestViolationsAreCountedOverTimeForTheListsFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, at := w.person(w.acme, auth.Viewer), lately()
	w.violate(denied(w.other, at, func(v *violations.Violation) { v.Count = 1000 }))
	w.violate(
		denied(w.acme, at, func(v *violations.Violation) { v.Count = 5 }),
		denied(w.acme, at.Add(2*time.Minute), func(v *violations.Violation) {
			v.Count, v.Mode, v.UserID, v.Subject = 9, rules.ModeShadow, "7", "7"
			v.IP, v.Endpoint, v.Plan = netip.MustParseAddr("2001:db8::1"), "/b", "pro"
		}),
	)
	type series struct {
		StepSeconds int `json:"step_seconds"`
		Points      []struct {
			At     time.Time `json:"at"`
			Checks int64     `json:"checks"`
		} `json:"points"`
		Total        int64      `json:"total"`
		LookedBackTo *time.Time `json:"looked_back_to"`
	}
	between := fmt.Sprintf("?from=%s&until=%s", stamp(at), stamp(at.Add(3*time.Hour)))
	for filter, want := range map[string]int64{
		"": 14, "&user_id=42": 5, "&user_id=7": 9, "&user_id=8": 0, "&ip=2001:db8::1": 9, "&ip=2001:db8::/32": 9,
		"&ip=203.0.113.0/24": 5,
		"&endpoint=/b":       9, "&endpoint=/api/*": 5, "&mode=shadow": 9, "&plan=pro": 9, "&user_id=42&mode=shadow": 0,
	} {
		got := read[series](t, w.get(by, stats+"/violations"+between+filter))
		if got.Total != want || got.StepSeconds != 60 || len(got.Points) != 180 || got.LookedBackTo != nil {
			t.Errorf("%q: %d checks in %d steps of %d s, looked back to %v; want %d in 180 of 60 s",
				filter, got.Total, len(got.Points), got.StepSeconds, got.LookedBackTo, want)
			continue
		}
		if filter == "" && (got.Points[0].Checks != 5 || !got.Points[2].At.Equal(at.Add(2*time.Minute)) ||
			got.Points[2].Checks != 9) {
			t.Errorf("the points are %+v", got.Points[:3])
		}
	}
	for query, pointer := range map[string]string{
		"?ip=here": "/query/ip", "?from=" + stamp(at) + "&until=" + stamp(at): "/query/from",
		"?rule_id=x": "/query/rule_id",
	} {
		if got := w.want(w.send(by, "GET", stats+"/violations"+query, nil),
			http.StatusBadRequest); !strings.Contains(got.body, pointer) {
			t.Errorf("%s is refused without %s: %s", query, pointer, got.body)
		}
	}
}

func TestTheTopAreThoseThatWereDeniedMost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, at := w.person(w.acme, auth.Viewer), lately()
	live := w.rule(w.acme, func(r *rules.Rule) { r.Mode = rules.ModeEnforce })
	shadow := w.rule(w.acme)
	for rule, denials := range map[rules.RuleID]int64{live.ID: 5, shadow.ID: 9, 999999: 7} {
		w.decided(w.acme, rule, at, 1, denials)
		w.decided(w.other, rule, at, 1, 1000)
	}
	w.violate(denied(w.other, at, func(v *violations.Violation) { v.Count = 1000 }))
	w.violate(
		denied(w.acme, at, func(v *violations.Violation) { v.Count, v.Rule = 5, live.ID }),
		denied(w.acme, at.Add(time.Second), func(v *violations.Violation) {
			v.Count, v.Rule, v.Mode, v.UserID, v.Subject = 9, shadow.ID, rules.ModeShadow, "7", "7"
			v.IP, v.Endpoint = netip.MustParseAddr("2001:db8::1"), "/b"
		}),
	)
	type item struct {
		Value  string `json:"value"`
		Denied int64  `json:"denied"`
		Checks *int64 `json:"checks"`
		Rule   *struct {
			Mode string `json:"mode"`
		} `json:"rule"`
	}
	id := func(rule rules.RuleID) string { return fmt.Sprint(rule) }
	for query, want := range map[string][]string{
		"by=rule":                          {id(shadow.ID), "999999", id(live.ID)},
		"by=rule&limit=1":                  {id(shadow.ID)},
		"by=rule&limit=10000":              {id(shadow.ID), "999999", id(live.ID)},
		"by=rule&mode=enforce":             {id(live.ID)},
		"by=rule&mode=shadow":              {id(shadow.ID)},
		"by=user":                          {"7", "42"},
		"by=user&mode=enforce":             {"42"},
		"by=user&rule_id=" + id(shadow.ID): {"7"},
		"by=ip":                            {"2001:db8::1", "203.0.113.9"},
		"by=endpoint":                      {"/b", "/api/search"},
		"by=endpoint&until=" + stamp(at):   nil,
		"by=rule&from=" + stamp(at.Add(-time.Minute)) + "&until=" +
			stamp(at.Add(time.Minute)): {id(shadow.ID), "999999", id(live.ID)},
	} {
		got := read[struct {
			Items        []item     `json:"items"`
			LookedBackTo *time.Time `json:"looked_back_to"`
		}](t, w.get(by, stats+"/top?"+query))
		var values []string
		for _, item := range got.Items {
			values = append(values, item.Value)
			if denials := map[string]int64{
				id(live.ID): 5, id(shadow.ID): 9, "999999": 7, "7": 9, "42": 5, "/b": 9,
				"2001:db8::1": 9,
			}[item.Value]; denials != 0 && item.Denied != denials {
				t.Errorf("%s: %s was denied %d times, want %d", query, item.Value, item.Denied, denials)
			}
			if item.Value == id(live.ID) &&
				(item.Checks == nil || *item.Checks != 6 || item.Rule == nil || item.Rule.Mode != "enforce") {
				t.Errorf("%s: the rule is shown as %+v", query, item)
			}
		}
		if !slices.Equal(values, want) || got.LookedBackTo != nil {
			t.Errorf("%s are %v, back to %v; want %v", query, values, got.LookedBackTo, want)
		}
	}
	w.want(w.send(by, "GET", stats+"/top", nil), http.StatusBadRequest)
	w.want(w.send(by, "GET", stats+"/top?by=user&limit=101", nil), http.StatusBadRequest)
	w.want(w.send(by, "GET", stats+"/top?by=rule&rule_id=1", nil), http.StatusBadRequest)
}

func TestThePresentRatesOfDenials(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	rule := w.rule(w.acme)
	batch := violations.Batch{Writer: "present", Number: 1}
	slot := time.Now().UTC().Truncate(violations.SlotLength)
	for ago := range 24 { // the same rate for two minutes
		for dimension, value := range map[violations.Dimension]string{
			violations.ByNetwork: "198.51.100.0/24", violations.ByEndpoint: "/login",
		} {
			row := violations.RecentDenials{
				Tenant: w.acme.ID, Dimension: dimension, Slot: slot.Add(violations.SlotLength * time.Duration(1-ago)),
				Rule: rule.ID, Mode: rules.ModeEnforce, Value: value, Denied: 700,
			}
			batch.Recent = append(batch.Recent, row)
			row.Value, row.Other, row.Denied = "", true, 50
			batch.Recent = append(batch.Recent, row)
			row.Mode = rules.ModeShadow
			batch.Recent = append(batch.Recent, row)
			row.Tenant, row.Mode = w.other.ID, rules.ModeEnforce
			batch.Recent = append(batch.Recent, row)
		}
	}
	if err := w.store.WriteViolations(w.ctx(), &batch); err != nil {
		t.Fatal(err)
	}
	type item struct {
		Value     string `json:"value"`
		PerMinute int64  `json:"per_minute"`
		Rule      *struct {
			RuleID rules.RuleID `json:"rule_id,string"`
		} `json:"rule"`
	}
	for query, want := range map[string]item{
		"by=network": {Value: "198.51.100.0/24", PerMinute: 8400}, "by=endpoint": {Value: "/login", PerMinute: 8400},
		"by=rule&limit=1": {Value: fmt.Sprint(rule.ID), PerMinute: 9000},
	} {
		got := read[struct {
			From         time.Time `json:"from"`
			Until        time.Time `json:"until"`
			Items        []item    `json:"items"`
			PerMinute    int64     `json:"per_minute"`
			Unattributed int64     `json:"unattributed_per_minute"`
		}](t, w.get(by, stats+"/present?"+query))
		if got.PerMinute != 9000 || got.Unattributed != 9000-want.PerMinute || len(got.Items) != 1 ||
			got.Until.Sub(got.From) != violations.PresentTime {
			t.Fatalf("%s: the answer is %+v", query, got)
		}
		one := got.Items[0]
		if one.Value != want.Value || one.PerMinute != want.PerMinute || one.Rule == nil || one.Rule.RuleID != rule.ID {
			t.Errorf("%s: %+v is denied, want %+v by rule %d", query, one, want, rule.ID)
		}
	}
	w.want(w.send(by, "GET", stats+"/present", nil), http.StatusBadRequest)
	w.want(w.send(by, "GET", stats+"/present?by=user&limit=101", nil), http.StatusBadRequest)
}

func TestARemovedRuleKeepsItsNameInRankings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, at := w.person(w.acme, auth.Editor), lately()
	rule := w.rule(w.acme, func(r *rules.Rule) { r.Mode = rules.ModeEnforce })
	w.decided(w.acme, rule.ID, at, 1, 5)
	path := fmt.Sprintf("/api/v1/tenants/acme/rules/%d", rule.ID)
	tag := w.get(by, path).header.Get("ETag")
	w.want(w.send(by, "DELETE", path, nil, "If-Match", tag), http.StatusNoContent)

	top := read[struct {
		Items []struct {
			Rule *struct {
				Pattern string `json:"key_pattern"`
				Removed bool   `json:"removed"`
			} `json:"rule"`
		} `json:"items"`
	}](t, w.get(by, stats+"/top?by=rule"))
	if len(top.Items) != 1 || top.Items[0].Rule == nil || !top.Items[0].Rule.Removed ||
		top.Items[0].Rule.Pattern != rule.Pattern.String() {
		t.Errorf("the ranking is %+v, want the removed rule by its pattern", top.Items)
	}
}

func TestWhatShadowRulesWouldHaveDeniedOutlivesTheRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, at := w.person(w.acme, auth.Viewer), lately()
	w.decided(w.acme, 0, at, 90, 0)
	w.decided(w.acme, violations.ShadowRules, at, 0, 50)
	w.decided(w.acme, violations.ShadowRules, at.Add(-time.Hour), 0, 7)
	w.decided(w.other, violations.ShadowRules, at, 0, 1000)
	between := fmt.Sprintf("from=%s&until=%s", stamp(at), stamp(at.Add(time.Minute)))
	summary := read[struct {
		ShadowDenied int64 `json:"shadow_denied"`
		ShadowRules  []any `json:"shadow_rules"`
	}](t, w.get(by, stats+"/summary?"+between))
	if summary.ShadowDenied != 50 || len(summary.ShadowRules) != 0 {
		t.Errorf("the summary is %+v, want 50 denials of no rule", summary)
	}
	for _, path := range []string{stats + "/top?by=rule&" + between, "/api/v1/tenants/acme/usage/export?from=" +
		at.Format("2006-01")} {
		if got := w.get(by, path); strings.Contains(got.body, `"-1"`) ||
			strings.Contains(got.body, "rule,-1") {
			t.Errorf("%s has the counts of shadow rules as a rule: %s", path, got.body)
		}
	}
}

func TestTheSummaryComparesWithTheTimeBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, at := w.person(w.acme, auth.Viewer), lately()
	quiet, loud := w.rule(w.acme), w.rule(w.acme)
	w.rule(w.acme, func(r *rules.Rule) { r.Active = false })
	w.rule(w.acme, func(r *rules.Rule) { r.Mode = rules.ModeEnforce })
	theirs := w.rule(w.other)
	w.decided(w.other, 0, at, 500, 500)
	w.decided(w.acme, theirs.ID, at, 1, 1) // which is no rule of acme
	w.decided(w.acme, 0, at, 90, 10)
	w.decided(w.acme, 0, at.Add(-time.Minute), 99, 1)
	w.decided(w.acme, loud.ID, at, 30, 20)
	type summary struct {
		Total             verdicts `json:"total"`
		Before            verdicts `json:"before"`
		ShareDenied       *float64 `json:"share_denied"`
		ShareDeniedBefore *float64 `json:"share_denied_before"`
		ShadowRules       []struct {
			Rule struct {
				RuleID rules.RuleID `json:"rule_id,string"`
			} `json:"rule"`
			Checks int64 `json:"checks"`
			Denied int64 `json:"denied"`
		} `json:"shadow_rules"`
	}
	get := func(from time.Time) summary {
		query := fmt.Sprintf("?from=%s&until=%s", stamp(from), stamp(from.Add(time.Minute)))
		return read[summary](t, w.get(by, stats+"/summary"+query))
	}
	got := get(at)
	if got.Total.Denied != 10 || got.Before.Denied != 1 || *got.ShareDenied != 0.1 || *got.ShareDeniedBefore != 0.01 {
		t.Errorf("the summary is %+v", got)
	}
	if len(got.ShadowRules) != 2 || got.ShadowRules[0].Rule.RuleID != loud.ID ||
		got.ShadowRules[1].Rule.RuleID != quiet.ID ||
		got.ShadowRules[0].Checks != 50 || got.ShadowRules[0].Denied != 20 || got.ShadowRules[1].Denied != 0 {
		t.Errorf("the shadow rules are %+v", got.ShadowRules)
	}
	if got := get(at.Add(time.Minute)); got.ShareDenied != nil || *got.ShareDeniedBefore != 0.1 {
		t.Errorf("of a minute without checks it is %+v", got)
	}
}

type countedStores struct {
	adminapi.Stores
	one, some atomic.Int64
}

func (s *countedStores) Rule(ctx context.Context, tenant rules.TenantID, id rules.RuleID) (rules.Rule, error) {
	s.one.Add(1)
	return s.Stores.Rule(ctx, tenant, id)
}

func (s *countedStores) RulesByID(ctx context.Context, tenant rules.TenantID, ids []rules.RuleID) ([]rules.Rule,
	error,
) {
	s.some.Add(1)
	return s.Stores.RulesByID(ctx, tenant, ids)
}

func (s *countedStores) RulesEver(ctx context.Context, tenant rules.TenantID, ids []rules.RuleID) ([]rules.Rule,
	error,
) {
	s.some.Add(1)
	return s.Stores.RulesEver(ctx, tenant, ids)
}

type countedViolations struct {
	violations.Store
	totals, decisions atomic.Int64
}

func (v *countedViolations) Totals(ctx context.Context, tenant rules.TenantID, of []rules.RuleID,
	steps violations.Steps,
) (map[rules.RuleID]violations.Verdicts, error) {
	v.totals.Add(1)
	return v.Store.Totals(ctx, tenant, of, steps)
}

func (v *countedViolations) Decisions(ctx context.Context, tenant rules.TenantID, rule rules.RuleID,
	steps violations.Steps,
) ([]violations.Point, error) {
	v.decisions.Add(1)
	return v.Store.Decisions(ctx, tenant, rule, steps)
}

func TestManyRulesAreReadTogether(t *testing.T) {
	t.Parallel()
	stores, read := &countedStores{}, &countedViolations{}
	w := newWorld(t, func(c *adminapi.Config) {
		stores.Stores, c.Stores, read.Store, c.Violations = c.Stores, stores, c.Violations, read
	})
	by := w.person(w.acme, auth.Viewer)
	for range 10 {
		w.decided(w.acme, w.rule(w.acme).ID, lately(), 1, 1)
	}
	w.get(by, stats+"/top?by=rule&mode=shadow")
	if stores.one.Load() != 0 || stores.some.Load() != 1 {
		t.Errorf("the rules on top were read in %d + %d questions", stores.one.Load(), stores.some.Load())
	}
	w.get(by, stats+"/summary")
	if read.totals.Load() != 2 || read.decisions.Load() != 0 {
		t.Errorf("a summary asked %d + %d times for counts", read.totals.Load(), read.decisions.Load())
	}
}

func TestStatisticsCanBeOfOneMeter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, at := w.person(w.acme, auth.Viewer), time.Now().Add(-time.Minute).UTC().Truncate(time.Second)
	minute := at.Truncate(time.Minute)
	usd := func(mode rules.Mode) rules.Rule {
		return w.rule(w.acme, func(r *rules.Rule) { r.Name, r.Meter, r.Mode = "usd", "usd", mode })
	}
	w.rule(w.other, func(r *rules.Rule) { r.Name, r.Meter = "eur", "eur" })
	requests, shadow := w.rule(w.acme, func(r *rules.Rule) { r.Mode = rules.ModeEnforce }), usd(rules.ModeShadow)
	dollars := w.rule(w.acme, func(r *rules.Rule) {
		r.Name, r.Meter, r.Mode = "dollars", "usd", rules.ModeEnforce
	})
	w.decided(w.acme, 0, minute, 90, 10)
	w.decided(w.acme, violations.RulesOf("usd"), minute, 30, 7)
	w.decided(w.acme, requests.ID, minute, 87, 3)
	w.decided(w.acme, dollars.ID, minute, 20, 7)
	w.decided(w.acme, shadow.ID, minute, 20, 5)
	w.decided(w.acme, violations.ShadowRules, minute, 0, 50)
	w.violate(
		denied(w.acme, at.Add(-20*time.Minute), func(v *violations.Violation) { v.Rule, v.Count = requests.ID, 3 }),
		denied(w.acme, at.Add(-20*time.Minute), func(v *violations.Violation) {
			v.Rule, v.Meter, v.Count, v.UserID, v.Subject = dollars.ID, "usd", 7, "7", "7"
		}),
	)
	slot := func(age time.Duration) time.Time { return time.Now().Add(-age).UTC().Truncate(violations.SlotLength) }
	recent := func(rule rules.RuleID, user string, age time.Duration, denied int64) violations.RecentDenials {
		return violations.RecentDenials{
			Tenant: w.acme.ID, Dimension: violations.ByUser, Slot: slot(age), Rule: rule, Mode: rules.ModeEnforce,
			Value: user, Denied: denied,
		}
	}
	err := w.store.WriteViolations(w.ctx(), &violations.Batch{
		Writer: w.name("writer"), Number: 1, Recent: []violations.RecentDenials{
			recent(requests.ID, "42", time.Minute, 100), recent(dollars.ID, "7", time.Minute, 200),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) string {
		t.Helper()
		path += fmt.Sprintf("from=%s&until=%s", stamp(at.Add(-time.Hour)), stamp(at.Add(time.Hour)))
		return w.get(by, stats+path).body
	}
	for path, want := range map[string]struct{ has, lacks string }{
		"/series?step_seconds=3600&": {
			`"allowed":90,"bypassed":0,"cost":90.5,"degraded":1,"denied":10`, "30.5",
		},
		"/series?step_seconds=3600&meter=usd&": {
			`"allowed":30,"bypassed":0,"cost":30.5,"degraded":1,"denied":7`, "90.5",
		},
		"/series?step_seconds=3600&meter=eur&": {`"total":{"allowed":0,"bypassed":0,"cost":0,`, "30.5"},
		"/summary?":                            {`"meters":["usd"]`, `"shadow_denied":5,`},
		"/summary?meter=usd&":                  {`"shadow_denied":5,`, `"allowed":90`},
		"/summary?meter=requests&":             {`"shadow_denied":0,`, `"allowed":30`},
		"/violations?meter=usd&":               {`"total":7`, `"checks":3`},
		"/violations?meter=requests&":          {`"total":3`, `"checks":7`},
		"/top?by=rule&meter=usd&":              {`"value":"` + formatID(dollars.ID) + `"`, `"meter":"requests"`},
		"/top?by=user&":                        {`"denied":103,`, `"denied":100,`},
		"/top?by=user&meter=usd&":              {`"denied":207,`, `"value":"42"`},
		"/top?by=user&meter=requests&":         {`"denied":103,`, `"value":"7"`},
		"/top?by=endpoint&meter=requests&":     {`"denied":3,`, `"denied":10,`},
	} {
		if got := get(path); !strings.Contains(got, want.has) || strings.Contains(got, want.lacks) {
			t.Errorf("%s lacks %s, or has %s: %s", path, want.has, want.lacks, got)
		}
	}
	present := func(meter string) string {
		return w.get(by, stats+"/present?by=user"+meter).body
	}
	if all, one := present(""), present("&meter=usd"); !strings.Contains(all, `"value":"42"`) ||
		!strings.Contains(all, `"value":"7"`) || strings.Contains(one, `"value":"42"`) ||
		!strings.Contains(one, `"value":"7"`) {
		t.Errorf("at present there is %s and, of usd, %s", all, one)
	}
	list := w.get(by, "/api/v1/tenants/acme/violations?meter=usd").body
	if !strings.Contains(list, `"user_id":"7"`) || strings.Contains(list, `"user_id":"42"`) {
		t.Errorf("the violations of usd are %s", list)
	}
	for _, path := range []string{"/series?meter=US+Dollars", "/series?meter=usd&rule_id=1", "/summary?meter="} {
		w.want(w.send(by, "GET", stats+path, nil), http.StatusBadRequest)
	}
}
