// Package lease spends tokens of busy buckets in this process, without a round trip for each check.
//
// enforce.State.Lease says why no interval admits more than burst + rate × time. A lease can only admit less: unspent
// tokens are missing elsewhere until given back or forgotten.
//
// A lease ends on the monotonic or wall clock, whichever is first, because one may stand still during suspension.
//
// Reports are never repeated, because the store may have counted them.
package lease
