package violations_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func ruleOf(id rules.RuleID, pattern string, mode rules.Mode) *rules.Rule {
	parsed, err := rules.ParsePattern(pattern)
	if err != nil {
		panic(err)
	}
	return &rules.Rule{ID: id, Pattern: parsed, Mode: mode, Action: rules.ActionLimit, Version: 3}
}

var (
	userRule   = ruleOf(12, "user:{user_id}", rules.ModeEnforce)
	globalRule = ruleOf(13, "global", rules.ModeEnforce)
	shadowRule = ruleOf(14, "user:{user_id}", rules.ModeShadow)
)

func denied(tenant rules.TenantID, user string) *violations.Check {
	return &violations.Check{
		Tenant: tenant, Request: &rules.Request{UserID: user, Endpoint: "/api/search", Method: "GET"},
		Plan: "free", Cost: violations.Token,
		Tiers: []violations.Tier{
			{
				Rule: userRule, Mode: rules.ModeEnforce, Subject: user, Reason: "limit_exceeded",
				Limit:      rules.Limit{Rate: 10, Burst: 50},
				BucketRead: true, Remaining: 650_000, RetryAfter: 35 * time.Millisecond,
			},
			{Rule: globalRule, Allowed: true, BucketRead: true},
		},
	}
}

func allowed(tenant rules.TenantID, user, ip string) *violations.Check {
	check := denied(tenant, user)
	check.Request.IP = netip.MustParseAddr(ip)
	check.Allowed, check.Tiers[0].Allowed, check.Tiers[0].Reason = true, true, ""
	return check
}

func flush(t *testing.T, r *violations.Recorder) {
	t.Helper()
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestADeniedCheckLeavesOneViolation(t *testing.T) {
	t.Parallel()
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{})
	r.Record(noon, denied(1, "42"))
	flush(t, r)
	if len(l.rows) != 1 {
		t.Fatalf("%d rows, want 1", len(l.rows))
	}
	got := *l.rows[0]
	want := violations.Violation{
		ID: violations.ID{At: noon}, Tenant: 1, Rule: 12, Subject: "42", Reason: "limit_exceeded",
		Scope: rules.ScopeUser, Mode: rules.ModeEnforce, Pattern: "user:{user_id}", Version: 3, Rate: 10, Burst: 50,
		LimitText: "10 per second, bursts to 50",
		UserID:    "42", Endpoint: "/api/search", Method: "GET", Plan: "free", Cost: violations.Token,
		Tokens: 650_000, TokensKnown: true, RetryAfter: 35 * time.Millisecond, Count: 1, LastAt: noon,
	}
	if got != want {
		t.Errorf("the row is\n%+v, want\n%+v", got, want)
	}
	if got.BucketKey() != "12:42" {
		t.Errorf("the bucket is %q", got.BucketKey())
	}
	wantVerdicts(t, "all checks", l.checks[1], violations.Verdicts{Denied: 1})
	wantVerdicts(t, "the rule that denied", l.verdicts[12], violations.Verdicts{Denied: 1})
	wantVerdicts(t, "the rule that did not", l.verdicts[13], violations.Verdicts{Allowed: 1})
}

func wantVerdicts(t *testing.T, of string, got, want violations.Verdicts) {
	t.Helper()
	if got != want {
		t.Errorf("the verdicts of %s are %+v, want %+v", of, got, want)
	}
}

func TestWhatIsCounted(t *testing.T) {
	t.Parallel()
	block := ruleOf(15, "user:{user_id}", rules.ModeEnforce)
	block.Action = rules.ActionBlock
	bypass := ruleOf(16, "user:{user_id}", rules.ModeEnforce)
	bypass.Action = rules.ActionBypass
	taken := violations.Verdicts{Allowed: 1, Taken: 1, TakenParts: 500_000}
	tests := map[string]struct {
		check     violations.Check
		whole     violations.Verdicts
		verdicts  map[rules.RuleID]violations.Verdicts
		violation rules.RuleID // 0 for none
	}{
		"an allowed check takes its cost from every bucket": {
			check: violations.Check{Allowed: true, Tiers: []violations.Tier{
				{Rule: userRule, Allowed: true, BucketRead: true}, {Rule: globalRule, Allowed: true, BucketRead: true},
			}},
			whole: taken, verdicts: map[rules.RuleID]violations.Verdicts{12: taken, 13: taken},
		},
		"a shadow rule that would have denied reports and took nothing": {
			check: violations.Check{Allowed: true, Tiers: []violations.Tier{
				{Rule: userRule, Allowed: true, BucketRead: true},
				{Rule: shadowRule, Mode: rules.ModeShadow, BucketRead: true, Reason: "limit_exceeded"},
			}},
			whole: taken, verdicts: map[rules.RuleID]violations.Verdicts{
				12: taken, 14: {Denied: 1},
				violations.ShadowRules: {Denied: 1},
			}, violation: 14,
		},
		"a check that a bypass let through has no violation of a shadow rule": {
			check: violations.Check{Allowed: true, Bypassed: true, Tiers: []violations.Tier{
				{Rule: bypass, Allowed: true},
				{Rule: shadowRule, Mode: rules.ModeShadow, BucketRead: true, Reason: "limit_exceeded"},
			}},
			whole:    violations.Verdicts{Bypassed: 1},
			verdicts: map[rules.RuleID]violations.Verdicts{14: {Bypassed: 1}, 16: {Bypassed: 1}},
		},
		"a shadow rule neither reports nor counts a check that another denied": {
			check: violations.Check{Tiers: []violations.Tier{
				{Rule: userRule, BucketRead: true, Reason: "limit_exceeded"},
				{Rule: shadowRule, Mode: rules.ModeShadow, BucketRead: true, Reason: "limit_exceeded"},
			}},
			whole:    violations.Verdicts{Denied: 1},
			verdicts: map[rules.RuleID]violations.Verdicts{12: {Denied: 1}}, violation: 12,
		},
		"a block": {
			check: violations.Check{Tiers: []violations.Tier{{Rule: block, Reason: "blocked"}}},
			whole: violations.Verdicts{Denied: 1}, verdicts: map[rules.RuleID]violations.Verdicts{15: {Denied: 1}},
			violation: 15,
		},
		"an allowed check that leaves less than a fifth of a limit": {
			check: violations.Check{Allowed: true, Tiers: []violations.Tier{
				{
					Rule: userRule, Allowed: true, BucketRead: true, Limit: rules.Limit{Burst: 10},
					Remaining: 2*violations.Token - 1,
				},
				{
					Rule: globalRule, Allowed: true, BucketRead: true, Limit: rules.Limit{Burst: 10},
					Remaining: 2 * violations.Token,
				},
			}},
			whole: taken,
			verdicts: map[rules.RuleID]violations.Verdicts{
				12: {Allowed: 1, NearLimit: 1, Taken: 1, TakenParts: 500_000}, 13: taken,
			},
		},
		"a bypass takes nothing": {
			check: violations.Check{
				Allowed: true, Bypassed: true,
				Tiers: []violations.Tier{{Rule: bypass, Allowed: true}},
			},
			whole:    violations.Verdicts{Bypassed: 1},
			verdicts: map[rules.RuleID]violations.Verdicts{16: {Bypassed: 1}},
		},
		"a check without rules": {
			check: violations.Check{Allowed: true}, whole: taken,
		},
		"a degraded decision": {
			check: violations.Check{
				Degraded: true,
				Tiers:    []violations.Tier{{Rule: userRule, Reason: "store_unavailable"}},
			},
			whole: violations.Verdicts{Denied: 1, Degraded: 1}, violation: 12,
			verdicts: map[rules.RuleID]violations.Verdicts{12: {Denied: 1, Degraded: 1}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger()
			r := violations.NewRecorder(l, violations.Options{})
			check := test.check
			check.Tenant, check.Request = 1, &rules.Request{}
			r.Record(noon, &check) // at no cost: not counted
			check.Cost = 1_500_000
			r.Record(noon, &check)
			flush(t, r)
			wantVerdicts(t, "all checks", l.checks[1], test.whole)
			if len(l.verdicts) != len(test.verdicts) {
				t.Errorf("%d rules were counted, want %d", len(l.verdicts), len(test.verdicts))
			}
			for rule, want := range test.verdicts {
				wantVerdicts(t, fmt.Sprint("rule ", rule), l.verdicts[rule], want)
			}
			if test.violation == 0 && len(l.rows) == 0 {
				return
			}
			if len(l.rows) != 1 || l.rows[0].Rule != test.violation || l.rows[0].Count != 1 {
				t.Errorf("the violations are %+v, want one of rule %d", l.rows, test.violation)
			}
		})
	}
}

func TestTheFirstFewDifferentViolationsOfASecondAreRows(t *testing.T) {
	t.Parallel()
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{DetailsPerSecond: 2})
	for second := range 3 {
		for i := range 40 {
			check := denied(1, "42")
			check.Request.Endpoint = fmt.Sprintf("/%d", i%4)
			r.Record(noon.Add(time.Duration(second)*time.Second+time.Duration(i)*time.Millisecond), check)
		}
	}
	flush(t, r)
	if denied := l.wantBalance(t); denied != 120 {
		t.Errorf("%d denials are counted, want 120", denied)
	}
	if len(l.rows) != 6 {
		t.Fatalf("%d rows in three seconds, want 6", len(l.rows))
	}
	for _, row := range l.rows {
		if row.Count != 10 || row.LastAt.Sub(row.ID.At) != 36*time.Millisecond {
			t.Errorf("a row stands for %d from %s to %s, want 10 within 36 ms", row.Count, row.ID.At, row.LastAt)
		}
	}
	if dropped := r.Stats().Dropped; dropped != 60 {
		t.Errorf("%d details were dropped, want 60", dropped)
	}
}

func TestAViolationHasTheModeThatWasInForce(t *testing.T) {
	t.Parallel()
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{})
	r.Record(noon, denied(1, "42"))
	inShadow := denied(1, "42")
	inShadow.Allowed, inShadow.Deciding = true, -1
	for i := range inShadow.Tiers {
		inShadow.Tiers[i].Mode = rules.ModeShadow
	}
	r.Record(noon.Add(time.Millisecond), inShadow)
	flush(t, r)
	var modes []rules.Mode
	for _, row := range l.rows {
		modes = append(modes, row.Mode)
	}
	if want := []rules.Mode{rules.ModeEnforce, rules.ModeShadow}; !slices.Equal(modes, want) {
		t.Errorf("the violations have the modes %q, want %q", modes, want)
	}
}

func TestTheRulesOfAMeterAreCountedTogether(t *testing.T) {
	t.Parallel()
	l := newLedger()
	r := violations.NewRecorder(l, violations.Options{})
	usd := func(id rules.RuleID, mode rules.Mode) *rules.Rule {
		rule := ruleOf(id, "user:{user_id}", mode)
		rule.Meter = "usd"
		return rule
	}
	dollars := []*rules.Rule{
		usd(21, rules.ModeEnforce), usd(22, rules.ModeEnforce), usd(23, rules.ModeShadow),
	}
	check := func(allowed ...bool) *violations.Check {
		c := denied(1, "42")
		c.ByMeter, c.Allowed, c.Tiers = true, true, c.Tiers[1:] // the rule of requests allows
		c.Tiers[0].Mode = rules.ModeEnforce
		for i, rule := range dollars {
			c.Tiers = append(c.Tiers, violations.Tier{
				Rule: rule, Mode: rule.Mode, Subject: "42", BucketRead: true, Allowed: allowed[i],
				Reason: "limit_exceeded", Cost: violations.Token / 4,
			})
			if !allowed[i] && rule.Mode == rules.ModeEnforce {
				c.Allowed, c.Deciding = false, len(c.Tiers)-1
			}
		}
		return c
	}
	for range 3 {
		r.Record(noon, check(true, true, true))
	}
	r.Record(noon, check(true, true, false))  // shadow rules deny nothing
	r.Record(noon, check(false, false, true)) // a check counts once
	r.Record(noon, denied(1, "42"))           // of a tenant whose rules count requests
	flush(t, r)
	wantVerdicts(t, "dollars", l.verdicts[violations.RulesOf("usd")],
		violations.Verdicts{Allowed: 4, Denied: 1, TakenParts: violations.Token})
	wantVerdicts(t, "requests", l.verdicts[violations.RulesOf("")], violations.Verdicts{Allowed: 5, Taken: 4})
	if violations.RulesOf("") >= violations.ShadowRules || violations.RulesOf("usd") == violations.RulesOf("eur") {
		t.Errorf("meters are counted under %d, %d and %d", violations.RulesOf(""), violations.RulesOf("usd"),
			violations.RulesOf("eur"))
	}
}
