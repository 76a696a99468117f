// Package enforce makes one decision out of all the rules that match a check.
//
// The Limiter matches a check against a tenant's rules, takes from all their buckets at once, and decides:
//
//  1. an enforced bypass lets the check pass, whatever else matches;
//  2. an enforced block denies it;
//  3. a cost above an enforced limit's burst denies it, with no time at which it would pass;
//  4. tokens are taken from all enforced limits or, if one of them lacks tokens, from none. Among limits that deny,
//     the one with the longest wait decides; a concurrency limit only if no other denies.
//
// Shadow rules never decide, and give what they hold to allowed checks.
//
// A decision costs one round trip for any number of rules, or none if the store's DenialCache denies it.
//
// # Words
//
//   - check: a caller asks whether a request may pass, at a cost; decision: the answer
//   - tier: one matching rule's part of a check and of its decision
//   - bucket: the tokens of one rule for one subject; bucket check: a check as a bucket store sees it
//   - take: to take a check's cost from its buckets; look: to ask for the answer of a take
//   - advance: to bring a bucket to the present time and limit
//   - slot: one unit of a concurrency limit, owned by a Holder; time slot: when lent tokens end
//   - reservation: the charges of a check, kept open until a settlement corrects them
//   - recalled denial: a denial from the DenialCache
//   - degraded decision: one by failure modes, without the store
//   - batch: the checks that go to Redis in one round trip; their tenants take turns by deficit round robin
package enforce
