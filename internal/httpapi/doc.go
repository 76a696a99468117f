// Package httpapi is shared by Sluice's HTTP surfaces: error answers, strict JSON, telemetry of requests, and servers.
//
// Every error answer is a problem document (RFC 9457). JSON is strict, so that two readers cannot disagree about a
// body.
// Headers, bodies and queries are never logged.
package httpapi
