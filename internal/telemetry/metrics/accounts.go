package metrics

import "github.com/prometheus/client_golang/prometheus"

// AccountChanges returns the function that counts an unfinished change to an account.
func (m *Metrics) AccountChanges() (unfinished func()) {
	counter := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sluice_account_changes_unfinished_total",
		Help: "Sign-ins and changes to accounts that succeeded, but whose notice was not queued or whose failed " +
			"attempts still count.",
	})
	m.registry.MustRegister(counter)
	return counter.Inc
}
