package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// StoreQueue observes how checks wait for their turn at Redis, and how they are put together.
type StoreQueue struct {
	waits, checks prometheus.Observer
	shed          [2]prometheus.Counter // by early
}

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
	shed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_store_shed_checks_total",
		Help: "Checks that failure modes decided because more waited than the store decides in time. Most are refused at_once, " +
			"before they wait; others waited for their turn.",
	}, []string{"when"})
	m.registry.MustRegister(waits, checks, shed)
	return &StoreQueue{waits, checks, [2]prometheus.Counter{shed.WithLabelValues("waited"), shed.WithLabelValues("at_once")}}
}

// Waited times the wait of one call.
func (q *StoreQueue) Waited(wait time.Duration) { q.waits.Observe(wait.Seconds()) }

// Shed counts checks that the store was not asked.
func (q *StoreQueue) Shed(checks int, early bool) { q.shed[index(early)].Add(float64(checks)) }

// ScriptSent counts the checks of one script.
func (q *StoreQueue) ScriptSent(checks int) { q.checks.Observe(float64(checks)) }
