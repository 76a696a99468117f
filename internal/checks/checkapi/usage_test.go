package checkapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func usagePath(query string) string { return "/v1/usage" + query }

func TestUsageHasAllLimitsOfTheUserAndTakesNothing(t *testing.T) {
	t.Parallel()
	quota := limit(t, 2, "user:{user_id}:endpoint:/api/export", 0, 1000)
	quota.Name, quota.Algorithm, quota.Window = "monthly", rules.FixedWindow,
		rules.Window{Calendar: rules.CalendarMonth}
	places := limit(t, 3, "user:{user_id}", 0, 5)
	places.Name, places.Algorithm, places.MaxHold = "at once", rules.Concurrency, time.Minute
	sliding := limit(t, 4, "user:{user_id}:endpoint:/api/sliding", 0, 20)
	sliding.Algorithm, sliding.Window, sliding.Mode = rules.SlidingWindow, rules.Window{Length: time.Minute},
		rules.ModeShadow
	h := newHarness(t, rules.DefaultSettings(),
		limit(t, 1, "user:{user_id}", 10, 50), quota, places, sliding,
		with(limit(t, 5, "user:{user_id}:endpoint:/pro", 1, 9), func(r *rules.Rule) { r.Plan = "pro" }),
		limit(t, 6, "endpoint:{endpoint}", 1, 90), limit(t, 7, "user:{user_id}:ip:{ip}", 1, 90),
		limit(t, 8, "global", 1, 90),
		with(limit(t, 9, "user:{user_id}", 0, 0),
			func(r *rules.Rule) { r.Name, r.Action = "open", rules.ActionBypass; r.Active = false }),
	)
	if w := h.post("/v1/check", `{"user_id":"42","endpoint":"/api/export","cost":12.5}`); w.Code != 200 {
		t.Fatalf("answered %d %s", w.Code, w.Body)
	}
	decided := h.decided
	want := `{"user_id":"42","plan":"free","limits":[` +
		`{"rule_id":1,"name":"","scope":"user","key_pattern":"user:{user_id}","mode":"enforce","algorithm":"token_bucket",` +
		`"limit":50,"remaining":37.5,"used":12.5,"rate_per_second":10,"window_ends_at":null,"reset_after_ms":1250,"limit_text":"10 per second, bursts to 50"},` +
		`{"rule_id":2,"name":"monthly","scope":"user","key_pattern":"user:{user_id}:endpoint:/api/export","mode":"enforce","algorithm":"fixed_window",` +
		`"limit":1000,"remaining":987.5,"used":12.5,"rate_per_second":null,"window_ends_at":"2027-01-01T00:00:00Z","reset_after_ms":1761600000,"limit_text":"1,000 per month"},` +
		`{"rule_id":3,"name":"at once","scope":"user","key_pattern":"user:{user_id}","mode":"enforce","algorithm":"concurrency",` +
		`"limit":5,"remaining":4,"used":1,"rate_per_second":null,"window_ends_at":null,"reset_after_ms":null,"limit_text":"5 at once, held at most 1 min"},` +
		`{"rule_id":4,"name":"","scope":"user","key_pattern":"user:{user_id}:endpoint:/api/sliding","mode":"shadow","algorithm":"sliding_window",` +
		`"limit":20,"remaining":20,"used":0,"rate_per_second":null,"window_ends_at":null,"reset_after_ms":0,"limit_text":"about 20 in any minute"}` +
		`],"has_more":false}`
	for range 2 { // the second shows that the first took nothing
		w := h.getAs(fullKey, usagePath("?user_id=42"))
		h.want(w, 200, want)
		if got := header(w, "Cache-Control"); got != "no-store" {
			t.Errorf("Cache-Control is %q", got)
		}
	}
	if h.decided != decided {
		t.Error("a look counts as a decision")
	}
}

// TestUsageAndHeadersEndAWindowAtTheSameTime, for allowed and denied checks, and for windows of a calendar.
func TestUsageAndHeadersEndAWindowAtTheSameTime(t *testing.T) {
	t.Parallel()
	for _, window := range []rules.Window{
		{Length: time.Minute}, {Length: 7 * 24 * time.Hour}, {Calendar: rules.CalendarMonth, Zone: "Asia/Kolkata"},
	} {
		h := newHarness(t, rules.DefaultSettings(), with(limit(t, 1, "user:{user_id}", 0, 2), func(r *rules.Rule) {
			r.Algorithm, r.Window = rules.FixedWindow, window
		}))
		for range 3 {
			reset := header(h.post("/v1/check", `{"user_id":"42"}`), "X-RateLimit-Reset")
			var usage struct {
				Limits []struct {
					Ends time.Time `json:"window_ends_at"`
				}
			}
			answer := h.getAs(fullKey, usagePath("?user_id=42"))
			if err := json.Unmarshal(answer.Body.Bytes(), &usage); err != nil || len(usage.Limits) != 1 {
				t.Fatalf("answered %d %s: %v", answer.Code, answer.Body, err)
			}
			if ends := fmt.Sprint(usage.Limits[0].Ends.Unix()); ends != reset {
				t.Errorf("%+v ends at %s in the usage, and at %s in the headers", window, ends, reset)
			}
		}
	}
}

func usageOf(t *testing.T, h *harness, key, user string) (all []string, hasMore bool) {
	t.Helper()
	w := h.getAs(key, usagePath("?user_id="+user))
	var answer struct {
		Limits []struct {
			KeyPattern string `json:"key_pattern"`
			Limit      int64
			Used       float64
			LimitText  string `json:"limit_text"`
		}
		HasMore bool `json:"has_more"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 {
		t.Fatalf("answered %d %s: %v", w.Code, w.Body, err)
	}
	for _, l := range answer.Limits {
		all = append(all, fmt.Sprintf("%s %d %g %s", l.KeyPattern, l.Limit, l.Used, l.LimitText))
	}
	return all, answer.HasMore
}

func TestUsageIsOfTheUsersPlanAndOverrides(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(),
		with(limit(t, 1, "user:{user_id}", 1, 10), func(r *rules.Rule) { r.Plan = "free" }),
		with(limit(t, 2, "user:{user_id}", 1, 100), func(r *rules.Rule) { r.Plan = "pro" }),
		limit(t, 3, "user:7", 1, 77))
	h.snapshot = h.snapshot.With(snapshot.Rows{
		Tenants: []rules.Tenant{h.snapshot.Tenant(1).Tenant},
		Overrides: []rules.Override{
			{
				TenantID: 1, RuleID: 2, UserID: "7", RatePerSecond: 5, Burst: 500,
				InForceSince: start.Add(-time.Minute),
				ExpiresAt:    start.Add(time.Minute),
			},
		},
	})
	for user, want := range map[string]string{
		"7":          "user:{user_id} 500 0 5 per second, bursts to 500; user:7 77 0 1 per second, bursts to 77",
		"free-rider": "user:{user_id} 10 0 1 per second, bursts to 10",
		"nobody":     "user:{user_id} 10 0 1 per second, bursts to 10",
		"%E2%82%AC":  "user:{user_id} 10 0 1 per second, bursts to 10",
	} {
		if got, _ := usageOf(t, h, fullKey, user); strings.Join(got, "; ") != want {
			t.Errorf("%s has %q, want %q", user, got, want)
		}
	}
	for query, want := range map[string]string{
		"7&plan=free":     "user:{user_id} 10 0 1 per second, bursts to 10; user:7 77 0 1 per second, bursts to 77",
		"nobody&plan=pro": "user:{user_id} 100 0 1 per second, bursts to 100",
	} {
		if got, _ := usageOf(t, h, fullKey, query); strings.Join(got, "; ") != want {
			t.Errorf("%s has %q, want %q", query, got, want)
		}
	}
	h.now = h.now.Add(time.Hour)
	if got, _ := usageOf(t, h, fullKey, "7"); !strings.HasPrefix(strings.Join(got, "; "), "user:{user_id} 100 ") {
		t.Errorf("after the override: %q", got)
	}
}

func TestAnotherTenantsKeySeesNothingOfAUser(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 1, 50))
	theirs := limit(t, 2, "user:{user_id}", 1, 60)
	theirs.TenantID = 4
	h.snapshot = h.snapshot.With(snapshot.Rows{
		Tenants: []rules.Tenant{h.snapshot.Tenant(4).Tenant},
		Rules:   []rules.Rule{theirs},
	})
	h.post("/v1/check", `{"user_id":"42","cost":10}`)
	if got, _ := usageOf(t, h, fullKey, "42"); len(got) != 1 ||
		got[0] != "user:{user_id} 50 10 1 per second, bursts to 50" {
		t.Errorf("its tenant's key sees %q", got)
	}
	if got, _ := usageOf(t, h, "slk_other_"+secret, "42"); len(got) != 1 ||
		got[0] != "user:{user_id} 60 0 1 per second, bursts to 60" {
		t.Errorf("another tenant's key sees %q", got)
	}
	for key, status := range map[string]int{
		"": 401, "slk_manage_" + secret: 403, "slk_explain_" + secret: 403,
		"slk_suspended_" + secret: 403,
	} {
		if w := h.getAs(key, usagePath("?user_id=42")); w.Code != status ||
			strings.Contains(w.Body.String(), "limits\"") {
			t.Errorf("with the key %q: %d %s, want %d", key, w.Code, w.Body, status)
		}
	}
}

func TestUsageIsBounded(t *testing.T) {
	t.Parallel()
	var own []rules.Rule
	for id := range rules.RuleID(101) {
		own = append(own, limit(t, id+1, fmt.Sprintf("user:{user_id}:endpoint:/%d", id), 1, 50))
	}
	h := newHarness(t, rules.DefaultSettings(), own[:100]...)
	if got, hasMore := usageOf(t, h, fullKey, "42"); len(got) != 100 || hasMore {
		t.Errorf("of 100: %d, more: %t", len(got), hasMore)
	}
	h = newHarness(t, rules.DefaultSettings(), own...)
	if got, hasMore := usageOf(t, h, fullKey, "42"); len(got) != 100 || !hasMore {
		t.Errorf("of 101: %d, more: %t", len(got), hasMore)
	}
}

func TestUsageLeavesOutWhatThisProcessCannotApply(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(),
		with(limit(t, 1, "user:{user_id}", 1, 50),
			func(r *rules.Rule) { r.Algorithm, r.Unknown = "gcra", `algorithm "gcra"` }),
		limit(t, 2, "user:{user_id}:endpoint:/a", 1, 5))
	if got, _ := usageOf(t, h, fullKey, "42"); len(got) != 1 ||
		!strings.HasPrefix(got[0], "user:{user_id}:endpoint:/a ") {
		t.Errorf("it has %q", got)
	}
}

func TestUsageThatNobodyCanAsk(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 1, 50))
	for query, pointers := range map[string][]string{
		"":                                       {"/query/user_id"},
		"?user_id=":                              {"/query/user_id"},
		"?user_id=1&user_id=2":                   {"/query/user_id"},
		"?user_id=%00":                           {"/query/user_id"},
		"?user_id=%ff":                           {"/query/user_id"},
		"?user_id=" + strings.Repeat("x", 257):   {"/query/user_id"},
		"?user_id=1&plan=gold":                   {"/query/plan"},
		"?user_id=1&plan=":                       {"/query/plan"},
		"?user_id=1&plan=pro&plan=pro":           {"/query/plan"},
		"?USER_ID=1&a/b=2":                       {"/query/user_id", "/query/USER_ID", "/query/a~1b"},
		"?user_id=1&" + strings.Repeat("a=&", 3): {"/query/a"},
	} {
		h.wantRefused(h.getAs(fullKey, usagePath(query)), pointers...)
	}
	for _, query := range []string{"?user_id=%zz", "?user_id=1;plan=2"} {
		if w := h.getAs(fullKey, usagePath(query)); w.Code != 400 ||
			header(w, "Content-Type") != "application/problem+json" {
			t.Errorf("%s is answered %d %s", query, w.Code, w.Body)
		}
	}
	if w := h.post(usagePath("?user_id=1"), `{}`); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST is answered %d", w.Code)
	}
	if w := h.send("GET", usagePath("?user_id=1"), http.Header{"Authorization": {"Bearer " + fullKey}},
		"a body"); w.Code != 200 {
		t.Errorf("with a body that nobody reads: %d %s", w.Code, w.Body)
	}
}

func TestUsageWithoutTheStoreIs503(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 1, 50))
	h.storeErr = errStoreDown
	w := h.getAs(fullKey, usagePath("?user_id=42"))
	if w.Code != 503 || header(w, "Retry-After") != "1" || strings.Contains(w.Body.String(), errStoreDown.Error()) {
		t.Errorf("answered %d %v %s", w.Code, w.Header(), w.Body)
	}
	if got, _ := usageOf(t, h, "slk_other_"+secret, "42"); len(got) != 0 {
		t.Errorf("without limits, nothing is read: %q", got)
	}
}
