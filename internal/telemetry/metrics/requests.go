package metrics

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Requests counts and times the requests of a surface, as an httpapi.Observer.
type Requests struct {
	durations *prometheus.HistogramVec
	answers   *prometheus.CounterVec
	series    series[routeStatus, requestSeries]
}

type routeStatus struct {
	route  string
	status int
}

type requestSeries struct {
	duration prometheus.Observer
	answers  prometheus.Counter
}

// Requests returns an observer for a surface, check or admin, which is part of the names.
func (m *Metrics) Requests(surface string) *Requests {
	r := &Requests{
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_" + surface + "_duration_seconds",
			Help: "Time that the answers to requests took. A check's begins when its body was read, and does not " +
				"contain its writing.",
			Buckets: durationBuckets,
		}, []string{"route"}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_" + surface + "_requests_total",
			Help: "Requests answered, by HTTP status.",
		}, []string{"route", "status"}),
	}
	m.registry.MustRegister(r.durations, r.answers)
	return r
}

// RequestAnswered counts and times a request, with its trace id as an exemplar.
func (r *Requests) RequestAnswered(route string, status int, took time.Duration, traceID string) {
	key := routeStatus{route, status}
	s := r.series.of(key, key, math.MaxInt, r.register)
	s.answers.Inc()
	if exemplars, ok := s.duration.(prometheus.ExemplarObserver); ok && traceID != "" {
		exemplars.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": traceID})
		return
	}
	s.duration.Observe(took.Seconds())
}

func (r *Requests) register(key routeStatus) requestSeries {
	return requestSeries{
		duration: r.durations.WithLabelValues(key.route),
		answers:  r.answers.WithLabelValues(key.route, strconv.Itoa(key.status)),
	}
}
