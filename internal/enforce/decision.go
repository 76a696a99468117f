package enforce

import (
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Check asks whether a request may pass, at a cost.
type Check struct {
	rules.Request
	// EffectivePlan is the plan that the check is judged on, from snapshot.Tenant.PlanOf; "" for none. Request.Plan is only
	// what the caller named.
	EffectivePlan string
	Cost          Tokens // 0 looks without taking
	// Proxied: the caller is a proxy, which can neither wait nor release. A queue that would delay the check denies it, and
	// concurrency rules are left out.
	Proxied bool
	// Reserve keeps what the check takes open for ReserveFor (0: DefaultReserveFor), so that it can be settled. A check that
	// meets a concurrency rule reserves in any case.
	Reserve    bool
	ReserveFor time.Duration
	// Key is the id of the API key that asks; only checks that reserve need it.
	Key string
}

// Reason says why a check was denied.
type Reason string

// The reasons. A blocked check and a cost above the limit have no finite wait.
const (
	LimitExceeded       Reason = "limit_exceeded"
	ConcurrencyExceeded Reason = "concurrency_exceeded"
	Blocked             Reason = "blocked"
	CostExceedsLimit    Reason = "cost_exceeds_limit"
	// ReservationsExhausted: the tenant has MaxReservations open. No tier decides.
	ReservationsExhausted Reason = "reservations_exhausted"
	StoreUnavailable      Reason = "store_unavailable"
)

// Decision answers a check.
type Decision struct {
	Allowed bool
	Reason  Reason // "" when allowed
	Plan    string // the check's EffectivePlan
	// Bypassed: an enforced bypass rule let the check pass.
	Bypassed bool
	// Degraded: the failure mode of a tier acted, because the shared store did not answer or because this process cannot
	// apply the rule.
	Degraded bool
	// Recalled: a DenialCache denied the check, without the store.
	Recalled bool
	// Delay is how long the caller of an allowed check waits before it goes on: the longest of its enforced queues.
	Delay time.Duration
	// Reservation names what an allowed check keeps open, if HasReservation.
	Reservation    ReservationID
	HasReservation bool
	// Deciding is the index in Tiers of the tier that denied the check. If allowed, it is that of the enforced limit with
	// the fewest whole tokens (ties: the longest reset, the lowest rule id), or -1 if there is none, or if reservations are exhausted.
	Deciding int
	// Tiers are in order of rule id. It lacks tiers that failed open, limits behind a bypass or a block and, in a recalled
	// denial, tiers that may hold the cost.
	Tiers []TierDecision
	// Times is how many equal checks the decision is for: clients that hold leased tokens report theirs in bulk. 0 is one.
	Times int64

	matches     []rules.Match // what Tiers point into
	isExhausted bool
}

// Count is how many checks the decision is for.
func (d *Decision) Count() int64 { return max(1, d.Times) }

// Reset clears the decision for reuse of its memory.
func (d *Decision) Reset() {
	clear(d.Tiers)
	clear(d.matches)
	*d = Decision{Tiers: d.Tiers[:0], matches: d.matches[:0]}
}

// TierDecision is one matching rule's part of a decision.
type TierDecision struct {
	Match *rules.Match
	// Allowed is this tier's own verdict.
	Allowed bool
	// Reason is why the tier denies; "" when it allows.
	Reason Reason
	// Limit is the limit in force; meaningless for block and bypass.
	Limit Limit
	// BucketRead: the tier is a limit whose bucket was read. Otherwise the fields below mean nothing.
	BucketRead bool
	// Remaining is what the bucket holds after the check, at least minus a millionth.
	Remaining Tokens
	// Out is what the bucket has lent to processes, as the store said, and Holders to how many.
	Out     Tokens
	Holders int64
	// RetryAfter is how long until the tier would allow the cost; 0 if it does or never will.
	RetryAfter time.Duration
	// ResetAfter is how long until the bucket is full; 0 for a concurrency limit, because nobody knows.
	ResetAfter time.Duration
	// Stamp is when the bucket was read, in microseconds since the Unix epoch on the store's clock.
	Stamp int64
	// Delay is how long the tier's queue makes the caller wait.
	Delay time.Duration
}

// Enforced reports whether the tier can decide. A tier in a mode that this process does not know can decide too, by
// failing closed.
func (t *TierDecision) Enforced() bool {
	mode := t.Match.Mode
	return mode == rules.ModeEnforce || mode != rules.ModeShadow && isUnknown(t.Match)
}

// DecidingTier returns the tier at Deciding, or nil.
func (d *Decision) DecidingTier() *TierDecision {
	if d.Deciding < 0 {
		return nil
	}
	return &d.Tiers[d.Deciding]
}

// MoreAfter returns how long until the bucket has more for this caller: its wait if the tier denies, else the time to the
// next whole token, and 0 if it is full. A window that slides says when it is full.
func (t *TierDecision) MoreAfter() time.Duration {
	switch {
	case t.RetryAfter > 0:
		return t.RetryAfter
	case isListed(t.Limit):
		return t.ResetAfter
	}
	bucket := Bucket{Level: Level{Micros: t.Remaining}, Stamp: t.Stamp, Limit: t.Limit}
	next := min(t.Remaining.Whole()+1, t.Limit.Burst)
	return bucket.until(Tokens(next) * Token)
}

// Window returns the time in which the burst is earned: the length of the present window, or how long an empty bucket takes
// to fill.
func (t *TierDecision) Window() time.Duration {
	if t.Limit.Kind == rules.KindFixedWindow {
		start, end := t.Limit.WindowAt(t.Stamp)
		return micros(end - start)
	}
	if !t.Limit.Kind.Algorithm().HasRate() {
		return micros(t.Limit.Interval)
	}
	return micros(Level{}.until(capacity(t.Limit), t.Limit.Rate))
}
