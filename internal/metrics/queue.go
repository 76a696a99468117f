package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// StoreQueue observes how checks wait for their turn at Redis, and how they are put together.
type StoreQueue struct{ waits, checks prometheus.Observer }

// StoreQueue registers the queue of checks in front of Redis, and returns its observer. depth is how many bucket reads wait.
func (m *Metrics) StoreQueue(depth func() int) *StoreQueue {
	m.gauge("sluice_store_queue_depth", "Reads of buckets that wait for their turn at Redis.",
		func() float64 { return float64(depth()) })
	waits := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sluice_store_queue_wait_seconds",
		Help:    "Time that calls waited for their turn at Redis.",
		Buckets: durationBuckets,
	})
	checks := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sluice_store_checks_per_script",
		Help:    "Checks that one script in Redis decided.",
		Buckets: []float64{1, 2, 4, 8, 16, 32, 64},
	})
	m.registry.MustRegister(waits, checks)
	return &StoreQueue{waits, checks}
}

// Waited times the wait of one call.
func (q *StoreQueue) Waited(wait time.Duration) { q.waits.Observe(wait.Seconds()) }

// ScriptSent counts the checks of one script.
func (q *StoreQueue) ScriptSent(checks int) { q.checks.Observe(float64(checks)) }
