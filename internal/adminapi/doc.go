// Package adminapi is the HTTP surface of the control plane: everything under /api/v1, which people use by
// way of the web UI and automation directly, and the health of the process.
//
// api/openapi.yaml is its contract. Types, the reading of parameters and the writing of answers are
// generated from it (internal/openapi); requests are validated against it; and tests hold the routes, each
// answer's status and body, and who may call what to it. What it says of conventions is not repeated
// here.
//
// # A request's way
//
// The routes are one table in routes.go, and each names the least that its caller must be. A request is
// looked at in this order, and the first thing that is wrong is the answer:
//
//  1. where it comes from: a browser's page of another site gets 403 ([net/http.CrossOriginProtection]);
//  2. whose it is: the API key of the Authorization header, else the session of the cookie; 401;
//  3. the tenant in its path, and the caller's role there, read from the store for each request so that
//     a change of role holds from the next one on. A tenant that is none of the caller's is answered as
//     one that does not exist: 404, in the same words;
//  4. whether the tenant is suspended, and whether the role is enough: 403;
//  5. the query, the path and the body, as strictly as package httpapi reads JSON, then by the schema: 400
//     with a pointer for each mistake;
//  6. the handler: domain validation, a store in the name of the caller, the answer.
//
// An API key with the permission manage is an editor of its tenant. Keys are judged by the rules in memory,
// so a revocation that this process has read holds through an outage of the database.
//
// # What validation leaves to the domain
//
// The schemas hold types, choices and sizes of bodies. What a good key pattern, limit, slug, password or
// expiry is, the domain says, so that there is one answer for files, commands and requests; its
// rules.FieldErrors become pointers in one place. The validator (kin-openapi, on the schemas of 3.1) is not
// asked for unknown query parameters, repeated ones and bytes that are not UTF-8, which it would let pass.
//
// # Concurrent editors
//
// An ETag is the version or revision that the store counts. A handler compares it with what it has read
// before it validates anything, and the store compares again in its transaction; either way the answer is
// 412 with the present ETag. With If-Match: * a change made in the very moment between the two is a 412
// too.
//
// # When a neighbour is down
//
// Without the database every answer is 503 with Retry-After, sessions included: nobody is signed out by
// an outage, and nobody gets in. Without Redis buckets are 503 and all else works. Without a configured
// Redis, buckets are in the memory of other processes: 409, except in the process that has them.
//
// # Cost
//
// Besides its handler's, a request costs the queries that find its session, tenant and role. Lists are
// pages by key; their cursors are opaque, belong to one list and filter, and hold no secret. Exports are
// written page by page while they are read, in constant memory, and may take as long as their reader
// keeps reading; an error midway breaks the connection, so that half a file never looks whole.
package adminapi
