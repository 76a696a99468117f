// Package tracing sends spans of requests to an OpenTelemetry collector, by OTLP over HTTP.
//
// Callers decide what is traced: a span is started only for a request whose traceparent (W3C Trace Context) says that its
// trace is sampled. Other requests cost one look-up of a header. Spans wait in memory, at most 2048, and are sent in batches in the
// background; while the collector is away they are dropped, and no request waits for it.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluicegate/sluice/internal/httpapi"
)

// Tracer is an httpapi.Tracer.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

var _ httpapi.Tracer = (*Tracer)(nil)

// exportTimeout bounds one batch.
const exportTimeout = 5 * time.Second

// New returns a tracer that sends to a collector's URL, such as http://collector:4318; it does not connect yet.
func New(ctx context.Context, endpoint, service, version string, log *slog.Logger) (*Tracer, error) {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint+"/v1/traces"), otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}))
	if err != nil {
		return nil, fmt.Errorf("SLUICE_TRACE_ENDPOINT: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { // it is global
		log.Debug("spans were not sent", "error", err)
	}))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithExportTimeout(exportTimeout)),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", service), attribute.String("service.version", version))),
	)
	return &Tracer{provider, provider.Tracer("github.com/sluicegate/sluice")}, nil
}

// Start starts a span of a request whose caller's trace is sampled, and returns nil for others.
func (t *Tracer) Start(traceparent, route string, details httpapi.Details) httpapi.Span {
	if !sampled(traceparent) {
		return nil
	}
	method := details.Method()
	carrier := propagation.MapCarrier{"traceparent": traceparent, "tracestate": details.RequestHeader("Tracestate")}
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier)
	if !trace.SpanContextFromContext(ctx).IsSampled() { // the header was malformed
		return nil
	}
	_, started := t.tracer.Start(ctx, method+" "+route, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route)))
	return span{started}
}

// sampled reports whether a traceparent of version 00 can be that of a sampled trace: 00-<32>-<16>-<flags>.
func sampled(traceparent string) bool {
	const flags = 54 // the second digit of the flags
	if len(traceparent) <= flags {
		return false
	}
	switch traceparent[flags] {
	case '1', '3', '5', '7', '9', 'b', 'd', 'f':
		return true
	}
	return false
}

// Close sends the spans that wait.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

type span struct{ trace.Span }

// TraceID is the trace's, in hexadecimal.
func (s span) TraceID() string { return s.SpanContext().TraceID().String() }

// End ends the span with the status of the answer.
func (s span) End(status int) {
	s.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= 500 {
		s.SetStatus(codes.Error, "")
	}
	s.Span.End()
}
