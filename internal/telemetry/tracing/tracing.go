// Package tracing sends spans of requests to an OpenTelemetry collector, by OTLP over HTTP.
//
// Only a request whose traceparent (W3C Trace Context) is sampled gets a span. While the collector is away spans
// are
// dropped, and no request waits.
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

const exportTimeout = 5 * time.Second

// New returns a tracer for a collector's URL, such as http://collector:4318, without connecting.
func New(ctx context.Context, endpoint, service, version string, log *slog.Logger) (*Tracer, error) {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint+"/v1/traces"),
		otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}))
	if err != nil {
		return nil, fmt.Errorf("SLUICE_TRACE_ENDPOINT: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { // the handler is global
		log.Debug("spans were not sent", "error", err)
	}))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithExportTimeout(exportTimeout)),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", service),
			attribute.String("service.version", version))),
	)
	return &Tracer{provider, provider.Tracer("github.com/sluicegate/sluice")}, nil
}

// Start starts a span if the caller's trace is sampled, else returns nil.
func (t *Tracer) Start(traceparent, route string, details httpapi.Details) httpapi.Span {
	if !sampled(traceparent) {
		return nil
	}
	method := details.Method()
	carrier := propagation.MapCarrier{"traceparent": traceparent, "tracestate": details.RequestHeader("Tracestate")}
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier)
	if !trace.SpanContextFromContext(ctx).IsSampled() { // malformed header
		return nil
	}
	_, started := t.tracer.Start(ctx, method+" "+route, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route)))
	return span{started}
}

// sampled is a cheap test of a traceparent, version 00: 00-<32>-<16>-<flags>.
func sampled(traceparent string) bool {
	const flags = 54 // index of the second digit of the flags
	if len(traceparent) <= flags {
		return false
	}
	switch traceparent[flags] {
	case '1', '3', '5', '7', '9', 'b', 'd', 'f':
		return true
	}
	return false
}

// Close sends the waiting spans.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

type span struct{ trace.Span }

func (s span) TraceID() string { return s.SpanContext().TraceID().String() }

func (s span) End(status int) {
	s.SetAttributes(attribute.Int("http.response.status_code", status))
	if status >= 500 {
		s.SetStatus(codes.Error, "")
	}
	s.Span.End()
}
