package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/violations"
)

// Recorder registers the statistics of the recorder, and returns an observer of its writes.
func (m *Metrics) Recorder(stats func() violations.Stats) func(took time.Duration, err error) {
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "sluice_recorder_write_duration_seconds",
		Help:    "Time that the database took to write one batch of counts and violations, or to fail.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	}, []string{"result"})
	m.registry.MustRegister(durations)
	written, failed := durations.WithLabelValues("ok"), durations.WithLabelValues("error")

	gauge(m, "sluice_recorder_lag_seconds",
		"Time since everything that had been recorded until then was written. A killed process loses anything younger.",
		func() float64 { return stats().Lag.Seconds() })
	gauge(m, "sluice_recorder_batches", "Batches taken from memory and not written yet.",
		func() float64 { return float64(stats().Batches) })
	gauge(m, "sluice_recorder_subjects", "Counts of one subject, rule and minute that wait to be written.",
		func() float64 { return float64(stats().Subjects) })
	gauge(m, "sluice_recorder_details", "Violations in detail that wait to be written.",
		func() float64 { return float64(stats().Details) })
	gauge(m, "sluice_recorder_bytes", "Approximate memory of counts and violations that wait to be written.",
		func() float64 { return float64(stats().Bytes) })
	counter(m, "sluice_recorder_violations_total", "Violations recorded.",
		func() float64 { return float64(stats().Recorded) })
	counter(m, "sluice_recorder_details_dropped_total", "Violations that were counted, but not kept in detail.",
		func() float64 { return float64(stats().Dropped) })
	counter(m, "sluice_recorder_rows_refused_total",
		"Rows that the database refused and that were written in a simpler form.",
		func() float64 { return float64(stats().Refused) })
	counter(m, "sluice_recorder_counts_lost_total", "Checks or violations whose count the database refused.",
		func() float64 { return float64(stats().CountsLost) })
	return func(took time.Duration, err error) {
		if err != nil {
			failed.Observe(took.Seconds())
			return
		}
		written.Observe(took.Seconds())
	}
}

const maxViolationSeries = 1000 // further ones count as tenant and rule "other"

// Violations counts violations by tenant, scope, rule and mode, as an enforce.Observer.
type Violations struct {
	counts *prometheus.CounterVec
	series series[violationSeries, prometheus.Counter]
}

type violationSeries struct {
	tenant string // slug
	scope  rules.Scope
	rule   rules.RuleID // 0 for other
	mode   rules.Mode
}

var _ enforce.Observer = (*Violations)(nil)

// Violations returns an observer for an enforce.Limiter.
func (m *Metrics) Violations() *Violations {
	return &Violations{counts: m.counterVec("sluice_violations_total",
		"Denials, by the rule that decided, and what shadow rules would have denied. The first 1000 rules that deny "+
			"have series of their own; the rest is tenant and rule other.", "tenant", "scope", "rule", "mode")}
}

// Decided counts the violations of a decision.
func (v *Violations) Decided(tenant *snapshot.Tenant, check *enforce.Check, decision *enforce.Decision) {
	switch {
	case check.IsLook() || decision.Bypassed || decision.Reason == enforce.ReservationsExhausted:
	case !decision.Allowed:
		v.count(tenant, decision.DecidingTier().Match, decision.Count())
	default:
		for i := range decision.Tiers {
			if t := &decision.Tiers[i]; !t.Allowed && !t.Enforced() {
				v.count(tenant, t.Match, decision.Count())
			}
		}
	}
}

// StoreAnswered does nothing; Decisions counts it.
func (v *Violations) StoreAnswered(time.Duration, error) {}

func (v *Violations) count(tenant *snapshot.Tenant, match *rules.Match, times int64) {
	key := violationSeries{tenant.Tenant.Slug, match.Rule.Scope(), match.Rule.ID, match.Mode}
	other := violationSeries{"other", key.scope, 0, key.mode}
	v.series.of(key, other, maxViolationSeries, v.register).Add(float64(times))
}

func (v *Violations) register(key violationSeries) prometheus.Counter {
	rule := "other"
	if key.rule != 0 {
		rule = strconv.FormatInt(int64(key.rule), 10)
	}
	return v.counts.WithLabelValues(key.tenant, string(key.scope), rule, string(key.mode))
}
