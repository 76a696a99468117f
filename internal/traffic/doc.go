// Package traffic records checks so that they can be replayed: what was asked, when, and what was decided.
//
// A [Recorder] packs checks into [Block]s of runs. A run is one user, address, method, endpoint, plan, cost and outcome,
// with the milliseconds at which its checks came. Blocks are compressed, and a [Store] keeps them by tenant and day.
//
// # Sampling
//
// Everything is recorded until a tenant's byte budget is used up faster than its days go by. Beyond that only a sample is
// recorded: the checks of users whose hash is in the sample and, separately, those of addresses whose hash is. So whole
// users and whole addresses remain. Each user and address has a stratum, which is the smallest sample that contains it:
// stratum k is in the samples of 1/4^k and larger. Samples are nested, so a reader can use the smallest sample of a range
// for all of it.
//
// Of what is outside of the sample the recorder keeps the cost that was asked, per second, endpoint and plan, because
// limits that users share depend on it. Denied checks outside of the sample are kept too, marked [Run.IsExtra]. They are to
// be listed and never extrapolated. Both are in blocks of their own, so that a reader of the sample does not unpack them.
//
// # Counts by month
//
// The Recorder also counts checks by user and calendar month, for invoices. These counts are kept longer than blocks. A check
// outside of the sample is not counted for its user unless it was denied.
//
// # What it costs
//
// Recording never waits for the store. A check is copied into a buffer of one of several shards under a mutex, which
// allocates nothing. The buffers are bounded. A tenant may use half of what others leave; what does not fit is dropped,
// and counted by tenant. Another goroutine packs.
//
// # When the store is away
//
// Packed blocks wait in bounded memory. The oldest are dropped first, and counted. A killed process loses what it had not
// written: up to a minute of a busy tenant, and up to five minutes of one with few checks. Of the counts by month
// it loses about a minute.
package traffic
