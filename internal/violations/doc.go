// Package violations records denials, by rule and subject, and answers questions about them.
//
// A denied check leaves one violation, of the tier that decided. An allowed check leaves one for each shadow rule that
// would have denied it. A check of cost 0 leaves none and is not counted.
//
// # What is exact
//
// The [Recorder] counts every violation per tenant, rule, subject and minute, and every check per tenant and minute and
// per tenant, rule and minute. It never samples a count. For each tenant, rule and subject it keeps the first few
// different violations of a second as detail rows. One that differs from a row only by time adds to that row's Count.
// One that gets no row is counted in DetailDropped. So at every moment, in memory and in the store,
//
//	denied = Σ Count of the rows + DetailDropped
//
// for each tenant, rule and subject.
//
// The Recorder also notes when the use of a window crosses a share of its limit that the rule names ([Recorder.Note]): once
// for each bucket, window and share, by whichever process sees it.
//
// # What it costs
//
// Recording never waits for the store. A check locks one of several shards for its counts, and another for a denial; a
// repeated denial allocates nothing. Memory is bounded by Options.MaxBytes. Beyond it, subjects that are not yet in
// memory are counted together as "other", and minutes that are not yet in memory count in the last one. A tenant may
// use half of what others leave, so an attack on one does not turn all subjects of others into "other".
//
// # When the store is away
//
// The Recorder keeps counting in the same memory and writes when the store is back. A batch has a number that the store
// remembers, so a retry after a lost answer counts nothing twice. A row that the store refuses is taken out of its
// batch: a refused detail becomes dropped detail, a refused subject "other". A killed process loses what it had not
// written: at most one Options.FlushInterval in normal times, everything since its beginning in an outage. Counts of
// decisions, when there are many, are held for up to ten seconds. A crossing that was lost is noted by a later check of
// the same window, if there is one.
//
// # Reading
//
// [Store] answers questions about one tenant, from rows while they are kept and from counts beyond. [Traffic] makes a
// chart of the counts.
package violations
