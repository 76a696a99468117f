// Package enforce makes one decision out of all the rules that match a check.
//
// The Limiter asks a snapshot.Tenant which rules match, asks a Buckets store for all their
// buckets at once, and draws the decision from the answers, in this order:
//
//  1. an enforced bypass lets the check pass, and nothing else is asked;
//  2. an enforced block denies it, and nothing else is asked;
//  3. a cost above an enforced limit's burst denies it, with no time at which it would pass;
//  4. tokens are taken from all enforced limits or, if one of them lacks tokens, from none. Of the
//     limits that deny, the one with the longest wait decides.
//
// Shadow rules are taken from when the check is allowed and they hold the tokens; they report and
// never decide.
//
// When the store cannot answer, every decision is still made, by the failure mode of each matching
// rule, and is marked degraded. An error of a store is never an answer about a caller.
//
// People look at buckets through Buckets.Take at a cost of 0, and reset or credit one through the
// Creditor port; a bucket's name for them is Key.Text.
//
// A decision costs one call of Buckets.Take, which is one round trip, whatever the number of rules
// that match; none if a DenialCache in front of the store knows that the store would deny. The package
// does no other input or output, and holds no state but what such a cache remembers for a second.
package enforce
