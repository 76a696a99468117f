package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// Decisions counts decisions and times the shared buckets, as an enforce.Observer.
type Decisions struct {
	allowed  [2]prometheus.Counter // by degraded
	bypassed [2]prometheus.Counter
	denied   [len(reasons)][2]prometheus.Counter

	tiers    [len(scopes)][2][2]prometheus.Counter // by shadow and allowed
	degraded [len(failureModes)]prometheus.Counter
	recalled prometheus.Counter

	answered, failed prometheus.Observer
}

// The values of labels.
var (
	reasons      = enforce.Reasons
	scopes       = [...]rules.Scope{rules.ScopeUser, rules.ScopeEndpoint, rules.ScopeGlobal, rules.ScopeIP}
	failureModes = [...]rules.FailureMode{rules.FailLocal, rules.FailOpen, rules.FailClosed}
)

var _ enforce.Observer = (*Decisions)(nil)

// Decisions returns an observer for an enforce.Limiter. store is redis or memory.
func (m *Metrics) Decisions(store string) *Decisions {
	d := &Decisions{}
	d.countChecks(m)
	d.countTiers(m)
	d.countDegraded(m)
	d.recalled = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sluice_recalled_denials_total",
		Help: "Denials among the checks, made from memory because the shared buckets had just shown that they would " +
			"deny.",
	})
	m.registry.MustRegister(d.recalled)

	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "sluice_store_duration_seconds",
		Help:    "Time that the shared buckets took to answer one call, or to fail.",
		Buckets: durationBuckets,
	}, []string{"store", "result"})
	m.registry.MustRegister(durations)
	d.answered = durations.WithLabelValues(store, "ok")
	d.failed = durations.WithLabelValues(store, "error")
	return d
}

func (d *Decisions) countChecks(m *Metrics) {
	checks := m.counterVec("sluice_checks_total",
		"Checks decided; degraded ones were decided by failure modes, without the shared buckets.",
		"outcome", "reason", "degraded")
	for i, degraded := range []string{"false", "true"} {
		d.allowed[i] = checks.WithLabelValues("allowed", "", degraded)
		d.bypassed[i] = checks.WithLabelValues("bypassed", "", degraded)
	}
	for i, reason := range reasons {
		d.denied[i] = [2]prometheus.Counter{
			checks.WithLabelValues("denied", string(reason), "false"),
			checks.WithLabelValues("denied", string(reason), "true"),
		}
	}
}

func (d *Decisions) countTiers(m *Metrics) {
	tiers := m.counterVec("sluice_tier_decisions_total",
		"Verdicts of single rules on checks; a shadow rule's denial denied nothing.", "scope", "mode", "outcome")
	for i, scope := range scopes {
		for j, mode := range []rules.Mode{rules.ModeEnforce, rules.ModeShadow} {
			d.tiers[i][j] = [2]prometheus.Counter{
				tiers.WithLabelValues(string(scope), string(mode), "denied"),
				tiers.WithLabelValues(string(scope), string(mode), "allowed"),
			}
		}
	}
}

func (d *Decisions) countDegraded(m *Metrics) {
	degraded := m.counterVec("sluice_degraded_decisions_total",
		"Checks decided without the shared buckets, by the failure mode that decided: closed if one denied, else "+
			"local if local buckets were asked, else open.", "failure_mode")
	for i, mode := range failureModes {
		d.degraded[i] = degraded.WithLabelValues(string(mode))
	}
}

// Decided counts a decision.
func (d *Decisions) Decided(_ *snapshot.Tenant, _ *enforce.Check, decision *enforce.Decision) {
	degraded, count := index(decision.Degraded), float64(decision.Count())
	switch {
	case decision.Bypassed:
		d.bypassed[degraded].Add(count)
	case decision.Allowed:
		d.allowed[degraded].Add(count)
	default:
		if i := slices.Index(reasons[:], decision.Reason); i >= 0 {
			d.denied[i][degraded].Add(count)
		}
	}
	for i := range decision.Tiers {
		t := &decision.Tiers[i]
		if scope := slices.Index(scopes[:], t.Match.Rule.Scope()); scope >= 0 {
			d.tiers[scope][index(!t.Enforced())][index(t.Allowed)].Add(count)
		}
	}
	if decision.Recalled {
		d.recalled.Inc()
	}
	if decision.Degraded {
		if i := slices.Index(failureModes[:], decidingMode(decision)); i >= 0 {
			d.degraded[i].Inc()
		}
	}
}

// Counted returns the number of decided checks, and how many of them were degraded.
func (d *Decisions) Counted() (checks, degraded int64) {
	counters := append([][2]prometheus.Counter{d.allowed, d.bypassed}, d.denied[:]...)
	for _, by := range counters {
		degraded += valueOf(by[1])
		checks += valueOf(by[0]) + valueOf(by[1])
	}
	return checks, degraded
}

func valueOf(counter prometheus.Counter) int64 {
	var metric dto.Metric
	if err := counter.Write(&metric); err != nil {
		return 0
	}
	return int64(metric.GetCounter().GetValue())
}

// StoreAnswered times a Take of the shared buckets.
func (d *Decisions) StoreAnswered(took time.Duration, err error) {
	if err != nil {
		d.failed.Observe(took.Seconds())
		return
	}
	d.answered.Observe(took.Seconds())
}

func decidingMode(d *enforce.Decision) rules.FailureMode {
	if d.Reason == enforce.StoreUnavailable {
		return rules.FailClosed
	}
	for i := range d.Tiers {
		if d.Tiers[i].BucketRead {
			return rules.FailLocal
		}
	}
	return rules.FailOpen
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}
