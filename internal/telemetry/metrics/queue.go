package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// StoreQueue observes the queue of checks in front of Redis and their batches.
type StoreQueue struct {
	waits, checks prometheus.Observer
	shed          [2]prometheus.Counter // by early
}

// StoreQueue registers the queue of checks in front of Redis, and returns its observer. depth returns the waiting
// bucket reads.
func (m *Metrics) StoreQueue(depth func() int) *StoreQueue {
	gauge(m, "sluice_store_queue_depth", "What waits for its turn at Redis, in reads of buckets.",
		depth)
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
		Help: "Checks that failure modes decided, and settlements and credits that failed, because more waited than " +
			"the store decides in time. Most are refused at_once, before they wait; others waited for their turn.",
	}, []string{"when"})
	m.registry.MustRegister(waits, checks, shed)
	return &StoreQueue{
		waits, checks,
		[2]prometheus.Counter{shed.WithLabelValues("waited"), shed.WithLabelValues("at_once")},
	}
}

// Waited times the wait of a call.
func (q *StoreQueue) Waited(wait time.Duration) { q.waits.Observe(wait.Seconds()) }

// Shed counts checks that were refused without asking the store.
func (q *StoreQueue) Shed(checks int, early bool) { q.shed[index(early)].Add(float64(checks)) }

// ScriptSent counts the checks of a script.
func (q *StoreQueue) ScriptSent(checks int) { q.checks.Observe(float64(checks)) }
