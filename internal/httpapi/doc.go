// Package httpapi is what Sluice's HTTP surfaces share: how an error looks, how strictly JSON is
// read, what happens around every request, and how a server is built.
//
// Every error answer is a problem document (RFC 9457) with a type that does not change. A [Handler]
// returns its error and [WriteError] is the one place where errors become answers: a *[Problem] is
// told to the caller; anything else is logged in full and told as an internal error, so that no
// internal text ever reaches a caller.
//
// JSON is read so that two readers can never disagree about a body: unknown names, duplicate names,
// trailing data, invalid UTF-8, lone surrogates and NUL are refused, each with a JSON pointer. A
// [Reader] reads token by token without reflection, for hot paths, and refuses null too; [Decode]
// fills a Go value, whose type says what null is.
//
// [Requests] surrounds each route of net/http: a request id, a deadline and recovery from panics. [Telemetry] is what every
// surface tells of its requests, whatever its server: one log line at debug level, an [Observer] that learns how long the
// route took, and spans of sampled traces. Nothing here logs a header, a body or a query.
package httpapi
