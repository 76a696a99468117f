// Package adminapi is the HTTP surface of the control plane: everything under /api/v1, for the web UI and for
// automation, and the health of the process. api/openapi.yaml is its contract: types, parameter reading and answer
// writing are generated from it (internal/openapi), and tests hold routes, answers and access to it.
//
// A request passes the gates of gates.go, then its handler in the table of routes.go. The caller's role is read each
// time, so that a change of role holds from the next request on. The schemas define types and sizes, the domain
// decides whether a value makes sense, and asProblem turns its errors into answers.
//
// Without the database every answer is 503: an outage signs nobody out and lets nobody in. While the store of buckets
// is down, only requests for buckets get 503. An export that fails midway breaks the connection, so that half a file
// never looks whole.
package adminapi
