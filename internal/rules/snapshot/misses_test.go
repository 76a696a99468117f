package snapshot

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
)

func TestAMissSaysWhy(t *testing.T) {
	t.Parallel()
	full := rules.Request{
		UserID: "7", Endpoint: "/api/search", Method: "GET", IP: netip.MustParseAddr("::ffff:198.51.100.1"),
		Attributes: []rules.Attribute{{Name: "org", Value: "other"}},
	}
	tests := map[string]struct {
		pattern string
		plan    string
		off     bool
		request rules.Request
		checkOn string
		want    string
	}{
		"a rule that is off": {pattern: "global", off: true, want: "is off"},
		"another plan": {
			pattern: "global", plan: "pro", checkOn: "free",
			want: "is for plan pro; the check is on free",
		},
		"no plan":      {pattern: "global", plan: "pro", want: "is for plan pro; the check is on none"},
		"no user":      {pattern: "user:{user_id}", want: "needs a user, the check has none"},
		"another user": {pattern: "user:42", request: full, want: "user is 7, the rule wants 42"},
		"no endpoint":  {pattern: "endpoint:/v2/*", want: "needs an endpoint, the check has none"},
		"another endpoint": {
			pattern: "endpoint:/v2/a", request: full,
			want: "endpoint is /api/search, the rule wants /v2/a",
		},
		"an endpoint elsewhere": {
			pattern: "endpoint:/v2/*", request: full,
			want: "endpoint is /api/search, the rule wants below /v2/",
		},
		"no method": {
			pattern: "endpoint:POST /v2/a", request: rules.Request{Endpoint: "/v2/a"},
			want: "needs a method, the check has none",
		},
		"another method": {
			pattern: "endpoint:POST /api/search", request: full,
			want: "method is GET, the rule wants POST",
		},
		"no address": {pattern: "ip:{ip}", want: "needs an ip, the check has none"},
		"another address": {
			pattern: "ip:203.0.113.9", request: full,
			want: "ip is 198.51.100.1, the rule wants 203.0.113.9",
		},
		"another network": {
			pattern: "ip:203.0.113.0/24", request: full,
			want: "ip is 198.51.100.1, the rule wants 203.0.113.0/24",
		},
		"no attribute": {
			pattern: "attr.model:{attr.model}", request: full,
			want: "needs the attribute model, the check has none",
		},
		"another value": {
			pattern: "attr.org:acme", request: full,
			want: "attribute org is other, the rule wants acme",
		},
		"everything that fails is told": {
			pattern: "user:42:endpoint:POST /v2/*", plan: "pro", off: true, request: full, checkOn: "free",
			want: "is off; and is for plan pro; the check is on free; and user is 7, the rule wants 42; and endpoint " +
				"is /api/search, the rule wants below /v2/; and method is GET, the rule wants POST",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule := activeRule(t, 1, test.pattern)
			rule.Plan, rule.Active = test.plan, !test.off
			got := tenantWith(rule).Misses(&test.request, test.checkOn, testNow, 10)
			if len(got) != 1 || got[0].Reason != test.want || got[0].Rule.ID != 1 {
				t.Errorf("got %+v, want %q", got, test.want)
			}
		})
	}
}

func TestTheNearestMissesComeFirst(t *testing.T) {
	t.Parallel()
	off := activeRule(t, 3, "global")
	off.Active = false
	offForOthers := activeRule(t, 1, "user:42:ip:{ip}")
	offForOthers.Active = false
	tenant := tenantWith(
		offForOthers,                        // three conditions fail
		activeRule(t, 2, "user:42:ip:{ip}"), // two
		off,                                 // one
		activeRule(t, 4, "global"),          // none
		activeRule(t, 5, "user:42"),         // one
	)
	for limit, want := range map[int][]rules.RuleID{-1: nil, 0: nil, 1: {3}, 3: {3, 5, 2}, 100: {3, 5, 2, 1}} {
		var got []rules.RuleID
		for _, miss := range tenant.Misses(&rules.Request{UserID: "7"}, "", testNow, limit) {
			got = append(got, miss.Rule.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
	}
}
