// Package replay answers what other rules would have decided on recorded checks.
//
// A replay lets the recorded checks of a time meet two sets of rules: those that were in force then, and the same with
// a [Candidate] in their place. Decisions are those of [enforce.Limiter] over buckets in this process's memory, on a
// clock that shows the recorded times. So no other code has to agree with what decides in production. [Simulate] lets
// made-up checks meet rules in the same way.
//
// # What it leaves out
//
// Concurrency limits, because nobody recorded when places were released, and checks that reserve. Rules whose rate
// adapts keep their configured rate. Checks that a left-out rule denied when they came stay denied, and take nothing of
// other limits, unless the candidate is without that rule. Buckets begin full, but checks from before the range fill
// them first, if any were recorded. A failed store, leases and refunds are not repeated.
//
// # What is an estimate
//
// If only a sample was recorded, figures are scaled by its share, with an error. A rule that splits by user is judged
// on the users of the sample, and one that splits by address on the addresses. A rule whose bucket they share gets the
// cost that was asked outside of the sample too, in parts of a second, and is judged on the users. A rule that splits
// by an attribute is left out, because the sample does not have all checks of any of its buckets. Denied checks outside
// of the sample are listed by user and never scaled.
//
// The same checks and rules always give the same result.
package replay
