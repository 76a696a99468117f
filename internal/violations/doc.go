// Package violations records denials by rule and subject, and reads them. A denied check is a violation of the deciding
// rule, an allowed one of each shadow rule that would have denied it. A check of cost 0 is none.
//
// The [Recorder] counts every violation per tenant, rule, subject and minute, and every check per tenant and rule. The
// first few different violations of a second are detail rows; others add to the Count of an equal row or to
// DetailDropped, so that always
//
//	denied = Σ Count of the rows + DetailDropped
//
// Denials are also counted by user, address, network, endpoint and rule: see [RecentDenials].
//
// Recording never waits for the store. Memory is bounded by Options.MaxBytes; beyond it, subjects count as "other", and
// a tenant may use half of what others leave. While the store is away counts wait in memory; a numbered batch is never
// counted twice, and a refused row is simplified. A killed process loses at most ten seconds,
// unless the store was away.
package violations
