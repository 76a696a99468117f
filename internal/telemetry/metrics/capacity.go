package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicegate/sluice/internal/rules"
)

// CapacityRefusals counts writes beyond a tenant's capacity.
type CapacityRefusals struct{ refused *prometheus.CounterVec }

// Refused counts a refused write.
func (q CapacityRefusals) Refused(thing rules.Thing) { q.refused.WithLabelValues(string(thing)).Inc() }

// Capacity registers the number of tenants near their capacity, without names, so that the number of series is
// fixed.
func (m *Metrics) Capacity(uses func() map[rules.Thing]rules.CapacityUse) CapacityRefusals {
	for _, thing := range rules.Things {
		for use, count := range map[string]func(rules.CapacityUse) int{
			"near": func(u rules.CapacityUse) int { return u.Near },
			"full": func(u rules.CapacityUse) int { return u.Full },
		} {
			gauge(m, "sluice_capacity_tenants",
				"Tenants that hold at least 90 % of their capacity (near), or all of it (full), when this process "+
					"last looked.",
				func() int { return count(uses()[thing]) }, "thing", string(thing), "use", use)
		}
	}
	refused := m.counterVec("sluice_capacity_refusals_total",
		"Writes that the admin API refused because they exceed the tenant's capacity.", "thing")
	for _, thing := range rules.Things {
		refused.WithLabelValues(string(thing))
	}
	return CapacityRefusals{refused}
}
