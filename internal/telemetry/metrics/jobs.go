package metrics

import (
	"time"

	"github.com/sluicegate/sluice/internal/jobs/panics"
)

// Jobs registers the parked jobs, and this process's failed attempts.
func (m *Metrics) Jobs(counts func() (parked, failed int64)) {
	gauge(m, "sluice_jobs_parked",
		"Jobs whose last attempt failed, up to 1,000. A platform admin retries or removes them.",
		func() int64 { parked, _ := counts(); return parked })
	counter(m, "sluice_job_failures_total", "Failed attempts of jobs.",
		func() int64 { _, failed := counts(); return failed })
}

// PeriodicJob registers the lag of one kind of periodic job.
func (m *Metrics) PeriodicJob(kind string, lag func() time.Duration) {
	gauge(m, "sluice_periodic_job_lag_seconds",
		"How long a run of a periodic job has been due that ends all there is to do, when this process last looked.",
		func() float64 { return lag().Seconds() }, "kind", kind)
}

func (m *Metrics) panics() {
	counter(m, "sluice_panics_total", "Panics that ended one piece of work. The log has their stacks.", panics.Caught)
}
