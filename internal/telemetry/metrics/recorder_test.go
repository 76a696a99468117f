package metrics

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/violations"
)

func acme() *snapshot.Tenant {
	return snapshot.New(snapshot.Rows{Tenants: []rules.Tenant{{ID: 1, Slug: "acme"}}}).Tenant(1)
}

func TestViolationsAreCountedByTheRuleThatMadeThem(t *testing.T) {
	t.Parallel()
	user := tier(t, "user:{user_id}", rules.ModeEnforce, enforce.LimitExceeded)
	user.Match.Rule.ID = 12
	shadow := tier(t, "ip:{ip}", rules.ModeShadow, enforce.LimitExceeded)
	shadow.Match.Rule.ID = 13
	both := []enforce.TierDecision{user, shadow}
	tests := map[string]struct {
		cost     enforce.Tokens
		decision enforce.Decision
		want     []string
	}{
		"a denied check, by the tier that decided": {
			enforce.Token,
			enforce.Decision{Reason: enforce.LimitExceeded, Tiers: both},
			[]string{"mode=enforce rule=12 scope=user tenant=acme"},
		},
		"an allowed check, by the shadow rule that would have denied": {
			enforce.Token,
			enforce.Decision{Allowed: true, Tiers: both[1:]},
			[]string{"mode=shadow rule=13 scope=ip tenant=acme"},
		},
		"a look":   {0, enforce.Decision{Reason: enforce.LimitExceeded, Tiers: both}, nil},
		"a bypass": {enforce.Token, enforce.Decision{Allowed: true, Bypassed: true, Tiers: both[1:]}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := New("", "")
			m.Violations().Decided(acme(), &enforce.Check{Cost: test.cost}, &test.decision)
			assertMetric(t, m, "sluice_violations_total", test.want...)
		})
	}
}

func TestViolationsHaveABoundedNumberOfSeries(t *testing.T) {
	t.Parallel()
	v := New("", "").Violations()
	for id := range rules.RuleID(3 * maxViolationSeries) {
		denied := tier(t, "user:{user_id}", rules.ModeEnforce, enforce.LimitExceeded)
		denied.Match.Rule.ID = id + 1
		v.Decided(acme(), &enforce.Check{Cost: enforce.Token}, &enforce.Decision{Tiers: []enforce.TierDecision{denied}})
	}
	if n := testutil.CollectAndCount(v.counts); n != maxViolationSeries+1 {
		t.Errorf("there are %d series, want %d and one for the others", n, maxViolationSeries)
	}
	if others := testutil.ToFloat64(v.counts.WithLabelValues("other", "user", "other",
		"enforce")); others != 2*maxViolationSeries {
		t.Errorf("%g violations are of others, want %d", others, 2*maxViolationSeries)
	}
}

func TestTheRecorderIsShown(t *testing.T) {
	t.Parallel()
	m := New("", "")
	written := m.Recorder(func() violations.Stats {
		return violations.Stats{
			Subjects: 1, Details: 2, Bytes: 3, Batches: 4, Recorded: 5, Dropped: 6, Refused: 7, CountsLost: 8,
			Lag: 1500 * time.Millisecond,
		}
	})
	written(time.Millisecond, nil)
	written(time.Second, errors.New("away"))
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			got[family.GetName()] += series.GetGauge().GetValue() + series.GetCounter().GetValue() +
				float64(series.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"subjects": 1, "details": 2, "bytes": 3, "batches": 4, "violations_total": 5, "details_dropped_total": 6,
		"rows_refused_total": 7, "counts_lost_total": 8, "lag_seconds": 1.5, "write_duration_seconds": 2,
	} {
		if name = fmt.Sprint("sluice_recorder_", name); got[name] != want {
			t.Errorf("%s is %g, want %g", name, got[name], want)
		}
	}
}
