package adminapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

type listedOverrides struct {
	Items []struct {
		UserID  string `json:"user_id"`
		RuleID  int64  `json:"rule_id,string"`
		Expired bool   `json:"expired"`
	} `json:"items"`
	NextCursor *string `json:"next_cursor"`
}

func TestTheOverridesOfATenantAreListedByUserAndByEnd(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := newWorld(t)
	by, rule, second := w.person(w.acme, auth.Viewer), w.rule(w.acme), w.rule(w.acme)
	put := func(rule rules.Rule, user string, ends time.Duration) {
		override := rules.Override{
			TenantID: rule.TenantID, RuleID: rule.ID, UserID: user, RatePerSecond: 1, RateUnit: rules.PerSecond,
			Burst: 9, Reason: "test",
		}
		if ends != 0 {
			override.ExpiresAt = now.Add(ends).Truncate(time.Microsecond)
		}
		must(w.system().PutOverride(w.ctx(), override, rules.NoneStored))(t)
	}
	put(rule, "a", 0)
	put(rule, "b", 240*time.Hour)
	put(second, "b", 2*time.Hour)
	put(second, "c", time.Hour)
	put(w.rule(w.other), "z", time.Hour)
	soon := url.QueryEscape(now.Add(7 * 24 * time.Hour).UTC().Format(time.RFC3339))
	for query, want := range map[string][]string{
		"?":                             {"a", "b", "b", "c"},
		"?prefix=b":                     {"b", "b"},
		"?user_id=c":                    {"c"},
		"?sort=end":                     {"c", "b", "b"},
		"?sort=end&ends_before=" + soon: {"c", "b"},
		"?expired=false&ends_before=" + soon + "&sort=end": {"c", "b"},
		"?expired=false":                   {"a", "b", "b", "c"},
		"?expired=true":                    nil,
		"?sort=end&ends_after=" + soon:     {"b"},
		fmt.Sprint("?rule_id=", second.ID): {"b", "c"},
	} {
		var got []string
		address := "/api/v1/tenants/acme/overrides" + query + "&limit=1"
		for cursor := ""; ; {
			list := read[listedOverrides](t, w.get(by, address+cursor))
			for _, item := range list.Items {
				got = append(got, item.UserID)
			}
			if list.NextCursor == nil {
				break
			}
			cursor = "&cursor=" + *list.NextCursor
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s lists %q, want %q", query, got, want)
		}
	}
	first := read[listedOverrides](t, w.get(by, "/api/v1/tenants/acme/overrides?limit=1"))
	w.want(w.send(by, "GET", "/api/v1/tenants/acme/overrides?sort=end&limit=1&cursor="+*first.NextCursor, nil),
		http.StatusBadRequest)
	w.want(w.send(by, "GET", "/api/v1/tenants/acme/overrides?sort=rule", nil), http.StatusBadRequest)
}
