package checkapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// traced is a Tracer and its span.
type traced struct {
	parent, route string
	status        int
}

func (s *traced) Start(traceparent, _, _, route string) httpapi.Span {
	if s.parent, s.route = traceparent, route; traceparent != "sampled" {
		return nil
	}
	return s
}
func (s *traced) TraceID() string { return "abc" }
func (s *traced) End(status int)  { s.status = status }

// exemplar is a TracedObserver.
type exemplar struct{ plain, traced int }

func (e *exemplar) RequestAnswered(string, int, time.Duration)               { e.plain++ }
func (e *exemplar) RequestTraced(_ string, _ int, _ time.Duration, _ string) { e.traced++ }

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
