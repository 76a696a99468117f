package metrics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

func tier(t testing.TB, pattern string, mode rules.Mode, reason enforce.Reason) enforce.TierDecision {
	t.Helper()
	parsed, err := rules.ParsePattern(pattern)
	if err != nil {
		t.Fatal(err)
	}
	rule := &rules.Rule{Pattern: parsed, Action: rules.ActionLimit}
	return enforce.TierDecision{
		Match: &rules.Match{Rule: rule, Mode: mode}, Allowed: reason == "", Reason: reason, BucketRead: true,
	}
}

func assertMetric(t *testing.T, m *Metrics, name string, want ...string) {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, series := range family.GetMetric() {
			if series.GetCounter().GetValue() == 0 {
				continue
			}
			var labels []string
			for _, label := range series.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			line := strings.Join(labels, " ")
			for range int(series.GetCounter().GetValue()) {
				got = append(got, line)
			}
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s:\n%s\nwant:\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestEachDecisionIsCountedByWhatItWas(t *testing.T) {
	t.Parallel()
	enforced, shadow := rules.ModeEnforce, rules.ModeShadow
	tests := map[string]struct {
		decision enforce.Decision
		check    string
		tiers    []string
		degraded []string
	}{
		"nothing matched": {
			decision: enforce.Decision{Allowed: true},
			check:    "degraded=false outcome=allowed reason=",
		},
		"two tiers allowed": {
			decision: enforce.Decision{Allowed: true, Tiers: []enforce.TierDecision{
				tier(t, "global", enforced, ""), tier(t, "user:{user_id}", enforced, ""),
			}},
			check: "degraded=false outcome=allowed reason=",
			tiers: []string{"mode=enforce outcome=allowed scope=global", "mode=enforce outcome=allowed scope=user"},
		},
		"a shadow tier would have denied": {
			decision: enforce.Decision{Allowed: true, Tiers: []enforce.TierDecision{
				tier(t, "ip:{ip}", shadow, enforce.LimitExceeded),
			}},
			check: "degraded=false outcome=allowed reason=",
			tiers: []string{"mode=shadow outcome=denied scope=ip"},
		},
		"bypassed": {
			decision: enforce.Decision{Allowed: true, Bypassed: true},
			check:    "degraded=false outcome=bypassed reason=",
		},
		"denied": {
			decision: enforce.Decision{Reason: enforce.LimitExceeded, Tiers: []enforce.TierDecision{
				tier(t, "endpoint:/api/*", enforced, enforce.LimitExceeded),
			}},
			check: "degraded=false outcome=denied reason=limit_exceeded",
			tiers: []string{"mode=enforce outcome=denied scope=endpoint"},
		},
		"blocked": {
			decision: enforce.Decision{Reason: enforce.Blocked},
			check:    "degraded=false outcome=denied reason=blocked",
		},
		"a cost above the limit": {
			decision: enforce.Decision{Reason: enforce.CostExceedsLimit},
			check:    "degraded=false outcome=denied reason=cost_exceeds_limit",
		},
		"failed closed": {
			decision: enforce.Decision{Reason: enforce.StoreUnavailable, Degraded: true},
			check:    "degraded=true outcome=denied reason=store_unavailable",
			degraded: []string{"failure_mode=closed"},
		},
		"failed open": {
			decision: enforce.Decision{Allowed: true, Degraded: true},
			check:    "degraded=true outcome=allowed reason=",
			degraded: []string{"failure_mode=open"},
		},
		"failed local": {
			decision: enforce.Decision{Allowed: true, Degraded: true, Tiers: []enforce.TierDecision{
				tier(t, "global", enforced, ""),
			}},
			check:    "degraded=true outcome=allowed reason=",
			tiers:    []string{"mode=enforce outcome=allowed scope=global"},
			degraded: []string{"failure_mode=local"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := New("v1", "abc")
			m.Decisions("redis").Decided(nil, nil, &test.decision)
			assertMetric(t, m, "sluice_checks_total", test.check)
			assertMetric(t, m, "sluice_tier_decisions_total", test.tiers...)
			assertMetric(t, m, "sluice_degraded_decisions_total", test.degraded...)
		})
	}
}

func TestCountersWithFixedLabelsStartAtZero(t *testing.T) {
	t.Parallel()
	m := New("v1", "abc")
	m.Decisions("redis")
	for name, want := range map[string]int{
		"sluice_checks_total":             (1 + 1 + 6) * 2,
		"sluice_tier_decisions_total":     4 * 2 * 2,
		"sluice_degraded_decisions_total": 3,
		"sluice_store_duration_seconds":   2,
	} {
		if got, err := testutil.GatherAndCount(m.registry, name); err != nil || got != want {
			t.Errorf("%s has %d series, want %d (%v)", name, got, want, err)
		}
	}
}

func TestStoreAnswersAreTimedApartFromFailures(t *testing.T) {
	t.Parallel()
	m := New("v1", "abc")
	d := m.Decisions("redis")
	d.StoreAnswered(200*time.Microsecond, nil)
	d.StoreAnswered(300*time.Microsecond, nil)
	d.StoreAnswered(50*time.Millisecond, errors.New("away"))
	page := scrape(t, m)
	for _, line := range []string{
		`sluice_store_duration_seconds_bucket{result="ok",store="redis",le="0.00025"} 1`,
		`sluice_store_duration_seconds_bucket{result="ok",store="redis",le="0.0005"} 2`,
		`sluice_store_duration_seconds_count{result="ok",store="redis"} 2`,
		`sluice_store_duration_seconds_sum{result="error",store="redis"} 0.05`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the page lacks %s", line)
		}
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	m := New("v1", "abc")
	decisions, requests := m.Decisions("redis"), m.Requests("check")
	decision := fourTiers(t)
	requests.RequestAnswered("/v1/check", 200, time.Millisecond, "")
	if n := testing.AllocsPerRun(1000, func() {
		decisions.Decided(nil, nil, decision)
		decisions.StoreAnswered(time.Millisecond, nil)
		requests.RequestAnswered("/v1/check", 200, time.Millisecond, "")
	}); n != 0 {
		t.Errorf("counting one check allocates %.1f times", n)
	}
}

func BenchmarkDecided(b *testing.B) {
	d := New("v1", "abc").Decisions("redis")
	decision := fourTiers(b)
	b.ReportAllocs()
	for b.Loop() {
		d.Decided(nil, nil, decision)
	}
}

func fourTiers(t testing.TB) *enforce.Decision {
	t.Helper()
	return &enforce.Decision{Allowed: true, Tiers: []enforce.TierDecision{
		tier(t, "global", rules.ModeEnforce, ""),
		tier(t, "user:{user_id}", rules.ModeEnforce, ""),
		tier(t, "endpoint:{endpoint}", rules.ModeEnforce, ""),
		tier(t, "ip:{ip}", rules.ModeShadow, ""),
	}}
}
