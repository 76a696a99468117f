package rules

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRuleValidation(t *testing.T) {
	t.Parallel()
	withoutLimit := func(action Action) func(*Rule) {
		return func(r *Rule) { r.Action, r.RatePerSecond, r.Burst = action, 0, 0 }
	}
	tests := map[string]struct {
		change func(*Rule)
		want   []string // the beginning of each error
	}{
		"a limit is valid":            {func(*Rule) {}, nil},
		"the smallest limit is valid": {func(r *Rule) { r.RatePerSecond, r.Burst = MinRate, 1 }, nil},
		"the largest limit is valid": {
			func(r *Rule) { r.RatePerSecond, r.Burst = MaxRate, MaxBurst },
			nil,
		},
		"a year to fill is valid":             {func(r *Rule) { r.RatePerSecond, r.Burst = 1, 31_536_000 }, nil},
		"all plans are valid":                 {func(r *Rule) { r.Plan = "" }, nil},
		"a name in any script is valid":       {func(r *Rule) { r.Name = "été 日本" }, nil},
		"a description of two lines is valid": {func(r *Rule) { r.Description = "one\ntwo" }, nil},
		"a block is valid":                    {withoutLimit(ActionBlock), nil},
		"a shadow block is valid": {
			func(r *Rule) { withoutLimit(ActionBlock)(r); r.Mode = ModeShadow },
			nil,
		},
		"a bypass is valid": {withoutLimit(ActionBypass), nil},
		"a bypass has no shadow mode": {func(
			r *Rule,
		) {
			withoutLimit(ActionBypass)(r)
			r.Mode = ModeShadow
		}, []string{"mode: must be enforce"}},
		"a block has no limit": {
			func(r *Rule) { r.Action = ActionBlock },
			[]string{"rate_per_second: must be 0", "burst_capacity: must be 0"},
		},
		"a pattern is needed": {
			func(r *Rule) { r.Pattern = Pattern{} },
			[]string{"key_pattern: must be a key pattern"},
		},
		"a limit needs a rate": {
			func(r *Rule) { r.RatePerSecond = 0 },
			[]string{"rate_per_second: must be from 0.000001 to 1000000000 tokens per second, got 0"},
		},
		"a rate below the range": {
			func(r *Rule) { r.RatePerSecond = MinRate / 2 },
			[]string{"rate_per_second: must be from"},
		},
		"a rate above the range": {func(r *Rule) {
			r.RatePerSecond = math.Nextafter(MaxRate,
				math.Inf(1))
		}, []string{"rate_per_second: must be from"}},
		"a rate that is no number": {
			func(r *Rule) { r.RatePerSecond = math.NaN() },
			[]string{"rate_per_second: must be from"},
		},
		"an infinite rate": {
			func(r *Rule) { r.RatePerSecond = math.Inf(1) },
			[]string{"rate_per_second: must be from"},
		},
		"a limit needs a burst": {
			func(r *Rule) { r.Burst = 0 },
			[]string{"burst_capacity: must be a whole number from 1 to 1000000000, got 0"},
		},
		"a burst above the range": {
			func(r *Rule) { r.Burst = MaxBurst + 1 },
			[]string{"burst_capacity: must be a whole number from 1 to 1000000000, got 1000000001"},
		},
		"more than a year to fill": {
			func(r *Rule) { r.RatePerSecond, r.Burst = 1, 31_536_001 },
			[]string{"burst_capacity: must be at most 31536000 at this rate: a bucket of 31536001 would take 366 " +
				"days"},
		},
		"a plan that does not exist": {
			func(r *Rule) { r.Plan = "gold" },
			[]string{`plan: must be a plan of the tenant, and "gold" is none`},
		},
		"an unknown algorithm": {
			func(r *Rule) { r.Algorithm = "magic" },
			[]string{`algorithm: must be token_bucket or leaky_bucket or fixed_window or sliding_window or sliding_window_log or concurrency, got "magic"`},
		},
		"an unknown mode": {
			func(r *Rule) { r.Mode = "" },
			[]string{`mode: must be enforce or shadow, got ""`},
		},
		"an unknown action": {
			func(r *Rule) { r.Action = "deny" },
			[]string{`action: must be limit or block or bypass, got "deny"`},
		},
		"an unknown failure mode": {
			func(r *Rule) { r.FailureMode = "shut" },
			[]string{`failure_mode: must be local or open or closed, got "shut"`},
		},
		"an unknown unit": {
			func(r *Rule) { r.RateUnit = "week" },
			[]string{`rate_unit: must be second or minute or hour or day, got "week"`},
		},
		"a name that is too long": {
			func(r *Rule) { r.Name = strings.Repeat("x", 65) },
			[]string{"name: must be at most 64 characters long, got 65"},
		},
		"a name of two lines": {
			func(r *Rule) { r.Name = "a\nb" },
			[]string{"name: must be one line"},
		},
		"a name with space around it": {
			func(r *Rule) { r.Name = " a" },
			[]string{"name: must be one line"},
		},
		"a name that is not UTF-8": {
			func(r *Rule) { r.Name = "\xff" },
			[]string{"name: must be valid UTF-8"},
		},
		"a description that is too long": {
			func(r *Rule) { r.Description = strings.Repeat("é", 1001) },
			[]string{"description: must be at most 1000 characters long, got 1001"},
		},
		"a description with a NUL byte": {
			func(r *Rule) { r.Description = "\x00" },
			[]string{"description: must not contain a NUL byte"},
		},
		"all that is wrong is told at one time": {
			func(r *Rule) { r.Burst, r.Plan, r.Mode = 0, "gold", "x" },
			[]string{"plan:", "mode:", "burst_capacity:"},
		},
		"a bad rate says nothing of time to fill": {
			func(r *Rule) { r.RatePerSecond, r.Burst = 0, MaxBurst },
			[]string{"rate_per_second:"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule := limitRule(t, "user:{user_id}", 10, 50)
			rule.Plan = "free"
			test.change(&rule)
			expectErrors(t, rule.Validate(map[string]bool{"free": true}), test.want)
		})
	}
}

func TestOverrideValidation(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	type subject struct {
		rule     Rule
		override Override
	}
	tests := map[string]struct {
		change func(*subject)
		want   []string
	}{
		"an override is valid": {func(*subject) {}, nil},
		"one that expires later is valid": {
			func(s *subject) { s.override.ExpiresAt = now.Add(time.Microsecond) },
			nil,
		},
		"the longest user id is valid": {func(s *subject) { s.override.UserID = strings.Repeat("x", 256) }, nil},
		"a block has nothing to override": {
			func(s *subject) { s.rule.Action = ActionBlock },
			[]string{"rule: must be a rule that limits: a block rule"},
		},
		"buckets must be one user's": {
			func(s *subject) { s.rule = limitRule(t, "user:42", 1, 1) },
			[]string{"rule: must be a rule with user:{user_id} in its pattern: the buckets of user:42"},
		},
		"a user is needed": {
			func(s *subject) { s.override.UserID = "" },
			[]string{"user_id: must be 1 to 256 bytes long, got 0"},
		},
		"a user id that is too long": {
			func(s *subject) { s.override.UserID = strings.Repeat("x", 257) },
			[]string{"user_id: must be 1 to 256 bytes long, got 257"},
		},
		"a user id that is not UTF-8": {
			func(s *subject) { s.override.UserID = "a\xff" },
			[]string{"user_id: must be valid UTF-8"},
		},
		"a user id with a NUL byte": {
			func(s *subject) { s.override.UserID = "a\x00" },
			[]string{"user_id: must not contain a NUL byte"},
		},
		"a rate and a burst out of range": {
			func(s *subject) { s.override.RatePerSecond, s.override.Burst = 0, 0 },
			[]string{"rate_per_second:", "burst_capacity:"},
		},
		"an unknown unit": {
			func(s *subject) { s.override.RateUnit = "" },
			[]string{"rate_unit: must be second"},
		},
		"a reason is needed": {
			func(s *subject) { s.override.Reason = " " },
			[]string{"reason: must say why"},
		},
		"a reason that is too long": {
			func(s *subject) { s.override.Reason = strings.Repeat("x", 501) },
			[]string{"reason: must be at most 500 characters long"},
		},
		"an expiry that is now": {
			func(s *subject) { s.override.ExpiresAt = now },
			[]string{"expires_at: must be in the future, got 2026-06-01T12:00:00Z"},
		},
		"an expiry finer than the database": {
			func(s *subject) { s.override.ExpiresAt = now.Add(time.Hour + 1) },
			[]string{"expires_at: must be no finer than a microsecond"},
		},
		"an expiry that no timestamp writes": {
			func(s *subject) { s.override.ExpiresAt = now.AddDate(8000, 0, 0) },
			[]string{"expires_at: must be before the year 10000"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := subject{
				limitRule(t, "user:{user_id}", 10, 50),
				Override{UserID: "42", RatePerSecond: 100, RateUnit: PerSecond, Burst: 500, Reason: "migration week"},
			}
			test.change(&s)
			expectErrors(t, s.override.Validate(&s.rule, now), test.want)
		})
	}
}

func TestTenantValidation(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*Tenant)
		want   []string
	}{
		"a tenant is valid":         {func(*Tenant) {}, nil},
		"the longest slug is valid": {func(x *Tenant) { x.Slug = strings.Repeat("a", 63) }, nil},
		"a slug is needed": {
			func(x *Tenant) { x.Slug = "" },
			[]string{"slug: must be 1 to 63 lower-case letters, digits and hyphens"},
		},
		"a slug that is too long":     {func(x *Tenant) { x.Slug = strings.Repeat("a", 64) }, []string{"slug:"}},
		"a slug in capitals":          {func(x *Tenant) { x.Slug = "Acme" }, []string{"slug:"}},
		"a slug that begins with a -": {func(x *Tenant) { x.Slug = "-acme" }, []string{"slug:"}},
		"a slug that ends with a -":   {func(x *Tenant) { x.Slug = "acme-" }, []string{"slug:"}},
		"a name is needed":            {func(x *Tenant) { x.Name = "" }, []string{"name: must not be empty"}},
		"settings out of range": {
			func(x *Tenant) { x.Settings = Settings{RetryJitterPercent: 51, IPv4Prefix: 33, IPv6Prefix: -1} },
			[]string{
				"retry_jitter_percent: must be a whole number from 0 to 50", "ipv4_prefix:", "ipv6_prefix:",
				"failure_mode: must be local",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tenant := Tenant{Slug: "acme-2", Name: "Acme", Settings: DefaultSettings()}
			test.change(&tenant)
			expectErrors(t, tenant.Validate(), test.want)
		})
	}
}

func TestPlanValidation(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"free":                  nil,
		"Pro_2024.v-1":          nil,
		strings.Repeat("x", 64): nil,
		strings.Repeat("x", 65): {"name: must be 1 to 64 letters"},
		"":                      {"name: must be 1 to 64 letters"},
		"pro plan":              {"name: must be 1 to 64 letters"},
		"é":                     {"name: must be 1 to 64 letters"},
	} {
		plan := Plan{Name: name}
		expectErrors(t, plan.Validate(), want)
	}
}

func TestAssignmentNeedsAUserAndAPlanOfTheTenant(t *testing.T) {
	t.Parallel()
	plans := map[string]bool{"pro": true}
	expectErrors(t, (&Assignment{UserID: "42", Plan: "pro"}).Validate(plans), nil)
	expectErrors(t, (&Assignment{}).Validate(plans), []string{"user_id:", "plan:"})
}

func limitRule(t *testing.T, pattern string, rate float64, burst int64) Rule {
	t.Helper()
	return Rule{
		Pattern: parsePattern(t, pattern), RatePerSecond: rate, RateUnit: PerSecond, Burst: burst,
		Algorithm: TokenBucket, Mode: ModeEnforce, Action: ActionLimit, Active: true,
	}
}

func expectErrors(t *testing.T, got FieldErrors, want []string) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(e FieldError, begin string) bool {
		return strings.HasPrefix(e.Field+": "+e.Message, begin)
	}) {
		t.Errorf("errors:\n got %q\nwant %q", got, want)
	}
}
