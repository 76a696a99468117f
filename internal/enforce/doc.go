// Package enforce makes one decision out of all the rules that match a check.
//
// The Limiter matches a check against a tenant's rules, takes from all their buckets at once, and decides in this order:
//
//  1. an enforced bypass lets the check pass, whatever else matches;
//  2. an enforced block denies it;
//  3. a cost above an enforced limit's burst denies it, with no time at which it would pass;
//  4. tokens are taken from all enforced limits or, if one of them lacks tokens, from none. Of the limits that deny, the
//     one with the longest wait decides; a concurrency limit only if no other denies.
//
// Shadow rules report and never decide. Tokens are taken from them if the check is allowed and they hold them.
//
// When the store cannot answer, the failure mode of each matching rule decides, and the decision is marked degraded.
//
// A decision costs one Buckets.Take, which is one round trip, whatever the number of rules that match; none if a
// DenialCache knows that the store would deny. The package does no other input or output. People reset and credit buckets
// through the Creditor port, and callers settle reservations through the Reserver port.
//
// # Words
//
//   - check: a caller asks whether a request may pass, at a cost; decision: the answer
//   - tier: one matching rule's part of a check and of its decision
//   - bucket: the tokens of one rule for one subject; bucket check: a check as a bucket store sees it
//   - take: to take a check's cost from its buckets; look: to ask what a take would answer; settle: to bring a bucket to now
//   - place: what a check in flight holds of a concurrency limit; holder: who holds it
//   - reservation: what a check took, kept open until it is settled by what it really cost; record: the same in a store
//   - recalled denial: a denial by the DenialCache, from what it remembers of the store's answers
//   - degraded decision: one by failure modes, without the store
//   - call: one Take on its way to Redis; in flight: sent, and not answered yet
//   - batch: what goes to Redis in one round trip, as scripts; leader and followers: the call that sends a batch, and the
//     others in it (flat combining); their tenants take turns by deficit round robin
package enforce
