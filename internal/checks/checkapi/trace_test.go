package checkapi_test

import (
	"context"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/checks/checkapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/telemetry/tracing"
)

type traced struct {
	parent, route string
	status        int
}

func (s *traced) Start(traceparent, route string, _ httpapi.Details) httpapi.Span {
	if s.parent, s.route = traceparent, route; traceparent != "sampled" {
		return nil
	}
	return s
}
func (s *traced) TraceID() string { return "abc" }
func (s *traced) End(status int)  { s.status = status }

type exemplar struct{ plain, traced int }

func (e *exemplar) RequestAnswered(_ string, _ int, _ time.Duration, traceID string) {
	if traceID == "" {
		e.plain++
	} else {
		e.traced++
	}
}

func TestSampledRequestsAreTracedAndObservedWithTheirTrace(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	spans, seen := &traced{}, &exemplar{}
	h.config.Tracer, h.config.Observer = spans, seen
	for parent, want := range map[string]exemplar{"": {plain: 1}, "other": {plain: 1}, "sampled": {traced: 1}} {
		*spans, *seen = traced{}, exemplar{}
		header := http.Header{"Authorization": {"Bearer " + fullKey}, "Content-Type": {"application/json"}}
		if parent != "" {
			header.Set("traceparent", parent)
		}
		if got := h.send("POST", "/v1/check", header, `{}`); got.Code != http.StatusOK {
			t.Fatalf("answered %d %s", got.Code, got.Body)
		}
		if *seen != want || spans.parent != parent || (spans.status == 200) != (parent == "sampled") {
			t.Errorf("traceparent %q: observed %+v, span %+v", parent, *seen, *spans)
		}
	}
}

const (
	traceHeader = "Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"
	sampled     = traceHeader + "1\r\n"
	notSampled  = traceHeader + "0\r\n"
)

func collected(tb testing.TB, config checkapi.Config) checkapi.Config {
	tb.Helper()
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_,
			_ = io.Copy(io.Discard, r.Body)
	}))
	tb.Cleanup(collector.Close)
	tracer, err := tracing.New(tb.Context(), collector.URL, "sluice-api", "v1.2.3", slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = tracer.Close(context.Background()) })
	config.Tracer = tracer
	return config
}

func fourTiers(tb testing.TB) *harness {
	tb.Helper()
	return newHarness(tb, rules.DefaultSettings(), limit(tb, 1, "user:{user_id}", 1, rules.MaxBurst),
		limit(tb, 2, "endpoint:/api/*", 1, rules.MaxBurst),
		limit(tb, 3, "global", 1, rules.MaxBurst), limit(tb, 4, "ip:{ip}", 1, rules.MaxBurst))
}

func TestTracingThatIsOffAllocatesNothing(t *testing.T) { // not in parallel: others' allocations would count
	h := fourTiers(t)
	allocations := func(config checkapi.Config, header string) float64 {
		ask := asker(t, config, header)
		least := math.Inf(1) // pools lose memory to the collector and, at random, to the race detector
		for range 300 {
			least = min(least, testing.AllocsPerRun(1, func() { ask() }))
		}
		return least
	}
	off := allocations(h.config, "")
	if got := allocations(h.config, sampled); got != off {
		t.Errorf("a sampled request allocates %v times where nothing is traced, and another %v times", got, off)
	}
	on := collected(t, h.config)
	if got := allocations(on, ""); got != off {
		t.Errorf("a request without a trace allocates %v times where requests are traced, and %v times elsewhere", got,
			off)
	}
	if got := allocations(on, notSampled); got > off+1 { // the header as a string
		t.Errorf("a request that is not sampled allocates %v times, and one without a trace %v times", got, off)
	}
}

// BenchmarkTracing prints the ratio of a traced check's least time to an untraced one's. The sides take turns in every
// order, so that both pay alike for the garbage collector.
func BenchmarkTracing(b *testing.B) {
	h := fourTiers(b)
	on := collected(b, h.config)
	plain := asker(b, h.config, "")
	onNotSampled, onSampled := asker(b, on, notSampled), asker(b, on, sampled)
	n := 0
	sides := []struct {
		name  string
		ask   func() int
		least time.Duration
	}{
		{"off", plain, math.MaxInt64},
		{"off-again", asker(b, h.config, ""), math.MaxInt64}, // what the measurement cannot tell apart
		{"off-but-sampled", asker(b, h.config, sampled), math.MaxInt64},
		{"on-without-trace", asker(b, on, ""), math.MaxInt64},
		{"on-not-sampled", onNotSampled, math.MaxInt64},
		{"on-1%-sampled", func() int {
			if n++; n%100 == 0 {
				return onSampled()
			}
			return onNotSampled()
		}, math.MaxInt64},
	}
	for round := 0; b.Loop(); round++ {
		for i := range sides {
			side := &sides[(round+i)%len(sides)]
			began := time.Now()
			for range 100 {
				if got := side.ask(); got != http.StatusOK {
					b.Fatalf("answered %d", got)
				}
			}
			side.least = min(side.least, time.Since(began))
		}
	}
	for _, side := range sides[1:] {
		b.ReportMetric(float64(side.least)/float64(sides[0].least), side.name)
	}
}
