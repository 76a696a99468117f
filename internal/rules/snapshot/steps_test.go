package snapshot

import (
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

var stepStart = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func stepped(t *testing.T, percent int, change func(*rules.Rule)) *Snapshot {
	t.Helper()
	pattern := must(rules.ParsePattern("user:{user_id}"))(t)
	rule := rules.Rule{
		ID: 1, TenantID: 1, Pattern: pattern, RatePerSecond: 10, RateUnit: rules.PerSecond, Burst: 50, Version: 3,
		Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce, Action: rules.ActionLimit, Active: true,
		InForceSince: stepStart.Add(-time.Hour),
		Adapt:        rules.Adapt{Backend: "search", FloorPercent: 10, P99: time.Second},
	}
	if change != nil {
		change(&rule)
	}
	return New(Rows{
		Tenants: []rules.Tenant{{ID: 1, Slug: "one"}},
		Rules:   []rules.Rule{rule},
		Overrides: []rules.Override{{
			TenantID: 1, RuleID: 1, UserID: "42", RatePerSecond: 100, Burst: 500,
			InForceSince: stepStart.Add(-time.Minute),
		}},
		Steps: []rules.Step{{
			TenantID: 1, RuleID: 1, Percent: percent, InForceSince: stepStart, EndsAt: stepStart.Add(time.Minute),
		}},
	})
}

func (s *Snapshot) limitAt(t *testing.T, user string, at time.Time) rules.Limit {
	t.Helper()
	matches := s.Tenant(1).Match(&rules.Request{UserID: user}, "", at, nil)
	if len(matches) != 1 {
		t.Fatalf("%d rules match", len(matches))
	}
	if bucket, ok := s.Tenant(1).Bucket(1, user, at); !ok || bucket.Limit != matches[0].Limit {
		t.Errorf("a check of %s has the limit %+v, and the bucket %+v", user, matches[0].Limit, bucket.Limit)
	}
	return matches[0].Limit
}

func TestAStepLowersTheRateAndADeadLoopRestoresItWithinAMinute(t *testing.T) {
	t.Parallel()
	s := stepped(t, 40, nil)
	during := s.limitAt(t, "7", stepStart.Add(59*time.Second))
	if during.Rate != 4 || during.Burst != 50 || during.Since != stepStart.UnixMicro() {
		t.Errorf("during the step the limit is %+v", during)
	}
	after := s.limitAt(t, "7", stepStart.Add(time.Minute))
	if after.Rate != 10 || after.Since <= during.Since {
		t.Errorf("a minute later the limit is %+v", after)
	}
	if want := stepStart.Add(time.Minute).UnixMicro() + 2; after.Since != want { // the rule's third version
		t.Errorf("it is in force since %d, want %d", after.Since, want)
	}
}

func TestARenewedStepIsALaterLimit(t *testing.T) {
	t.Parallel()
	s := stepped(t, 40, nil)
	before := s.limitAt(t, "7", stepStart.Add(30*time.Second))
	renewed := s.With(Rows{Steps: []rules.Step{{
		TenantID: 1, RuleID: 1, Percent: 40, InForceSince: stepStart.Add(20 * time.Second),
		EndsAt: stepStart.Add(80 * time.Second),
	}}})
	if got := renewed.limitAt(t, "7", stepStart.Add(70*time.Second)); !got.SameAmounts(before) ||
		got.Since <= before.Since {
		t.Errorf("the limit was %+v and is, renewed, %+v", before, got)
	}
	if again := renewed.With(Rows{}); again != renewed {
		t.Error("a poll without news makes a new snapshot")
	}
}

func TestAStepLeavesOverridesAlone(t *testing.T) {
	t.Parallel()
	s := stepped(t, 40, nil)
	for _, at := range []time.Duration{0, 59 * time.Second, time.Hour} {
		if limit := s.limitAt(t, "42", stepStart.Add(at)); limit.Rate != 100 || limit.Burst != 500 {
			t.Errorf("after %v the override is %+v", at, limit)
		}
	}
	ended := s.With(Rows{Overrides: []rules.Override{{
		TenantID: 1, RuleID: 1, UserID: "42", RatePerSecond: 100, Burst: 500, InForceSince: stepStart.Add(-time.Minute),
		RemovedAt: stepStart.Add(10 * time.Second),
	}}})
	if limit := ended.limitAt(t, "42", stepStart.Add(20*time.Second)); limit.Rate != 4 ||
		limit.Since <= stepStart.Add(10*time.Second).UnixMicro() {
		t.Errorf("without the override the limit is %+v", limit)
	}
}

func TestAStepOfARuleThatDoesNotAdaptMeansNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*rules.Rule){
		"no backend": func(r *rules.Rule) { r.Adapt = rules.Adapt{} },
		"a window": func(r *rules.Rule) {
			r.Algorithm, r.RatePerSecond, r.Window = rules.FixedWindow, 0, rules.Window{Length: time.Minute}
		},
	} {
		s := stepped(t, 40, change)
		if limit := s.limitAt(t, "7", stepStart); limit.Since != stepStart.Add(-time.Hour).UnixMicro() {
			t.Errorf("%s: the limit is %+v", name, limit)
		}
		if n := s.Sizes().AdaptingRules; n != 0 || s.Tenant(1).HasBackend("search") {
			t.Errorf("%s: %d rules adapt", name, n)
		}
	}
	s := stepped(t, 40, nil)
	if n := s.Sizes().AdaptingRules; n != 1 || !s.Tenant(1).HasBackend("search") || s.Tenant(1).HasBackend("mail") {
		t.Errorf("%d rules adapt", n)
	}
	if later := s.With(Rows{Rules: []rules.Rule{{ID: 1, TenantID: 1, Removed: true}}}); later.Sizes().
		AdaptingRules != 0 {
		t.Error("a removed rule adapts")
	}
}

func TestWhereALimitComesFrom(t *testing.T) {
	t.Parallel()
	s := stepped(t, 40, nil)
	for _, test := range []struct {
		user       string
		at         time.Duration
		overridden bool
		share      int
	}{
		{"7", 0, false, 40}, {"7", time.Minute, false, 100}, {"42", 0, true, 100},
	} {
		at := stepStart.Add(test.at)
		matches := s.Tenant(1).Match(&rules.Request{UserID: test.user}, "", at, nil)
		if overridden, share := s.Tenant(1).Stands(&matches[0], at); overridden != test.overridden ||
			share != test.share {
			t.Errorf("user %s after %v: overridden %t, share %d %%", test.user, test.at, overridden, share)
		}
	}
}
