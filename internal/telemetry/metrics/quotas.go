package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicegate/sluice/internal/rules"
)

// QuotaRefusals counts writes that quotas refused.
type QuotaRefusals struct{ refused *prometheus.CounterVec }

// Refused counts a refused write.
func (q QuotaRefusals) Refused(thing rules.Thing) { q.refused.WithLabelValues(string(thing)).Inc() }

// Quotas registers the number of tenants near each quota, without their names, so that the number of series is fixed.
// uses returns nil until known.
func (m *Metrics) Quotas(uses func() map[rules.Thing]rules.QuotaUse) QuotaRefusals {
	for _, thing := range rules.Things {
		for use, count := range map[string]func(rules.QuotaUse) int{
			"near": func(u rules.QuotaUse) int { return u.Near },
			"full": func(u rules.QuotaUse) int { return u.Full },
		} {
			m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "sluice_quota_tenants", ConstLabels: prometheus.Labels{"thing": string(thing), "use": use},
				Help: "Tenants that hold at least 90 % of a quota (near), or all of it (full), when this process " +
					"last looked.",
			}, func() float64 { return float64(count(uses()[thing])) }))
		}
	}
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_quota_refusals_total",
		Help: "Writes that the admin API refused because of a quota of the tenant.",
	}, []string{"thing"})
	for _, thing := range rules.Things {
		refused.WithLabelValues(string(thing))
	}
	m.registry.MustRegister(refused)
	return QuotaRefusals{refused}
}
