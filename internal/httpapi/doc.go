// Package httpapi is shared by Sluice's HTTP surfaces: error answers, strict JSON, telemetry of requests, and servers.
//
// Every error answer is a problem document (RFC 9457). A [Handler] returns an error, and [WriteError] answers it: a
// *[Problem] is shown to the caller; anything else is logged and answered as an internal error. JSON is strict, so that
// two readers cannot disagree about a body: unknown and duplicate names, trailing data, invalid UTF-8, lone surrogates
// and NUL are refused. A [Reader] reads token by token without reflection, for hot paths; [Decode] fills a Go value.
// [Requests] adds a request id, a deadline and panic recovery to a route of net/http; [Telemetry] logs, observes and
// traces requests of every surface. Headers, bodies and queries are never logged.
package httpapi
