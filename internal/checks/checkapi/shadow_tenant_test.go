package checkapi_test

import (
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func TestAnswersOfATenantInShadowSayThatEveryRuleIsAShadowRule(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(),
		limit(t, 1, "user:{user_id}", 0.5, 1),
		with(limit(t, 2, "user:7", 0, 0), func(r *rules.Rule) { r.Action = rules.ActionBlock }),
	)
	h.snapshot = h.snapshot.With(snapshot.Rows{Tenants: []rules.Tenant{
		{ID: 1, Slug: "one", DefaultPlan: "free", Settings: rules.DefaultSettings(), InShadow: true, Revision: 2},
	}})
	decision := func(first string) string {
		return `{"allowed":true,"plan":"pro","violated_tier":null,"violated_rule":null,"violated_rule_id":null,"reason":null,` +
			`"retry_after_ms":0,"limit":null,"remaining":null,"reset_after_ms":null,"degraded":false,"tiers":[` +
			`{"rule_id":1,"name":"","scope":"user","key_pattern":"user:{user_id}","mode":"shadow",` + first + `},` +
			`{"rule_id":2,"name":"","scope":"user","key_pattern":"user:7","mode":"shadow","allowed":false,"limit":null,"remaining":null,"retry_after_ms":null,"reset_after_ms":null}]}`
	}
	const taken = `"allowed":true,"limit":1,"remaining":0,"retry_after_ms":0,"reset_after_ms":2000`
	const lacking = `"allowed":false,"limit":1,"remaining":0,"retry_after_ms":2000,"reset_after_ms":2000`
	for _, first := range []string{taken, lacking} {
		w := h.post("/v1/check", `{"user_id":7}`)
		h.want(w, 200, decision(first))
		h.wantHeaders(w, nil)
	}
	h.want(h.post("/v1/explain", `{"user_id":7}`), 200,
		`{"decision":`+decision(lacking)+`,"plan_source":"user","enforcement":"shadow","rules":[`+
			`{"rule_id":1,"name":"","scope":"user","key_pattern":"user:{user_id}","mode":"shadow","plan":null,"action":"limit","algorithm":"token_bucket","failure_mode":"local","rate_per_second":0.5,"burst_capacity":1,"limit_text":"0.5 per second, bursts to 1","overridden":false},`+
			`{"rule_id":2,"name":"","scope":"user","key_pattern":"user:7","mode":"shadow","plan":null,"action":"block","algorithm":"token_bucket","failure_mode":null,"rate_per_second":null,"burst_capacity":null,"limit_text":null,"overridden":false}],`+
			`"near_misses":[],"unmatched_meters":[],"headers":[]}`)
	if w := h.post("/v1/check", `{"user_id":7,"plan":"gold"}`); w.Code != 400 {
		t.Errorf("an unknown plan is answered %d, want 400 as ever", w.Code)
	}
}
