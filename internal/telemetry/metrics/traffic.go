package metrics

import "github.com/sluicegate/sluice/internal/traffic"

// Traffic registers the statistics of the recorder of checks.
func (m *Metrics) Traffic(stats func() traffic.Stats) {
	counter(m, "sluice_traffic_checks_total", "Checks that were recorded for replays.",
		func() float64 { return float64(stats().Recorded) })
	counter(m, "sluice_traffic_dropped_total", "Checks that were not recorded, because the memory for them was full.",
		func() float64 { return float64(stats().Dropped) })
	counter(m, "sluice_traffic_lost_total", "Recorded checks that could not be written.",
		func() float64 { return float64(stats().Lost) })
	counter(m, "sluice_traffic_lost_users_total",
		"Users whose checks are missing in the usage of a month, because the database refused their counts.",
		func() float64 { return float64(stats().LostUsers) })
	counter(m, "sluice_traffic_dropped_counts_total",
		"Counts of checks by user, month and meter that are missing in the usage of a month, because the memory for "+
			"them was full.",
		func() float64 { return float64(stats().DroppedCounts) })
	gauge(m, "sluice_traffic_bytes", "Recorded checks, packed, that wait to be written.",
		func() float64 { return float64(stats().Bytes) })
	gauge(m, "sluice_traffic_stored_bytes",
		"Recorded checks that the database keeps, of all tenants, when this process last looked.",
		func() float64 { return float64(stats().Stored) })
	gauge(m, "sluice_traffic_sampled_tenants",
		"Tenants whose checks this process records as a sample, because of the budgets.",
		func() float64 { return float64(stats().Sampled) })
	gauge(m, "sluice_traffic_stopped_tenants",
		"Tenants whose checks this process does not record, because the budgets are used up.",
		func() float64 { return float64(stats().Stopped) })
}
