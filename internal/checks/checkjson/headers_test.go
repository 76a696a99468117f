package checkjson_test

import (
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestXRateLimitResetIsTheEndOfTheWindowByTheStoresClock(t *testing.T) {
	t.Parallel()
	decided := time.Date(2026, 12, 8, 10, 0, 59, 900_000_000, time.UTC)
	d := enforce.Decision{Allowed: true, Tiers: []enforce.TierDecision{{
		Match: &rules.Match{Rule: &rules.Rule{ID: 7}, Mode: rules.ModeEnforce}, Allowed: true, BucketRead: true,
		Limit: enforce.Limit{Kind: rules.KindFixedWindow, Burst: 10, Interval: time.Minute.Microseconds()},
		Stamp: decided.UnixMicro(), Remaining: 9 * enforce.Token, ResetAfter: 100 * time.Millisecond,
	}}}
	var h checkjson.Headers
	h.AddRateLimit(&d, decided.Add(200*time.Millisecond), 0)
	got := map[string]string{}
	for name, value := range h.Strings() {
		got[name] = value
	}
	if want := "1796724060"; got["X-RateLimit-Reset"] != want { // 10:01:00
		t.Errorf("X-RateLimit-Reset is %s, want %s", got["X-RateLimit-Reset"], want)
	}
}
