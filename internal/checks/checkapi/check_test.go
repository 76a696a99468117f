package checkapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// The documented example, step by step: a burst of 50 at 10 per second. Fifty checks empty it, 65 ms
// bring 0.65 tokens back, and the next check must wait for 0.35 more: 35 ms. Full is 49.35 tokens,
// 4935 ms, away: at 14:40:05 exactly.
func TestTheDocumentedExampleIsAnsweredAsDocumented(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 12, "user:{user_id}", 10, 50))
	const body = `{"user_id":"42","plan":"pro","endpoint":"/api/search","method":"GET","ip":"203.0.113.9",
 "cost":1,"attributes":{"org":"acme"}}`

	w := h.post("/v1/check", body)
	h.want(w, 200, `{"allowed":true,"plan":"pro","violated_tier":null,"violated_rule":null,"violated_rule_id":null,`+
		`"reason":null,"retry_after_ms":0,"limit":50,"remaining":49,"reset_after_ms":100,"degraded":false,`+
		`"tiers":[{"rule_id":12,"name":"","scope":"user","key_pattern":"user:{user_id}","mode":"enforce",`+
		`"allowed":true,"limit":50,"remaining":49,"retry_after_ms":0,"reset_after_ms":100,"window_ms":5000,"more_after_ms":100}]}`)
	h.wantHeaders(w, map[string]string{
		"RateLimit-Policy": `"user-12";q=50;w=5`, "RateLimit": `"user-12";r=49;t=1`,
		"X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "49", "X-RateLimit-Reset": "1797000001",
	})
	for range 49 {
		h.post("/v1/check", body)
	}
	h.now = h.now.Add(65 * time.Millisecond)

	w = h.post("/v1/check", body)
	h.want(w, 429, `{"allowed":false,"plan":"pro","violated_tier":"user","violated_rule":"user:{user_id}",`+
		`"violated_rule_id":12,"reason":"limit_exceeded","retry_after_ms":35,`+
		`"limit":50,"remaining":0,"reset_after_ms":4935,"degraded":false,`+
		`"tiers":[{"rule_id":12,"name":"","scope":"user","key_pattern":"user:{user_id}","mode":"enforce",`+
		`"allowed":false,"limit":50,"remaining":0.65,"retry_after_ms":35,"reset_after_ms":4935,"window_ms":5000,"more_after_ms":35}]}`)
	h.wantHeaders(w, map[string]string{
		"RateLimit-Policy": `"user-12";q=50;w=5`, "RateLimit": `"user-12";r=0;t=1`,
		"X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1797000005",
		"Retry-After": "1", "X-Sluice-Reason": "limit_exceeded",
	})
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type is %q", got)
	}

	h.now = h.now.Add(35 * time.Millisecond)
	if w = h.post("/v1/check", body); w.Code != 200 {
		t.Errorf("after waiting as told the answer is %d %s", w.Code, w.Body)
	}
}

func TestEveryKindOfDecisionHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	block := func(r *rules.Rule) { r.Action, r.RatePerSecond, r.Burst = rules.ActionBlock, 0, 0 }
	bypass := func(r *rules.Rule) { r.Action, r.RatePerSecond, r.Burst = rules.ActionBypass, 0, 0 }
	shadow := func(r *rules.Rule) { r.Mode = rules.ModeShadow }
	closed := func(r *rules.Rule) { r.FailureMode = rules.FailClosed }
	open := func(r *rules.Rule) { r.FailureMode = rules.FailOpen }
	tests := map[string]struct {
		rules     []rules.Rule
		storeDown bool
		body      string
		status    int
		answer    string
		headers   map[string]string
	}{
		"nothing matches: nulls and no headers": {
			body: `{}`, status: 200,
			answer: `{"allowed":true,"plan":"free","violated_tier":null,"violated_rule":null,"violated_rule_id":null,` +
				`"reason":null,"retry_after_ms":0,"limit":null,"remaining":null,"reset_after_ms":null,"degraded":false,"tiers":[]}`,
		},
		"bypassed: nulls and no headers": {
			rules: []rules.Rule{limit(t, 3, "global", 1, 1), with(limit(t, 4, "ip:192.0.2.0/24", 1, 1), bypass)},
			body:  `{"ip":"192.0.2.1"}`, status: 200,
			answer: `{"allowed":true,"plan":"free","violated_tier":null,"violated_rule":null,"violated_rule_id":null,` +
				`"reason":null,"retry_after_ms":0,"limit":null,"remaining":null,"reset_after_ms":null,"degraded":false,` +
				`"tiers":[{"rule_id":4,"name":"","scope":"ip","key_pattern":"ip:192.0.2.0/24","mode":"enforce",` +
				`"allowed":true,"limit":null,"remaining":null,"retry_after_ms":0,"reset_after_ms":null}]}`,
		},
		"blocked: no wait helps": {
			rules: []rules.Rule{limit(t, 3, "global", 1, 1), with(limit(t, 4, "user:42", 1, 1), block)},
			body:  `{"user_id":42}`, status: 429,
			answer: `{"allowed":false,"plan":"free","violated_tier":"user","violated_rule":"user:42","violated_rule_id":4,` +
				`"reason":"blocked","retry_after_ms":null,"limit":null,"remaining":null,"reset_after_ms":null,"degraded":false,` +
				`"tiers":[{"rule_id":4,"name":"","scope":"user","key_pattern":"user:42","mode":"enforce",` +
				`"allowed":false,"limit":null,"remaining":null,"retry_after_ms":null,"reset_after_ms":null}]}`,
			headers: map[string]string{"X-Sluice-Reason": "blocked"},
		},
		"a cost above the burst: no wait helps, and the tier is told as it stands": {
			rules: []rules.Rule{limit(t, 3, "global", 0.25, 2)},
			body:  `{"cost":2.000001}`, status: 429,
			answer: `{"allowed":false,"plan":"free","violated_tier":"global","violated_rule":"global","violated_rule_id":3,` +
				`"reason":"cost_exceeds_limit","retry_after_ms":null,"limit":2,"remaining":2,"reset_after_ms":0,"degraded":false,` +
				`"tiers":[{"rule_id":3,"name":"","scope":"global","key_pattern":"global","mode":"enforce",` +
				`"allowed":false,"limit":2,"remaining":2,"retry_after_ms":null,"reset_after_ms":0,"window_ms":8000,"more_after_ms":0}]}`,
			headers: map[string]string{
				"RateLimit-Policy": `"global-3";q=2;w=8`, "RateLimit": `"global-3";r=2;t=0`,
				"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "2", "X-RateLimit-Reset": "1797000000",
				"X-Sluice-Reason": "cost_exceeds_limit",
			},
		},
		"two tiers: the scarcer is described, both have header items, and w is at least 1": {
			rules: []rules.Rule{limit(t, 3, "global", 1000, 100), limit(t, 4, "endpoint:/a", 1, 10)},
			body:  `{"endpoint":"/a","cost":0.5}`, status: 200,
			answer: `{"allowed":true,"plan":"free","violated_tier":null,"violated_rule":null,"violated_rule_id":null,` +
				`"reason":null,"retry_after_ms":0,"limit":10,"remaining":9,"reset_after_ms":500,"degraded":false,` +
				`"tiers":[{"rule_id":3,"name":"","scope":"global","key_pattern":"global","mode":"enforce",` +
				`"allowed":true,"limit":100,"remaining":99.5,"retry_after_ms":0,"reset_after_ms":1,"window_ms":100,"more_after_ms":1},` +
				`{"rule_id":4,"name":"","scope":"endpoint","key_pattern":"endpoint:/a","mode":"enforce",` +
				`"allowed":true,"limit":10,"remaining":9.5,"retry_after_ms":0,"reset_after_ms":500,"window_ms":10000,"more_after_ms":500}]}`,
			headers: map[string]string{
				"RateLimit-Policy":  `"global-3";q=100;w=1, "endpoint-4";q=10;w=10`,
				"RateLimit":         `"global-3";r=99;t=1, "endpoint-4";r=9;t=1`,
				"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "1797000001",
			},
		},
		"a shadow tier reports in the body alone": {
			rules: []rules.Rule{with(limit(t, 3, "global", 1, 2), shadow)},
			body:  `{"cost":3}`, status: 200,
			answer: `{"allowed":true,"plan":"free","violated_tier":null,"violated_rule":null,"violated_rule_id":null,` +
				`"reason":null,"retry_after_ms":0,"limit":null,"remaining":null,"reset_after_ms":null,"degraded":false,` +
				`"tiers":[{"rule_id":3,"name":"","scope":"global","key_pattern":"global","mode":"shadow",` +
				`"allowed":false,"limit":2,"remaining":2,"retry_after_ms":null,"reset_after_ms":0}]}`,
		},
		"the store is down and the tier is closed: 503, one second": {
			rules:     []rules.Rule{with(limit(t, 3, "global", 1, 2), closed)},
			storeDown: true,
			body:      `{}`, status: 503,
			answer: `{"allowed":false,"plan":"free","violated_tier":"global","violated_rule":"global","violated_rule_id":3,` +
				`"reason":"store_unavailable","retry_after_ms":1000,"limit":2,"remaining":null,"reset_after_ms":null,"degraded":true,` +
				`"tiers":[{"rule_id":3,"name":"","scope":"global","key_pattern":"global","mode":"enforce",` +
				`"allowed":false,"limit":2,"remaining":null,"retry_after_ms":1000,"reset_after_ms":null}]}`,
			headers: map[string]string{"Retry-After": "1", "X-Sluice-Reason": "store_unavailable"},
		},
		"the store is down and the tier is open: as if nothing matched, but degraded": {
			rules:     []rules.Rule{with(limit(t, 3, "global", 1, 2), open)},
			storeDown: true,
			body:      `{}`, status: 200,
			answer: `{"allowed":true,"plan":"free","violated_tier":null,"violated_rule":null,"violated_rule_id":null,` +
				`"reason":null,"retry_after_ms":0,"limit":null,"remaining":null,"reset_after_ms":null,"degraded":true,"tiers":[]}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, rules.DefaultSettings(), test.rules...)
			if test.storeDown {
				h.storeErr = errStoreDown
			}
			w := h.post("/v1/check", test.body)
			h.want(w, test.status, test.answer)
			h.wantHeaders(w, test.headers)
		})
	}
}

func TestEqualUsersShareABucketHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 1, 3), limit(t, 2, "ip:{ip}", 1, 5))
	for i, body := range []string{
		`{"user_id":42,"ip":"192.0.2.1"}`, `{"user_id":"42","ip":"::ffff:192.0.2.1"}`,
		`{"user_id":"4\u0032","ip":"::ffff:c000:201"}`,
	} {
		w := h.post("/v1/check", body)
		if want := fmt.Sprintf(`"remaining":%d,`, 2-i); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s is answered %s, want %s in it", body, w.Body, want)
		}
	}
	if got := h.store.Len(); got != 2 {
		t.Errorf("%d buckets, want one of the user and one of the address", got)
	}
}

func TestABatchIsDecidedInOrder(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 1, 2))
	w := h.post("/v1/check/batch",
		`{"checks":[{"user_id":"a"},{"user_id":"a","cost":1.5},{},{"user_id":7,"cost":3},{"user_id":"a","cost":1}]}`)
	const tier = `{"rule_id":1,"name":"","scope":"user","key_pattern":"user:{user_id}","mode":"enforce",`
	const none = `"violated_tier":null,"violated_rule":null,"violated_rule_id":null,"reason":null,"retry_after_ms":0,`
	const violated = `"violated_tier":"user","violated_rule":"user:{user_id}","violated_rule_id":1,`
	h.want(w, 200, `{"results":[`+
		`{"status":200,"allowed":true,"plan":"free",`+none+`"limit":2,"remaining":1,"reset_after_ms":1000,"degraded":false,"tiers":[`+
		tier+`"allowed":true,"limit":2,"remaining":1,"retry_after_ms":0,"reset_after_ms":1000,"window_ms":2000,"more_after_ms":1000}]},`+
		`{"status":429,"allowed":false,"plan":"free",`+violated+`"reason":"limit_exceeded","retry_after_ms":500,"limit":2,"remaining":1,"reset_after_ms":1000,"degraded":false,"tiers":[`+
		tier+`"allowed":false,"limit":2,"remaining":1,"retry_after_ms":500,"reset_after_ms":1000,"window_ms":2000,"more_after_ms":500}]},`+
		`{"status":200,"allowed":true,"plan":"free",`+none+`"limit":null,"remaining":null,"reset_after_ms":null,"degraded":false,"tiers":[]},`+
		`{"status":429,"allowed":false,"plan":"pro",`+violated+`"reason":"cost_exceeds_limit","retry_after_ms":null,"limit":2,"remaining":2,"reset_after_ms":0,"degraded":false,"tiers":[`+
		tier+`"allowed":false,"limit":2,"remaining":2,"retry_after_ms":null,"reset_after_ms":0,"window_ms":2000,"more_after_ms":0}]},`+
		`{"status":200,"allowed":true,"plan":"free",`+none+`"limit":2,"remaining":0,"reset_after_ms":2000,"degraded":false,"tiers":[`+
		tier+`"allowed":true,"limit":2,"remaining":0,"retry_after_ms":0,"reset_after_ms":2000,"window_ms":2000,"more_after_ms":1000}]}]}`)
	h.wantHeaders(w, nil)
}

func TestBatchesOfAnySizeUpToAThousandAreAnswered(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "global", 1, 1))
	for _, size := range []int{1000, 0, 1, 65, 2} { // shrinking too: memory is used again
		body := `{"checks":[` + strings.TrimSuffix(strings.Repeat(`{},`, size), ",") + `]}`
		w := h.post("/v1/check/batch", body)
		if got := strings.Count(w.Body.String(), `"status":`); w.Code != 200 || got != size {
			t.Errorf("%d checks are answered %d with %d results", size, w.Code, got)
		}
	}
}
