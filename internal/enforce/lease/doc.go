// Package lease spends tokens of busy buckets in this process, without a round trip to the store for each check.
//
// A [lend.Bucket] holds tokens that the store has lent to this process; enforce.State.Lease says why no interval admits
// more than burst + rate × time. A lease can only admit less: tokens that are not spent here are missing elsewhere
// until they are given back or forgotten.
//
// [Buckets] stands in front of the store. It decides the leased buckets of a check, and the store the others. Leased
// tokens are spent if the check is allowed, and put back if it is denied.
//
// A lease ends on the monotonic or the wall clock, whichever is first, because one of them may stand still while the
// machine is suspended. Every check reads both.
//
// A report is never repeated, because the store may have counted it. If the report was lost, the store counts too much
// as lent until it forgets the time slot, and admits less.
package lease
