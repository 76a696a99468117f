// Package checkapi is the HTTP surface of the decision plane: services and proxies ask it whether a request may pass.
//
//	POST /v1/check        one check                200 allowed, 429 denied, 503 a closed tier
//	POST /v1/check/batch  up to 1000 checks        200, each result with its own status
//	POST /v1/leases       tokens for a client that decides checks itself  200
//	POST /v1/explain      one check, not consumed  200
//	ANY  /v1/authorize    a proxy asks for a visitor       200 allowed, 429 denied, 503 a closed tier
//	GET  /healthz         the process lives        200
//	GET  /readyz          rules were loaded        200 or 503
//
// Authorization: Bearer slk_<key id>_<secret> names the tenant. 401 means that no such key is in force, 403 that its
// tenant is suspended or that it lacks the permission, 503 with Retry-After that no rules were ever loaded. Errors are
// problem documents (RFC 9457) with a JSON pointer for each bad field. All errors of a request are found before any
// token is taken: an invalid element fails its whole batch.
//
// # Requests
//
// All fields of a check are optional. An empty string means no value, and a rule that needs the value does not match.
// null is refused, because callers mean different things by it. An integer user_id equals its decimal string; 1.0, 1e3
// and -0 are refused, because their texts differ from their values. A cost may have an exponent, which some JSON
// writers use, if its value has at most six decimals. An IP address with a zone is refused, because a zone has a
// meaning only on the caller's machine. ::ffff:a.b.c.d is IPv4.
//
// # Answers
//
// All fields are always there, in one order, and null means no value. An allowed check has null in the violated fields
// and in reason, and 0 in retry_after_ms. A denial that no wait ends (blocked, cost_exceeds_limit) has null there. A
// recalled denial (see enforce.DenialCache) lists only the tiers that deny. Amounts are exact decimals, rounded down;
// times are rounded up. Headers and body agree; see checkjson.Headers.
//
// # When a neighbour is down
//
// Without the database the last good rules stay in force, and readyz reports their age. Without Redis each rule's
// failure mode decides, and the answer has "degraded": true. readyz stays 200 in both cases, because taking the process
// out of service would turn a slow neighbour into an outage.
//
// # Connections
//
// The key is checked before the body is read, so anonymous callers cannot make the process hold bodies. Large requests
// and answers have a limit in bytes, with a share for each tenant; see bodies.go. At the limit of open connections,
// those that wait for their caller are evicted; see connections.evict. Health probes are answered even over the limit.
//
// # Cost
//
// An answer waits only for one enforce.Limiter.Decide. JSON is read and written without reflection, in reused buffers.
// A [Server] uses fasthttp, which reuses the memory of requests: handlers copy what they keep.
package checkapi
