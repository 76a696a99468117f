package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicegate/sluice/internal/jobs/panics"
)

// Jobs registers the parked jobs, and this process's failed attempts.
func (m *Metrics) Jobs(counts func() (parked, failed int64)) {
	m.gauge("sluice_jobs_parked",
		"Jobs whose last attempt failed, up to 1,000. A platform admin retries or removes them.",
		func() float64 { parked, _ := counts(); return float64(parked) })
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "sluice_job_failures_total", Help: "Failed attempts of jobs.",
	}, func() float64 { _, failed := counts(); return float64(failed) }))
}

// PeriodicJob registers the lag of one kind of periodic job.
func (m *Metrics) PeriodicJob(kind string, lag func() time.Duration) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_periodic_job_lag_seconds", ConstLabels: prometheus.Labels{"kind": kind},
		Help: "How long a run of a periodic job has been due that ends all there is to do, when this process last " +
			"looked.",
	}, func() float64 { return lag().Seconds() }))
}

func (m *Metrics) panics() {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "sluice_panics_total", Help: "Panics that ended one piece of work. The log has their stacks.",
	}, func() float64 { return float64(panics.Caught()) }))
}
