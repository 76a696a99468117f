package metrics

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluicegate/sluice/internal/enforce"
)

func TestChecksAreCountedByTenant(t *testing.T) {
	t.Parallel()
	m := New("", "")
	tenants := m.Tenants()
	for _, d := range []enforce.Decision{
		{Allowed: true},
		{Allowed: true, Bypassed: true},
		{Reason: enforce.LimitExceeded},
		{Allowed: true, Degraded: true},
	} {
		tenants.Decided(acme(), &enforce.Check{}, &d)
	}
	for outcome, want := range map[string]float64{"allowed": 3, "denied": 1, "degraded": 1} {
		if got := testutil.ToFloat64(tenants.checks.WithLabelValues("acme", outcome)); got != want {
			t.Errorf("%g checks are %s, want %g", got, outcome, want)
		}
	}
}

func TestTenantsHaveABoundedNumberOfSeries(t *testing.T) {
	t.Parallel()
	tenants := New("", "").Tenants()
	for i := range 3 * maxTenants {
		tenant := acme()
		tenant.Tenant.Slug = fmt.Sprint("tenant-", i)
		tenants.Decided(tenant, &enforce.Check{}, &enforce.Decision{Allowed: true})
	}
	if n := testutil.CollectAndCount(tenants.checks); n != 3*(maxTenants+1) {
		t.Errorf("there are %d series, want three for each of %d tenants and the others", n, maxTenants)
	}
	if others := testutil.ToFloat64(tenants.checks.WithLabelValues("other", "allowed")); others != 2*maxTenants {
		t.Errorf("%g checks are of others, want %d", others, 2*maxTenants)
	}
}
