// Package adminapi is the HTTP surface of the control plane: everything under /api/v1, for the web UI and for
// automation, and the health of the process.
//
// api/openapi.yaml is its contract. Types, parameter reading and answer writing are generated from it
// (internal/openapi), requests are validated against it, and tests hold routes, answers and access to it. Its
// conventions are not repeated here.
//
// # A request's way
//
// routes.go has all routes in one table, each with the least access that it needs. gates.go has what each request
// passes before its handler, in one list. The caller is the API key of the Authorization header, else the session of
// the cookie. The role in the tenant is read for each request, so that a change of role holds from the next one on.
//
// Rate limits (ratelimit.go) and slots (semaphores.go) keep tenants from each other's way, by the class of the
// operation: light, heavy or bulk.
//
// People have roles, and API keys permissions: x-permission in openapi.yaml is what a key needs. Operations without one
// are for people. Keys of tenants are checked against the rules in memory, which needs no query, and against
// their row, which has revocations that this process has not read yet. Service keys
// act in every tenant and are looked up in the database alone.
//
// # What validation leaves to the domain
//
// The schemas define types, choices and sizes. The domain decides what a good key pattern, limit, slug, password or
// expiry is, so that files, commands and requests agree; asProblem turns its rules.FieldErrors into pointers. Unknown
// and repeated query parameters and bytes that are not UTF-8 are refused here, because the validator (kin-openapi, on
// the schemas of 3.1) would accept them.
//
// # Concurrent editors
//
// An ETag is a version or revision that the store counts. A handler compares it with what it has read before
// validation, and the store compares again in its transaction. A stale ETag is a 412 with the present one. With
// If-Match: *, patches of rules, plans and tenants are retried on the new row.
//
// # When a neighbour is down
//
// Without the database every answer is 503 with Retry-After, sessions included: an outage signs nobody out and lets
// nobody in. While the store of buckets is down, requests for buckets get 503 and all others work. If buckets are in
// the memory of other processes: 409, except in the process that has them.
//
// # Cost
//
// Besides its handler's, a request costs the queries for its session, tenant and role. Lists are pages by key; their
// cursors are opaque, belong to one list and filter, and hold no secret. Bodies are buffered, at most 8 KiB of
// anonymous callers. Validation stops after 20 errors.
//
// Exports of users and of the audit log are written page by page in constant memory. They last as long as the reader
// keeps reading and may read, which is checked after each page. Imports and the export of the configuration hold all of
// it in memory, some hundred MB at worst, so a process runs two at once and refuses more than a few that wait. An error
// midway breaks the connection, so that half a file never looks whole.
package adminapi
