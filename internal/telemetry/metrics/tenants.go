package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

const maxTenants = 1000 // further ones count as "other"

// Tenants counts checks by tenant, as an enforce.Observer.
type Tenants struct {
	checks *prometheus.CounterVec
	series series[string, *tenantSeries]
}

type tenantSeries struct{ allowed, denied, degraded prometheus.Counter }

var _ enforce.Observer = (*Tenants)(nil)

// Tenants returns an observer for an enforce.Limiter.
func (m *Metrics) Tenants() *Tenants {
	return &Tenants{checks: m.counterVec("sluice_tenant_checks_total",
		"Checks decided, by tenant; degraded ones are among the allowed and denied. The first 1000 tenants have "+
			"series of their own; the rest is tenant other.", "tenant", "outcome")}
}

// Decided counts a decision.
func (t *Tenants) Decided(tenant *snapshot.Tenant, _ *enforce.Check, decision *enforce.Decision) {
	s, count := t.series.of(tenant.Tenant.Slug, "other", maxTenants, t.register), float64(decision.Count())
	if decision.Allowed {
		s.allowed.Add(count)
	} else {
		s.denied.Add(count)
	}
	if decision.Degraded {
		s.degraded.Inc()
	}
}

// StoreAnswered does nothing; Decisions counts it.
func (t *Tenants) StoreAnswered(time.Duration, error) {}

func (t *Tenants) register(slug string) *tenantSeries {
	return &tenantSeries{
		t.checks.WithLabelValues(slug, "allowed"), t.checks.WithLabelValues(slug, "denied"),
		t.checks.WithLabelValues(slug, "degraded"),
	}
}
