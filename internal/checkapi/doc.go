// Package checkapi is the HTTP surface of the decision plane: it asks "may this request pass?" for
// services and proxies.
//
//	POST /v1/check        one check                200 allowed, 429 denied, 503 a closed tier
//	POST /v1/check/batch  up to 1000 checks        200, each result with its own status
//	POST /v1/explain      one check, not consumed  200
//	GET  /healthz         the process lives        200
//	GET  /readyz          rules were loaded        200 or 503
//
// A caller is known by Authorization: Bearer slk_<key id>_<secret>, whose key names the tenant. 401
// means that no such key is in force, 403 that its tenant is suspended or that it lacks the
// permission, 503 with Retry-After that no rules were ever loaded. Errors are problem documents
// (RFC 9457), with a JSON pointer for each bad field.
//
// # Questions
//
// A check is a JSON object, all of whose fields are optional. An empty string means the same as a
// field that is left out: no value, which a rule that needs the value does not match. null is
// refused, because callers mean different things by it. A user_id that is an integer equals its
// decimal string, with every digit kept; 1.0, 1e3 and -0 have other texts than they mean and are
// refused. A cost may be written with an exponent, which some JSON writers do unasked, as long as its
// value has at most six decimals. An IP address with a zone is refused: a zone means something only
// on the caller's machine, and cutting it off would merge two addresses into one bucket.
// ::ffff:a.b.c.d is IPv4.
//
// Whatever is wrong with a request is found before any token is taken: an invalid element fails its
// whole batch.
//
// # Answers
//
// All fields are always there, in one order; null is a value that does not exist. An allowed check
// has null in the violated fields and in reason, and 0 in retry_after_ms: no wait. A denial that no
// wait ends (blocked, cost_exceeds_limit) has null there. A denial from memory (see enforce.DenialCache)
// lists only the tiers that deny. Amounts are exact decimals, rounded down; times are rounded up.
// Headers and body are drawn from the same decision and agree; see addRateLimit.
//
// # When a neighbour is down
//
// Without the database the last good rules go on, and readyz says how old they are. Without Redis each
// rule's failure mode decides, inside the Limiter, and the answer says "degraded": true. readyz
// stays 200 in both cases: taking the process out of service would turn a slow neighbour into an
// outage.
//
// # Connections
//
// The headers decide whether a body is read: only a caller with a key can make the process hold one. Large requests and
// their answers have a limit in bytes, and each tenant a share of it; see bodies. Open connections
// have a limit, at which those that wait for their caller are closed for new ones; see connections.evict. Health is
// answered over the limit, too.
//
// # Cost
//
// An answer waits for one call of enforce.Limiter.Decide and nothing else. Reading and writing JSON
// use no reflection, and their buffers are reused. A [Server] reads and writes HTTP/1.1 with fasthttp, which reuses the
// memory of a request too: handlers copy what they keep.
package checkapi
