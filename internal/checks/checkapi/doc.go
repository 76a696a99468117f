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
// All errors of a request are found before any token is taken: an invalid element fails its whole batch.
// docs/check-api.md describes requests and answers.
//
// # When a neighbour is down
//
// Without the database the last good rules stay in force. Without Redis each rule's failure mode decides, and the
// answer has "degraded": true. readyz stays 200, because taking the process out of service would turn a slow neighbour
// into an outage.
//
// The key is checked before the body is read, so anonymous callers cannot make the process hold bodies. Tenants share
// the memory of large bodies; at the limit of connections, idle ones are evicted.
//
// JSON of checks is read and written without reflection. fasthttp reuses the memory of requests: handlers copy what
// they keep.
package checkapi
