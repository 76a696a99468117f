package metrics

// GatewayGaps returns the function that counts a gap of proxies' requests. names are all gaps, so that each has a
// series from the start.
func (m *Metrics) GatewayGaps(names []string) (count func(name string)) {
	gaps := m.counterVec("sluice_gateway_gaps_total",
		"Requests of gateways that may escape limits: without a usable address or cost, or of an unknown domain; and "+
			"descriptors that no rule matches.", "gap")
	for _, name := range names {
		gaps.WithLabelValues(name)
	}
	return func(name string) { gaps.WithLabelValues(name).Inc() }
}
