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
			m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "sluice_capacity_tenants", ConstLabels: prometheus.Labels{"thing": string(thing), "use": use},
				Help: "Tenants that hold at least 90 % of their capacity (near), or all of it (full), when this " +
					"process last looked.",
			}, func() float64 { return float64(count(uses()[thing])) }))
		}
	}
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_capacity_refusals_total",
		Help: "Writes that the admin API refused because they exceed the tenant's capacity.",
	}, []string{"thing"})
	for _, thing := range rules.Things {
		refused.WithLabelValues(string(thing))
	}
	m.registry.MustRegister(refused)
	return CapacityRefusals{refused}
}
