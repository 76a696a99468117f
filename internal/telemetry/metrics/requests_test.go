package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRequestsAreCountedByRouteAndStatus(t *testing.T) {
	t.Parallel()
	m := New("v1", "abc")
	r := m.Requests("check")
	r.RequestAnswered("/v1/check", 200, 200*time.Microsecond, "")
	r.RequestAnswered("/v1/check", 429, 300*time.Microsecond, "")
	r.RequestAnswered("/v1/explain", 200, 2*time.Second, "")
	assertMetric(t, m, "sluice_check_requests_total",
		"route=/v1/check status=200", "route=/v1/check status=429", "route=/v1/explain status=200")
	page := scrape(t, m)
	for _, line := range []string{
		`sluice_check_duration_seconds_bucket{route="/v1/check",le="0.00025"} 1`,
		`sluice_check_duration_seconds_bucket{route="/v1/check",le="0.0005"} 2`,
		`sluice_check_duration_seconds_bucket{route="/v1/explain",le="1"} 0`,
		`sluice_check_duration_seconds_count{route="/v1/explain"} 1`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the page lacks %s", line)
		}
	}
}

func TestNoRequestIsLostWhenManyAreTheFirstOfTheirKind(t *testing.T) {
	t.Parallel()
	m := New("v1", "abc")
	r := m.Requests("check")
	const goroutines = 8
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for status := 200; status < 210; status++ {
				r.RequestAnswered("/v1/check", status, time.Millisecond, "")
			}
		})
	}
	group.Wait()
	var want []string
	for status := range 10 {
		for range goroutines {
			want = append(want, "route=/v1/check status=20"+string(rune('0'+status)))
		}
	}
	assertMetric(t, m, "sluice_check_requests_total", want...)
}

func TestATracedRequestIsAnExemplar(t *testing.T) {
	t.Parallel()
	m := New("v1", "abc")
	m.Requests("check").RequestAnswered("/v1/check", http.StatusOK, time.Millisecond,
		"4bf92f3577b34da6a3ce929d0e0e4736")
	answer := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	m.Handler().ServeHTTP(answer, request)
	if page := answer.Body.String(); !strings.Contains(page, `# {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} 0.001`) {
		t.Errorf("no exemplar in %s", page)
	}
	assertMetric(t, m, "sluice_check_requests_total", "route=/v1/check status=200")
}
