package httpapi

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// Observer is told of every request that was answered. It is called from many goroutines at once
// and must not block.
type Observer interface {
	// RequestAnswered names the route as it was registered, never the path: its values are few. traceID is that of a traced
	// request, in hexadecimal, else "".
	RequestAnswered(route string, status int, took time.Duration, traceID string)
}

// Tracer starts spans of requests. It is safe for concurrent use.
type Tracer interface {
	// Start returns nil unless the traceparent says that the caller's trace is sampled. Route is the name of a route, never a path.
	Start(traceparent, route string, details Details) Span
}

// Span is one traced request.
type Span interface {
	TraceID() string // in hexadecimal
	End(status int)
}

// Telemetry tells the Observer, the Tracer and the log of requests, alike for every surface. Observer and Tracer may be nil.
type Telemetry struct {
	Log      *slog.Logger
	Observer Observer
	Tracer   Tracer
}

// Details are what a request is logged and traced with. They are looked up only when they are needed.
type Details interface {
	Method() string
	RequestHeader(name string) string // its first value, or ""
	RequestID() string                // or ""
}

// InFlight is a request that is being answered.
type InFlight struct {
	Telemetry
	route   string
	details Details
	began   time.Time
	span    Span
}

// Begin begins the time of a request, and its span if the caller's trace is sampled.
func (t Telemetry) Begin(route string, details Details) InFlight {
	f := InFlight{Telemetry: t, route: route, details: details, began: time.Now()}
	if t.Tracer != nil {
		if parent := details.RequestHeader("Traceparent"); parent != "" {
			f.span = t.Tracer.Start(parent, route, details)
		}
	}
	return f
}

// End tells of the answer.
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

// LogPanic logs what recover returned, with the stack. It does not panic itself.
func (t Telemetry) LogPanic(ctx context.Context, route string, details Details, cause any) {
	defer func() { _ = recover() }() // of the log or the details
	t.Log.ErrorContext(ctx, "panic", "request_id", details.RequestID(), "method", details.Method(), "route", route,
		"cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
}
