package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicegate/sluice/internal/adapt"
)

const maxShares = 200

// Adapting registers the reports of backends and the control loop.
func (m *Metrics) Adapting(reports *adapt.Reports, loop *adapt.Loop) {
	for result, count := range map[string]func(adapt.ReportCounts) int64{
		"accepted":        func(c adapt.ReportCounts) int64 { return c.Accepted },
		"unknown_backend": func(c adapt.ReportCounts) int64 { return c.Unknown },
		"no_room":         func(c adapt.ReportCounts) int64 { return c.NoRoom },
		"not_stored":      func(c adapt.ReportCounts) int64 { return c.Lost },
	} {
		counter(m, "sluice_adapt_reports_total",
			"Reports of backends: accepted, of a backend that no active rule adapts to, without room in memory; and "+
				"sums of accepted ones that could not be stored.",
			func() int64 { return count(reports.Counts()) }, "result", result)
	}
	for direction, count := range map[string]func(up, down int64) int64{
		"up":   func(up, _ int64) int64 { return up },
		"down": func(_, down int64) int64 { return down },
	} {
		counter(m, "sluice_adapt_steps_total", "Steps of rates that adapt, made by this process.",
			func() int64 { return count(loop.Steps()) }, "direction", direction)
	}
	gauge(m, "sluice_adapt_leader",
		"1 in the process that decides on rates that adapt, 0 in the others. No process does while no rule adapts.",
		func() int { return index(loop.Leads()) })
	gauge(m, "sluice_adapt_rules_lowered", "Rules below their configured rate; only the leader knows.",
		func() float64 { return float64(len(loop.Shares())) })
	m.registry.MustRegister(shares{
		loop.Shares, prometheus.NewDesc("sluice_adapt_share_percent",
			"Share of its configured rate that a rule has, of the 200 rules with the lowest; only the leader knows.",
			[]string{"tenant", "rule"}, nil),
	})
}

type shares struct {
	read func() []adapt.Share
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (s shares) Describe(descs chan<- *prometheus.Desc) { descs <- s.desc }

// Collect implements prometheus.Collector.
func (s shares) Collect(series chan<- prometheus.Metric) {
	all := s.read()
	for _, share := range all[:min(len(all), maxShares)] {
		series <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(share.Percent),
			share.Tenant, strconv.FormatInt(int64(share.Rule), 10))
	}
}
