package metrics

import "github.com/prometheus/client_golang/prometheus"

// Mail registers the accepted and failed attempts to send mail.
func (m *Metrics) Mail(attempts func() (sent, failed int64)) {
	counter := func(result string, read func() int64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "sluice_mail_attempts_total",
			Help:        "Attempts to hand mail to the mail server. Failed ones are repeated for a day.",
			ConstLabels: prometheus.Labels{"result": result},
		}, func() float64 { return float64(read()) }))
	}
	counter("sent", func() int64 { sent, _ := attempts(); return sent })
	counter("failed", func() int64 { _, failed := attempts(); return failed })
}
