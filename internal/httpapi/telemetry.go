package httpapi

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/sluicegate/sluice/internal/jobs/panics"
)

// Observer is called for every answered request, concurrently, and must not block.
type Observer interface {
	// route is never a path. traceID is "" unless the request is traced.
	RequestAnswered(route string, status int, took time.Duration, traceID string)
}

// Tracer starts spans. Safe for concurrent use.
type Tracer interface {
	// Start returns nil unless the caller's trace is sampled. route is never a path.
	Start(traceparent, route string, details Details) Span
}

// Span is one traced request.
type Span interface {
	TraceID() string // in hexadecimal
	End(status int)
}

// Telemetry reports requests to the Observer and the Tracer, which may be nil, and the log.
type Telemetry struct {
	Log      *slog.Logger
	Observer Observer
	Tracer   Tracer
}

// Details are read only when a request is logged or traced.
type Details interface {
	Method() string
	RequestHeader(name string) string // first value, or ""
	RequestID() string                // or ""
}

// InFlight is a request in progress.
type InFlight struct {
	Telemetry
	route   string
	details Details
	began   time.Time
	span    Span
}

// Begin starts the time of a request, and a span if the caller's trace is sampled.
func (t Telemetry) Begin(route string, details Details) InFlight {
	f := InFlight{Telemetry: t, route: route, details: details, began: time.Now()}
	if t.Tracer != nil {
		if parent := details.RequestHeader("Traceparent"); parent != "" {
			f.span = t.Tracer.Start(parent, route, details)
		}
	}
	return f
}

// End reports the answer.
func (f *InFlight) End(ctx context.Context, status int) {
	took, traceID := time.Since(f.began), ""
	if f.span != nil {
		f.span.End(status)
		traceID = f.span.TraceID()
	}
	if f.Observer != nil {
		f.Observer.RequestAnswered(f.route, status, took, traceID)
	}
	if f.Log.Enabled(ctx, slog.LevelDebug) {
		f.Log.DebugContext(ctx, "request", "request_id", f.details.RequestID(), "method", f.details.Method(),
			"route", f.route, "status", status, "took", took)
	}
}

// LogPanic logs a recovered panic with its stack. It never panics.
func (t Telemetry) LogPanic(ctx context.Context, route string, details Details, cause any) {
	defer func() { _ = recover() }()
	panics.Count()
	t.Log.ErrorContext(ctx, "panic", "request_id", details.RequestID(), "method", details.Method(), "route", route,
		"cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
}
