// Package sluice is the client of Sluice's check endpoint.
//
//	limits, err := sluice.New(sluice.Config{URL: "http://127.0.0.1:8080", Key: os.Getenv("SLUICE_KEY")})
//	…
//	decision, err := limits.Check(ctx, sluice.Check{UserID: "42", Endpoint: "/api/reports"})
//	if err != nil { … } // the server refused the check itself: see Error
//	if !decision.Allowed { … } // answer 429
//
// A check waits for [Config.Timeout], 100 ms by default, and at most ten times as long, if the same check is in flight
// or this process is too busy to read answers. Then the [FailureMode] decides, Open by default, as [Decision.Source]
// and [Decision.Err] show. The client never retries a request that takes tokens, because the lost request may have
// taken them.
//
// Concurrent checks are batched: while two requests are in flight, further checks wait for one of them to end. A lone
// check is sent at once. A denial is cached until its wait is over, at most for [Config.DenialMemory], so that a user
// who retries in a loop costs the server little.
//
// A [Handle] decides a busy check in this process with leased tokens, in less than a microsecond and never above the
// limit. A [Limiter] is a local token bucket for outgoing requests. [Client.Middleware] limits net/http handlers; gRPC
// interceptors are in the module github.com/sluicegate/sluice/client/grpc. The package needs only the standard library.
package sluice

// Version is the client's version, sent in the User-Agent.
const Version = "0.1.0"
