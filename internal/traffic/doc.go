// Package traffic records checks so that they can be replayed.
//
// A [Recorder] packs checks into [Block]s of runs: one user, address, method, endpoint, plan, cost and outcome with the
// times of its checks, and their costs of other meters than requests. A [Store] keeps blocks by tenant and day. When a
// tenant's byte budget is short, only a sample of whole users and, separately, whole addresses is recorded. Stratum k
// is in the samples of 1/4^k and larger, so samples are nested. Outside of the sample the recorder keeps costs per
// second, endpoint and plan, and denied checks, which are listed and never extrapolated ([Run.IsExtra]). Checks are
// also counted by user and month, for invoices.
//
// Recording never waits for the store: a check is copied into a bounded buffer. A tenant may use half of what others
// leave; the rest is dropped and counted, oldest blocks first while the store is away. A killed process loses up to a
// minute of a busy tenant, and up to five of a quiet one.
package traffic
