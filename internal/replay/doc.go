// Package replay answers what other rules would have decided on recorded checks.
//
// A replay decides the checks by two sets of rules: those in force then, and the same with a [Candidate]. Decisions are
// those of [enforce.Limiter] over buckets in memory, on a clock that shows the recorded times. The same checks and
// rules always give the same result. [Simulate] decides made-up checks in the same way.
//
// # Not replayed
//
// Concurrency limits, checks that reserve, leases, refunds and failed stores are left out. Rules that adapt keep their
// configured rate. Checks that a left-out rule denied stay denied, unless the candidate is without that rule. Buckets
// begin full, but checks from before the range fill them first, if any were recorded.
//
// # Estimates
//
// Figures of a sample are scaled by its share, with an error. A rule that splits by user is judged on the users of the
// sample, one that splits by address on the addresses. A rule whose bucket they share also gets the costs outside of
// the sample. A rule that splits by an attribute is left out, because the sample lacks checks of each bucket. Denied
// checks outside of the sample are listed by user and never scaled.
package replay
