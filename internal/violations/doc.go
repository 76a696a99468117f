// Package violations records who was denied, by which rule and how often, and says what can be asked
// about it.
//
// A check that is denied leaves one violation, of the tier that decided. A check that is allowed leaves
// one for each shadow rule that would have denied it. A check that costs nothing leaves none, and is not
// counted.
//
// # What is exact
//
// The [Recorder] counts every violation per tenant, rule, subject and minute, and every check per
// tenant and minute and per tenant, rule and minute. It never samples a count. Of each tenant, rule and
// subject it keeps the first few different violations of a second as rows of their own; one that is the
// same but for its time adds to the Count of the row there is. A violation that finds no row and may
// make none is counted in DetailDropped, so that at every moment, in memory and in the store,
//
//	denied = Σ Count of the rows + DetailDropped
//
// for each tenant, rule and subject.
//
// # What it costs
//
// Recording never waits for the store. A check takes the lock of one of several shards for its counts,
// and another for a denial; a repeated denial allocates nothing. Memory is bounded by Options.MaxBytes:
// beyond it subjects that are not yet in memory are counted together as "other", and minutes that are
// not yet in memory together with the last that is, each exactly. One tenant may take half of what the
// others leave, so that an attack on one does not turn all others' subjects into "other".
//
// # When the store is away
//
// The Recorder keeps counting in the same memory and writes when the store is back. A batch is written
// under a number that the store remembers, so that a retry whose first try did arrive counts nothing
// twice. A row that the store refuses is taken out of its batch: a refused detail becomes dropped detail, a
// refused subject "other". A process that is killed loses what it had not written, which is at most an
// Options.FlushInterval in normal times and everything since the start of an outage during one; of the counts of
// decisions, when they are many, what is younger than ten seconds.
//
// # Reading
//
// [Store] answers questions about one tenant at a time, from the rows while they are kept and from the
// counts beyond. [Traffic] draws a chart from the counts.
package violations
