// Package traffic records checks so that they can be replayed.
//
// A [Recorder] packs checks into [Block]s of runs, which are checks that differ only in time and in the costs of other
// meters. A [Store] keeps blocks by tenant and day. When a tenant's byte budget is short, a sample of whole users and,
// separately, whole addresses is recorded. Stratum k is in the samples of 1/4^k and larger. Outside of the sample only
// costs per second, endpoint and plan, and denied checks are kept, which are listed and never extrapolated
// ([Run.IsExtra]). Checks are also counted by user and month, for invoices.
//
// Recording never waits for the store. The buffer is bounded, and a tenant may use half of the part that others leave.
// Further checks are dropped and counted, oldest blocks first while the store is away. A killed process loses up to a
// minute of a busy tenant, and up to five of a quiet one.
package traffic
