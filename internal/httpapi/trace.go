package httpapi

import "time"

// Tracer starts spans of requests. It is safe for concurrent use.
type Tracer interface {
	// Start returns nil unless the headers say that the caller's trace is sampled. Route is the name of a route, never a path.
	Start(traceparent, tracestate, method, route string) Span
}

// Span is one traced request.
type Span interface {
	TraceID() string // in hexadecimal
	End(status int)
}

// TracedObserver is an Observer that keeps the trace of a request beside its duration.
type TracedObserver interface {
	RequestTraced(route string, status int, took time.Duration, traceID string)
}
