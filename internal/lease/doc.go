// Package lease spends tokens of busy buckets in this process, without a round trip to the store for each check.
//
// A [Bucket] holds tokens that the store has lent to this process ahead of demand; enforce.State.Lease says what the store
// promises, and why no interval admits more than burst + rate × time. What leases can cost is the opposite: tokens that are
// lent to a process and not spent there are missing elsewhere until they are given back or forgotten.
//
// [Buckets] stands in front of the store. Of a check it takes what it holds, and the store decides the other buckets, if there
// are any, as if the check had no more. What was taken is spent if the check is allowed, and put back if it is denied.
//
// Every lent token has a deadline on this process's monotonic clock and on its wall clock. Either ends it, because one of
// them may stand still while the machine is suspended. Both are read for every check.
//
// A report is never repeated, because nobody knows whether the store counted one whose answer was lost. The store then
// counts too much as lent until the slot is forgotten, which admits less and never more.
package lease
