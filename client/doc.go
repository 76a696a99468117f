// Package sluice is the client of Sluice's check endpoint.
//
//	limits, err := sluice.New(sluice.Config{URL: "http://127.0.0.1:8080", Key: os.Getenv("SLUICE_KEY")})
//	decision, err := limits.Check(ctx, sluice.Check{UserID: "42", Endpoint: "/api/reports"})
//	if !decision.Allowed { … } // answer 429
//
// The [FailureMode] decides after [Config.Timeout], Open by default; see [Decision.Source]. The client never retries a
// request that takes tokens, because the lost request may have taken them. Concurrent checks share requests, and
// denials are cached.
//
// A [Handle] decides a busy check in this process with leased tokens. A [Limiter] is a local token bucket for outgoing
// requests. [Client.Middleware] limits net/http handlers; the module github.com/sluicegate/sluice/client/grpc has
// interceptors. The package needs only the standard library.
package sluice

// Version is sent in the User-Agent.
const Version = "0.1.0"
