package snapshot

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/rules"
)

func userName(i int) string { return "user-" + strconv.Itoa(i) }

func matchedIDs(tenant *Tenant, r *rules.Request, plan string) []rules.RuleID {
	var ids []rules.RuleID
	for _, m := range tenant.Match(r, plan, testNow, nil) {
		ids = append(ids, m.Rule.ID)
	}
	return ids
}

func TestWhichRequestsAPatternMatches(t *testing.T) {
	t.Parallel()
	ip := netip.MustParseAddr
	full := rules.Request{
		UserID: "42", Endpoint: "/api/search", Method: "GET", IP: ip("203.0.113.9"),
		Attributes: []rules.Attribute{{Name: "org", Value: "acme"}, {Name: "model", Value: "x"}},
	}
	tests := map[string]struct {
		pattern string
		meets   []rules.Request
		misses  []rules.Request
	}{
		"global meets everything": {pattern: "global", meets: []rules.Request{{}, full}},
		"a placeholder needs a value": {
			pattern: "user:{user_id}", meets: []rules.Request{full, {UserID: "x"}},
			misses: []rules.Request{{}, {Endpoint: "/"}},
		},
		"a user id is compared whole": {
			pattern: "user:42", meets: []rules.Request{full},
			misses: []rules.Request{{}, {UserID: "4"}, {UserID: "421"}},
		},
		"an endpoint is compared whole": {
			pattern: "endpoint:/api/search", meets: []rules.Request{full},
			misses: []rules.Request{{}, {Endpoint: "/api/search/"}, {Endpoint: "/API/search"}, {Endpoint: "/api"}},
		},
		"below does not match the path": {
			pattern: "endpoint:/api/*",
			meets:   []rules.Request{full, {Endpoint: "/api/"}, {Endpoint: "/api/a/b"}},
			misses:  []rules.Request{{}, {Endpoint: "/api"}, {Endpoint: "/apix/a"}, {Endpoint: "x/api/a"}},
		},
		"below the root": {
			pattern: "endpoint:/*", meets: []rules.Request{full, {Endpoint: "/"}},
			misses: []rules.Request{{}, {Endpoint: "a/"}},
		},
		"a method must be the check's": {
			pattern: "endpoint:GET /api/search", meets: []rules.Request{full},
			misses: []rules.Request{
				{Endpoint: "/api/search"},
				{Endpoint: "/api/search", Method: "POST"},
				{Endpoint: "/api/search", Method: "get"},
			},
		},
		"a method and below": {
			pattern: "endpoint:POST /v1/*",
			meets:   []rules.Request{{Endpoint: "/v1/a", Method: "POST"}},
			misses: []rules.Request{
				{Endpoint: "/v1/a", Method: "GET"},
				{Endpoint: "/v2/a", Method: "POST"},
				{Endpoint: "/v1/a"},
			},
		},
		"an address": {
			pattern: "ip:203.0.113.9",
			meets:   []rules.Request{full, {IP: ip("::ffff:203.0.113.9")}},
			misses:  []rules.Request{{}, {IP: ip("203.0.113.8")}, {IP: ip("2001:db8::9")}},
		},
		"an ipv4 network": {
			pattern: "ip:203.0.113.0/24",
			meets:   []rules.Request{full, {IP: ip("::ffff:203.0.113.255")}},
			misses:  []rules.Request{{IP: ip("203.0.114.0")}, {IP: ip("::cb00:7109")}},
		},
		"all of ipv4": {
			pattern: "ip:0.0.0.0/0", meets: []rules.Request{full},
			misses: []rules.Request{{}, {IP: ip("::1")}},
		},
		"an ipv6 network": {
			pattern: `ip:"2001:db8::/33"`,
			meets:   []rules.Request{{IP: ip("2001:db8:7fff::1")}, {IP: ip("2001:db8::1%eth0")}},
			misses:  []rules.Request{{IP: ip("2001:db8:8000::1")}, full},
		},
		"an attribute's value": {
			pattern: "attr.org:acme", meets: []rules.Request{full},
			misses: []rules.Request{
				{},
				{Attributes: []rules.Attribute{{Name: "org", Value: "acm"}}},
				{Attributes: []rules.Attribute{{Name: "model", Value: "acme"}}},
			},
		},
		"any value of an attribute": {
			pattern: "attr.org:{attr.org}", meets: []rules.Request{full},
			misses: []rules.Request{{}, {Attributes: []rules.Attribute{{Name: "org", Value: ""}}}},
		},
		"all segments must hold": {
			pattern: "user:{user_id}:attr.model:x:attr.org:{attr.org}:endpoint:/api/*",
			meets:   []rules.Request{full}, misses: []rules.Request{
				{UserID: "42"},
				{UserID: "42", Endpoint: "/api/x", Attributes: []rules.Attribute{{Name: "org", Value: "acme"}}},
			},
		},
		"the same text in another field": {
			pattern: "user:42:endpoint:/42",
			meets:   []rules.Request{{UserID: "42", Endpoint: "/42"}},
			misses:  []rules.Request{{UserID: "/42", Endpoint: "42"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tenant := tenantWith(activeRule(t, 1, test.pattern))
			for _, r := range test.meets {
				if len(matchedIDs(tenant, &r, "")) != 1 || len(tenant.Misses(&r, "", testNow, 1)) != 0 {
					t.Errorf("%s does not match %+v", test.pattern, r)
				}
			}
			for _, r := range test.misses {
				if len(matchedIDs(tenant, &r, "")) != 0 || len(tenant.Misses(&r, "", testNow, 1)) != 1 {
					t.Errorf("%s matches %+v", test.pattern, r)
				}
			}
		})
	}
}

func TestOnlyValidActiveRulesOfThePlanMatchInOrderOfID(t *testing.T) {
	t.Parallel()
	on := func(plan string, id rules.RuleID) rules.Rule {
		rule := activeRule(t, id, "user:{user_id}")
		rule.Plan = plan
		return rule
	}
	off := on("", 3)
	off.Active = false
	invalid := on("", 4)
	invalid.Pattern = rules.Pattern{}
	tenant := tenantWith(on("pro", 9), on("", 7), on("free", 5), off, invalid, activeRule(t, 2, "global"))
	request := rules.Request{UserID: "42"}
	for plan, want := range map[string][]rules.RuleID{"pro": {2, 7, 9}, "free": {2, 5, 7}, "": {2, 7}} {
		if got := matchedIDs(tenant, &request, plan); !slices.Equal(got, want) {
			t.Errorf("on plan %q: %v, want %v", plan, got, want)
		}
	}
	kept := rules.Match{Subject: "kept"}
	if got := tenant.Match(&request, "pro", testNow, []rules.Match{kept}); len(got) != 4 || got[0] != kept {
		t.Errorf("dst was not appended to: %+v", got)
	}
}

func TestFailureModeIsTheRulesElseTheTenants(t *testing.T) {
	t.Parallel()
	open := activeRule(t, 2, "global")
	open.FailureMode = rules.FailOpen
	row := tenantRow()
	row.Settings.FailureMode = rules.FailClosed
	tenant := New(Rows{Tenants: []rules.Tenant{row}, Rules: []rules.Rule{activeRule(t, 1, "global"), open}}).Tenant(
		testTenant)
	got := tenant.Match(&rules.Request{}, "", testNow, nil)
	if got[0].FailureMode != rules.FailClosed || got[1].FailureMode != rules.FailOpen {
		t.Errorf("got %v and %v", got[0].FailureMode, got[1].FailureMode)
	}
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	request := func(ip string) rules.Request {
		return rules.Request{
			UserID: "42", Endpoint: "/a:b", IP: netip.MustParseAddr(ip),
			Attributes: []rules.Attribute{{Name: "org", Value: "acme"}},
		}
	}
	settings := func(v4, v6 int) rules.Settings { return rules.Settings{IPv4Prefix: v4, IPv6Prefix: v6} }
	tests := map[string]struct {
		pattern  string
		ip       string
		settings rules.Settings
		want     string
	}{
		"no placeholder, one bucket": {"user:42:endpoint:/a:b", "::1", rules.DefaultSettings(), ""},
		"one value is the subject":   {"user:{user_id}", "::1", rules.DefaultSettings(), "42"},
		"an endpoint":                {"endpoint:{endpoint}", "::1", rules.DefaultSettings(), "/a:b"},
		"an attribute":               {"attr.org:{attr.org}", "::1", rules.DefaultSettings(), "acme"},
		"several values carry their lengths": {
			"user:{user_id}:endpoint:{endpoint}", "::1", rules.DefaultSettings(),
			"2:42,4:/a:b",
		},
		"an address is one subject": {"ip:{ip}", "203.0.113.9", rules.DefaultSettings(), "203.0.113.9"},
		"mapped ipv4 is ipv4": {
			"ip:{ip}", "::ffff:203.0.113.9", rules.DefaultSettings(),
			"203.0.113.9",
		},
		"ipv6 is masked to its network":       {"ip:{ip}", "2001:db8::7:1", rules.DefaultSettings(), "2001:db8::/64"},
		"a tenant's ipv4 prefix":              {"ip:{ip}", "203.0.113.9", settings(24, 128), "203.0.113.0/24"},
		"a tenant's ipv6 prefix, zone or not": {"ip:{ip}", "fe80::1%eth0", settings(24, 128), "fe80::1"},
		"all of ipv4 together":                {"ip:{ip}", "203.0.113.9", settings(0, 0), "0.0.0.0/0"},
		"a masked address among others": {
			"user:{user_id}:ip:{ip}", "203.0.113.9", settings(24, 64),
			"2:42,14:203.0.113.0/24",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pattern := strings.ReplaceAll(test.pattern, "/a:b", `"/a:b"`)
			row := tenantRow()
			row.Settings = test.settings
			tenant := New(Rows{Tenants: []rules.Tenant{row}, Rules: []rules.Rule{activeRule(t, 1, pattern)}}).Tenant(
				testTenant)
			r := request(test.ip)
			got := tenant.Match(&r, "", testNow, nil)
			if len(got) != 1 || got[0].Subject != test.want {
				t.Errorf("got %+v, want subject %q", got, test.want)
			}
		})
	}
}

func TestDifferentValuesNeverShareASubject(t *testing.T) {
	t.Parallel()
	tenant := tenantWith(activeRule(t, 1, "user:{user_id}:attr.org:{attr.org}:endpoint:{endpoint}"))
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[0-9:,a]{1,6}`)
		draw := func(name string) rules.Request {
			return rules.Request{
				UserID: value.Draw(t, name+" user"), Endpoint: value.Draw(t, name+" endpoint"),
				Attributes: []rules.Attribute{{Name: "org", Value: value.Draw(t, name+" org")}},
			}
		}
		a, b := draw("one"), draw("other")
		same := a.UserID == b.UserID && a.Endpoint == b.Endpoint && a.Attributes[0] == b.Attributes[0]
		one, other := tenant.Match(&a, "", testNow, nil)[0].Subject, tenant.Match(&b, "", testNow, nil)[0].Subject
		if (one == other) != same {
			t.Fatalf("%+v has subject %q, %+v has %q", a, one, b, other)
		}
	})
}

func TestEffectiveLimit(t *testing.T) {
	t.Parallel()
	at := func(hours int) time.Time { return testNow.Add(time.Duration(hours) * time.Hour) }
	own := func(since time.Time) rules.Limit { return rules.Limit{Rate: 10, Burst: 50, Since: since.UnixMicro()} }
	raised := rules.Limit{Rate: 100, Burst: 500, Since: at(-3).UnixMicro()}
	override := rules.Override{
		TenantID: testTenant, RuleID: 1, UserID: "42", RatePerSecond: 100, Burst: 500,
		InForceSince: at(-3),
	}
	with := func(change func(*rules.Override)) []rules.Override {
		o := override
		change(&o)
		return []rules.Override{o}
	}
	tests := map[string]struct {
		pattern      string
		action       rules.Action
		candidateFor rules.RuleID
		overrides    []rules.Override
		want         rules.Limit
	}{
		"without an override the rule's": {want: own(at(-5))},
		"another user's override": {
			overrides: with(func(o *rules.Override) { o.UserID = "7" }),
			want:      own(at(-5)),
		},
		"another rule's override": {
			overrides: with(func(o *rules.Override) { o.RuleID = 2 }),
			want:      own(at(-5)),
		},
		"an override without an end": {overrides: []rules.Override{override}, want: raised},
		"an override with an end to " +
			"come": {
			overrides: with(func(o *rules.Override) { o.ExpiresAt = testNow.Add(time.Microsecond) }),
			want:      raised,
		},
		"an override ends at its expiry": {overrides: with(
			func(o *rules.Override) { o.ExpiresAt = testNow }), want: own(testNow)},
		"an expired one leaves its expiry": {
			overrides: with(func(o *rules.Override) { o.ExpiresAt = at(-1) }),
			want:      own(at(-1)),
		},
		"a removed one leaves its removal": {overrides: with(func(o *rules.Override) {
			o.RemovedAt,
				o.ExpiresAt = at(-2), at(9)
		}), want: own(at(-2))},
		"removed after it expired": {overrides: with(func(o *rules.Override) {
			o.RemovedAt,
				o.ExpiresAt = at(-1), at(-2)
		}), want: own(at(-1))},
		"an end before the rule's own edit": {overrides: with(func(o *rules.Override) {
			o.InForceSince,
				o.RemovedAt = at(-9), at(-7)
		}), want: own(at(-5))},
		"edited into the past it ended at the edit": {
			overrides: with(func(o *rules.Override) { o.ExpiresAt = at(-4) }),
			want:      own(at(-3)),
		},
		"a pattern that does not split by user": {
			pattern: "user:42", overrides: []rules.Override{override},
			want: own(at(-5)),
		},
		"all buckets of the user": {
			pattern:   "user:{user_id}:endpoint:{endpoint}",
			overrides: []rules.Override{override}, want: raised,
		},
		"a block has no limit to override": {
			action: rules.ActionBlock, overrides: []rules.Override{override},
			want: own(at(-5)),
		},
		"of a candidate the live rule's override": {
			candidateFor: 2,
			overrides:    with(func(o *rules.Override) { o.RuleID = 2 }), want: raised,
		},
		"of a candidate its own override first": {
			candidateFor: 2, overrides: append(with(func(o *rules.Override) { o.RuleID, o.Burst = 2, 9 }), override),
			want: raised,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.pattern == "" {
				test.pattern = "user:{user_id}"
			}
			rule := activeRule(t, 1, test.pattern)
			rule.InForceSince, rule.CandidateFor = at(-5), test.candidateFor
			if test.action != "" {
				rule.Action = test.action
			}
			tenant := New(Rows{
				Tenants: []rules.Tenant{tenantRow()}, Rules: []rules.Rule{rule},
				Overrides: test.overrides,
			}).Tenant(testTenant)
			got := tenant.Match(&rules.Request{UserID: "42", Endpoint: "/"}, "", testNow, nil)
			if len(got) != 1 || got[0].Limit != test.want {
				t.Errorf("got %+v, want %+v", got[0].Limit, test.want)
			}
		})
	}
}

func TestMatchAllocatesOnlyForMaskedAddressesAndJoinedSubjects(t *testing.T) {
	tests := map[string]struct {
		patterns []string
		most     float64
	}{
		"subjects that are the request's own": {[]string{
			"user:{user_id}", "endpoint:/api/*", "endpoint:{endpoint}",
			"ip:203.0.113.0/24", "attr.org:acme", "global",
		}, 0},
		"an address for two rules": {[]string{"ip:{ip}", "ip:{ip}:endpoint:/api/*"}, 1},
		"two values joined":        {[]string{"user:{user_id}:endpoint:{endpoint}"}, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var all []rules.Rule
			for i, pattern := range test.patterns {
				all = append(all, activeRule(t, rules.RuleID(i+1), pattern))
			}
			tenant := tenantWith(all...)
			request := rules.Request{
				UserID: "42", Endpoint: "/api/search", IP: netip.MustParseAddr("203.0.113.9"),
				Attributes: []rules.Attribute{{Name: "org", Value: "acme"}},
			}
			dst := make([]rules.Match, 0, len(all))
			got := testing.AllocsPerRun(100, func() { dst = tenant.Match(&request, "free", testNow, dst[:0]) })
			if got > test.most || len(dst) != len(all) {
				t.Errorf("%v allocations for %d of %d matches, want at most %v", got, len(dst), len(all), test.most)
			}
		})
	}
}

func TestARuleMatchesUntilItExpires(t *testing.T) {
	t.Parallel()
	block, limit, lasting := activeRule(t, 1, "ip:203.0.113.9"), activeRule(t, 2, "user:{user_id}"),
		activeRule(t, 3, "global")
	block.Action = rules.ActionBlock
	block.ExpiresAt, limit.ExpiresAt = testNow, testNow
	tenant := tenantWith(block, limit, lasting)
	request := rules.Request{UserID: "42", IP: netip.MustParseAddr("203.0.113.9")}
	for at, want := range map[time.Time][]rules.RuleID{
		testNow.Add(-time.Microsecond): {1, 2, 3},
		testNow:                        {3},
	} {
		var got []rules.RuleID
		for _, m := range tenant.Match(&request, "", at, nil) {
			got = append(got, m.Rule.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("at %s the rules %v match, want %v", at, got, want)
		}
		if buckets := tenant.UserBuckets("42", "", at, 10); len(buckets) != len(want)/2 {
			t.Errorf("at %s the user has the buckets %+v", at, buckets)
		}
	}
	misses := tenant.Misses(&request, "", testNow, 10)
	if len(misses) != 2 || misses[0].Reason != "expired at 2026-06-01T12:00:00Z" {
		t.Errorf("the misses are %+v", misses)
	}
}
