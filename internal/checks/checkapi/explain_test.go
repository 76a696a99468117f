package checkapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func TestAnExplanationSaysWhatMatchesAndWhatNearlyDid(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(),
		with(limit(t, 1, "user:{user_id}", 0.5, 5), func(r *rules.Rule) { r.Plan, r.Name = "pro", "daily" }),
		with(limit(t, 2, "user:7", 0, 0), func(r *rules.Rule) { r.Action = rules.ActionBlock }),
		limit(t, 3, "ip:{ip}", 1, 1),
	)
	const body = `{"user_id":7}`
	for range 2 { // the second is answered like the first: nothing was taken
		w := h.post("/v1/explain", body)
		h.want(w, 200,
			`{"decision":{"allowed":false,"plan":"pro","violated_tier":"user","violated_rule":"user:7","violated_rule_id":2,`+
				`"reason":"blocked","retry_after_ms":null,"limit":null,"remaining":null,"reset_after_ms":null,"degraded":false,"tiers":[`+
				`{"rule_id":1,"name":"daily","scope":"user","key_pattern":"user:{user_id}","mode":"enforce","allowed":true,"limit":5,"remaining":5,"retry_after_ms":0,"reset_after_ms":0,"window_ms":10000,"more_after_ms":0},`+
				`{"rule_id":2,"name":"","scope":"user","key_pattern":"user:7","mode":"enforce","allowed":false,"limit":null,"remaining":null,"retry_after_ms":null,"reset_after_ms":null}]},`+
				`"plan_source":"user","enforcement":"on","rules":[`+
				`{"rule_id":1,"name":"daily","scope":"user","key_pattern":"user:{user_id}","mode":"enforce","plan":"pro","action":"limit","algorithm":"token_bucket","failure_mode":"local","rate_per_second":0.5,"burst_capacity":5,"limit_text":"0.5 per second, bursts to 5","overridden":false},`+
				`{"rule_id":2,"name":"","scope":"user","key_pattern":"user:7","mode":"enforce","plan":null,"action":"block","algorithm":"token_bucket","failure_mode":null,"rate_per_second":null,"burst_capacity":null,"limit_text":null,"overridden":false}],`+
				`"near_misses":[{"rule_id":3,"name":"","scope":"ip","key_pattern":"ip:{ip}","mode":"enforce","plan":null,"reason":"needs an ip, the check has none"}],`+
				`"unmatched_meters":[],"headers":[{"name":"X-Sluice-Reason","value":"blocked"}]}`)
		h.wantHeaders(w, nil)
	}
	if h.store.Len() != 0 || h.decided != 0 {
		t.Errorf("an explanation left %d buckets and %d decisions", h.store.Len(), h.decided)
	}
}

func TestAnExplanationHasTheHeadersOfTheCheck(t *testing.T) {
	t.Parallel()
	settings := rules.DefaultSettings()
	settings.RetryJitterPercent = 50
	h := newHarness(t, settings, limit(t, 1, "user:{user_id}", 0.5, 2), limit(t, 2, "global", 1, 100))
	explained := func() map[string]string {
		var got struct {
			Headers []struct{ Name, Value string }
		}
		if err := json.Unmarshal(h.post("/v1/explain", `{"user_id":7,"cost":2}`).Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, header := range got.Headers {
			all[header.Name] = header.Value
		}
		return all
	}
	h.post("/v1/check", `{"user_id":7,"cost":2}`)
	want := explained()
	denied := h.post("/v1/check", `{"user_id":7,"cost":2}`) // takes nothing, so both stand before the same buckets
	if denied.Code != 429 || len(want) != 7 {
		t.Fatalf("the check was answered with %d, and %d headers explained, want 429 and 7", denied.Code, len(want))
	}
	h.wantHeaders(denied, want)
}

func TestAnExplanationShowsTheOverrideThatHolds(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 1, 5))
	h.snapshot = h.snapshot.With(snapshot.Rows{Overrides: []rules.Override{
		{TenantID: 1, RuleID: 1, UserID: "7", RatePerSecond: 1000000.000001, Burst: 2000000, InForceSince: start},
	}})
	w := h.post("/v1/explain", `{"user_id":7}`)
	const want = `"rate_per_second":1000000.000001,"burst_capacity":2000000,"limit_text":"1,000,000.000001 per second, bursts to 2,000,000","overridden":true}`
	if !strings.Contains(w.Body.String(), want) {
		t.Errorf("answered %s, want %s in it", w.Body, want)
	}
}

func TestARuleWithAnUnknownWordActsByItsFailureModeAndIsExplained(t *testing.T) {
	t.Parallel()
	newer := func(mode rules.FailureMode) rules.Rule {
		return with(limit(t, 1, "user:{user_id}", 1, 5),
			func(r *rules.Rule) { r.Algorithm, r.FailureMode = "token_ring", mode })
	}
	const known = `{"rule_id":2,"name":"","scope":"global","key_pattern":"global","mode":"enforce","allowed":true,"limit":3,`
	for _, mode := range []rules.FailureMode{rules.FailOpen, rules.FailLocal} {
		h := newHarness(t, rules.DefaultSettings(), newer(mode), limit(t, 2, "global", 1, 3))
		h.want(h.post("/v1/check", `{"user_id":7}`), 200,
			`{"allowed":true,"plan":"pro","violated_tier":null,"violated_rule":null,`+
				`"violated_rule_id":null,"reason":null,"retry_after_ms":0,"limit":3,"remaining":2,"reset_after_ms":1000,"degraded":true,"tiers":[`+
				known+`"remaining":2,"retry_after_ms":0,"reset_after_ms":1000,"window_ms":3000,"more_after_ms":1000}]}`)
		w := h.post("/v1/explain", `{"user_id":7}`)
		if !strings.Contains(w.Body.String(),
			`"action":"limit","algorithm":"token_ring","unknown":"algorithm token_ring","failure_mode":"`+string(
				mode)+`","rate_per_second":null`) ||
			!strings.Contains(w.Body.String(), `"degraded":true`) || !strings.Contains(w.Body.String(), known) {
			t.Errorf("%s: explained as %s", mode, w.Body)
		}
		if h.store.Len() != 1 {
			t.Errorf("%s: %d buckets, want that of the rule that is known", mode, h.store.Len())
		}
	}
	h := newHarness(t, rules.DefaultSettings(), newer(rules.FailClosed), limit(t, 2, "global", 1, 3))
	for _, path := range []string{"/v1/check", "/v1/explain"} {
		w := h.post(path, `{"user_id":7}`)
		if !strings.Contains(w.Body.String(), `"violated_rule_id":1,"reason":"store_unavailable"`) ||
			path == "/v1/check" && w.Code != 503 {
			t.Errorf("closed: %s answered %d %s", path, w.Code, w.Body)
		}
	}
	if h.store.Len() != 0 {
		t.Error("a check that was denied closed took from another bucket")
	}
}

func TestAnExplanationSaysWhereThePlanComesFrom(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	for body, want := range map[string]string{
		`{"user_id":7,"plan":"free"}`: `"plan":"free","check"`,
		`{"user_id":7}`:               `"plan":"pro","user"`,
		`{"user_id":"free-rider"}`:    `"plan":"free","user"`,
		`{"user_id":8}`:               `"plan":"free","tenant"`,
		`{}`:                          `"plan":"free","tenant"`,
	} {
		w := h.post("/v1/explain", body)
		var got struct {
			Decision   struct{ Plan string }
			PlanSource string `json:"plan_source"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprintf(`"plan":%q,%q`, got.Decision.Plan, got.PlanSource) != want {
			t.Errorf("%s is explained by %+v, want %s", body, got, want)
		}
	}
}

func TestAtMostAHundredNearMissesAreTold(t *testing.T) {
	t.Parallel()
	var own []rules.Rule
	for id := range rules.RuleID(150) {
		own = append(own, limit(t, id+1, fmt.Sprintf("user:%d", 1000+id), 1, 1))
	}
	h := newHarness(t, rules.DefaultSettings(), own...)
	w := h.post("/v1/explain", `{"user_id":7}`)
	if got := strings.Count(w.Body.String(), `"reason":"`); got != 100 {
		t.Errorf("%d near misses, want 100", got)
	}
}

// TestAnExplanationSaysWhatABucketHasLent: lent tokens are not among the remaining ones.
func TestAnExplanationSaysWhatABucketHasLent(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 0.5, 100))
	explained := func() string { return h.post("/v1/explain", `{"user_id":7}`).Body.String() }
	if body := explained(); strings.Contains(body, `"lent"`) {
		t.Errorf("nothing is lent: %s", body)
	}
	leases := []enforce.Lease{{
		Key: enforce.Key{Tenant: 1, Rule: 1, Subject: "7"}, Limit: enforce.Limit{Rate: 0.5, Burst: 100},
		Ask: enforce.Ask{Want: 20 * enforce.Token},
	}}
	if err := h.store.Lease(t.Context(), leases); err != nil || leases[0].Grant.Amount != 20*enforce.Token {
		t.Fatalf("lent %+v: %v", leases[0].Grant, err)
	}
	if body := explained(); !strings.Contains(body, `"lent":{"tokens":20,"processes":1}`) ||
		!strings.Contains(body, `"remaining":80`) {
		t.Errorf("20 of 100 are lent: %s", body)
	}
}
