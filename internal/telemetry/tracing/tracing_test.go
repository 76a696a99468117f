package tracing

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	traceID    = "4bf92f3577b34da6a3ce929d0e0e4736"
	sampledBy  = "00-" + traceID + "-00f067aa0ba902b7-01"
	notSampled = "00-" + traceID + "-00f067aa0ba902b7-00"
)

type received struct {
	mu    sync.Mutex
	spans []*tracev1.Span
}

func (r *received) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	var sent collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	if err != nil || request.URL.Path != "/v1/traces" {
		http.Error(w, "not spans", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range sent.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

type details string

func (details) Method() string                { return http.MethodPost }
func (details) RequestID() string             { return "" }
func (d details) RequestHeader(string) string { return string(d) }

func TestOnlySampledRequestsBecomeSpansOfTheirCallersTrace(t *testing.T) {
	t.Parallel()
	var got received
	server := httptest.NewServer(&got)
	defer server.Close()
	tracer, err := New(t.Context(), server.URL, "sluice-api", "v1.2.3", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, parent := range []string{
		"", notSampled, "00-x-y-01", sampledBy[:54], strings.Repeat("0", 53) + "-1",
		strings.Repeat("é", 40),
	} {
		if span := tracer.Start(parent, "/v1/check", details("")); span != nil {
			t.Errorf("%q starts a span", parent)
		}
	}
	span := tracer.Start(sampledBy, "/v1/check", details("vendor=x"))
	if span == nil || span.TraceID() != traceID {
		t.Fatalf("a sampled request starts %v", span)
	}
	span.End(503)
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(got.spans) != 1 {
		t.Fatalf("the collector got %d spans, want 1", len(got.spans))
	}
	s := got.spans[0]
	if s.GetName() != "POST /v1/check" || s.GetStatus().GetCode() != tracev1.Status_STATUS_CODE_ERROR ||
		s.GetTraceState() != "vendor=x" ||
		string(s.GetParentSpanId()) != "\x00\xf0\x67\xaa\x0b\xa9\x02\xb7" {
		t.Errorf("the collector got %v", s)
	}
}

func BenchmarkNotSampled(b *testing.B) {
	tracer, none := &Tracer{}, details("")
	b.ReportAllocs()
	for b.Loop() {
		if tracer.Start(notSampled, "/v1/check", none) != nil {
			b.Fatal("it is sampled")
		}
	}
}
