package violations_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

type outbox struct {
	violations.Outbox
	alerts  []violations.ActiveAlert
	batches [][]violations.ActiveAlert
	refuses rules.TenantID
	err     error
}

func (o *outbox) ActiveAlerts(context.Context) ([]violations.ActiveAlert, error) {
	return o.alerts, nil
}

func (o *outbox) RaiseAlerts(_ context.Context, alerts []violations.ActiveAlert, _ time.Time) (int64, error) {
	if slices.ContainsFunc(alerts, func(a violations.ActiveAlert) bool { return a.Tenant == o.refuses }) {
		return 0, o.err
	}
	o.batches = append(o.batches, slices.Clone(alerts))
	return int64(len(alerts)), nil
}

func (o *outbox) add(tenant rules.TenantID, alerts int) {
	for range alerts {
		o.alerts = append(o.alerts, violations.ActiveAlert{
			Alert: violations.Alert{ID: int64(len(o.alerts)), Tenant: tenant}, OfTenant: alerts,
		})
	}
}

func (o *outbox) pass(t *testing.T) error {
	t.Helper()
	return violations.RaiseAll(t.Context(), o, time.Now(), slog.New(slog.DiscardHandler))
}

func TestEachTenantsFirstAlertsAreJudgedBeforeAnyonesRest(t *testing.T) {
	t.Parallel()
	var o outbox
	o.add(1, 5000)
	for tenant := range 100 {
		o.add(rules.TenantID(2+tenant), 3)
	}
	if err := o.pass(t); err != nil {
		t.Fatal(err)
	}
	judged := slices.Concat(o.batches...)
	var quiet int
	seen := map[int64]bool{}
	for i, alert := range judged {
		if seen[alert.ID] = true; alert.Tenant != 1 && i < 100*3+10 {
			quiet++
		}
	}
	if len(judged) != 5300 || len(seen) != 5300 || quiet != 300 {
		t.Errorf("%d alerts of %d are judged, and %d of 300 before the greedy tenant's second turn", len(seen),
			len(judged), quiet)
	}
}

func TestATenantWhoseAlertsFailIsJudgedByItself(t *testing.T) {
	t.Parallel()
	o := outbox{refuses: 7, err: errors.New("too slow")}
	for tenant := range 300 {
		o.add(rules.TenantID(1+tenant), 3)
	}
	if err := o.pass(t); !errors.Is(err, o.err) {
		t.Errorf("the error is %v", err)
	}
	if judged := slices.Concat(o.batches...); len(judged) != 299*3 {
		t.Errorf("%d alerts are judged, want those of the other 299 tenants", len(judged))
	}
}

func TestAPassEndsWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	o := outbox{refuses: 1, err: rules.ErrAway}
	for range 10 {
		o.add(1, 500)
	}
	if err := o.pass(t); !errors.Is(err, rules.ErrAway) || len(o.batches) != 0 {
		t.Errorf("%d batches are judged: %v", len(o.batches), err)
	}
}
