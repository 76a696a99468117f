// Package sluice asks a Sluice server whether requests may pass.
//
//	limits, err := sluice.New(sluice.Config{URL: "http://127.0.0.1:8080", Key: os.Getenv("SLUICE_KEY")})
//	…
//	decision, err := limits.Check(ctx, sluice.Check{UserID: "42", Endpoint: "/api/reports"})
//	if err != nil { … } // the server refused the check itself: see Error
//	if !decision.Allowed { … } // answer 429
//
// A check waits at most [Config.Timeout], 100 ms by default. If the server does not decide by then, the
// [FailureMode] does, Open by default; [Decision.Source] and [Decision.Err] say so, and the log names the first
// failure of a series. The client never repeats a request that takes tokens, because a lost answer may have taken
// them.
//
// Concurrent checks share requests: while two requests are in flight, further checks wait, and when one ends, those
// that wait go together: all of them, or of many about half of those under way. There is no timer to wait for, and a
// lone check is sent at once. A denial is remembered until its wait is over, but at most [Config.DenialMemory], so that
// a user who retries in a loop costs the server little and a raised limit is seen soon.
//
// A [Handle] decides a busy check in this process, on tokens that the server lends ahead of demand: in less than a microsecond,
// without a request, and still never above the limit.
//
// A [Limiter] is a token bucket in this process, to pace one's own requests to somebody else. [Client.Middleware]
// limits net/http handlers; gRPC interceptors are in the module github.com/sluicegate/sluice/client/grpc.
//
// The package needs the standard library only. Clients in Python and TypeScript behave the same; one file of vectors
// tests all three.
package sluice

// Version is the version of this client, which it names in its User-Agent.
const Version = "0.1.0"
