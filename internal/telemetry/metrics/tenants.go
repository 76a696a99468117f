package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// maxTenants bounds the tenants with separate series. Later ones count as tenant "other".
const maxTenants = 1000

// Tenants counts checks by tenant, as an enforce.Observer.
type Tenants struct {
	checks *prometheus.CounterVec

	series atomic.Pointer[map[string]*tenantSeries]
	adding sync.Mutex
}

type tenantSeries struct{ allowed, denied, degraded prometheus.Counter }

var _ enforce.Observer = (*Tenants)(nil)

// Tenants returns an observer for an enforce.Limiter.
func (m *Metrics) Tenants() *Tenants {
	t := &Tenants{checks: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_tenant_checks_total",
		Help: "Checks decided, by tenant; degraded ones are among the allowed and denied. The first 1000 tenants " +
			"have " +
			"series of their own; the rest is tenant other.",
	}, []string{"tenant", "outcome"})}
	t.series.Store(&map[string]*tenantSeries{})
	m.registry.MustRegister(t.checks)
	return t
}

// Decided counts a decision.
func (t *Tenants) Decided(tenant *snapshot.Tenant, _ *enforce.Check, decision *enforce.Decision) {
	s, count := t.of(tenant.Tenant.Slug), float64(decision.Count())
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

func (t *Tenants) of(slug string) *tenantSeries {
	known := *t.series.Load()
	s, ok := known[slug]
	if !ok && len(known) >= maxTenants {
		slug = "other"
		s, ok = known[slug]
	}
	if !ok {
		s = t.add(slug)
	}
	return s
}

func (t *Tenants) add(slug string) *tenantSeries {
	t.adding.Lock()
	defer t.adding.Unlock()
	known := *t.series.Load()
	if s, ok := known[slug]; ok {
		return s
	}
	s := &tenantSeries{
		t.checks.WithLabelValues(slug, "allowed"), t.checks.WithLabelValues(slug, "denied"),
		t.checks.WithLabelValues(slug, "degraded"),
	}
	series := maps.Clone(known)
	series[slug] = s
	t.series.Store(&series)
	return s
}
