package enforce

import (
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Check asks whether a request may pass at a cost.
type Check struct {
	rules.Request
	// EffectivePlan is the plan that decides, from snapshot.Tenant.PlanOf; "" for none. Request.Plan is the plan that
	// the caller named.
	EffectivePlan string
	Cost          Tokens // of rules that count requests; 0 looks without taking
	// Costs are the costs of rules that count something else, at most one for each meter.
	Costs []MeterCost
	// OwnLimit, a fixed window without Since, replaces the limits of the matching rules that name a descriptor; nil
	// replaces none. A burst of 0 blocks.
	OwnLimit *rules.Limit
	// Proxied: the caller is a proxy, which can neither wait nor release. A queue denies instead of delaying, and
	// concurrency rules do not apply.
	Proxied bool
	// Reserve keeps a reservation for ReserveFor (0: DefaultReserveFor). A check that meets a concurrency rule always
	// reserves.
	Reserve    bool
	ReserveFor time.Duration
	// Record: the cost has been incurred. All matching limits but those of concurrency are charged, whatever they have
	// left and whether a rule blocks, and nothing is charged behind a bypass. Only the shared store charges. A store
	// that remembers the RecordID charges nothing.
	Record   bool
	RecordID RecordID
	// Key is the id of the caller's API key. Only reservations need it.
	Key string
}

// MeterCost is the cost of a check for the rules that count a meter.
type MeterCost struct {
	Meter rules.Meter
	Cost  Tokens
}

// CostOf returns the check's cost for a rule; isNamed is false if the check has no cost of the rule's meter.
func (c *Check) CostOf(rule *rules.Rule) (cost Tokens, isNamed bool) {
	if rule.Meter == "" {
		return c.Cost, true
	}
	for i := range c.Costs {
		if c.Costs[i].Meter == rule.Meter {
			return c.Costs[i].Cost, true
		}
	}
	return 0, false
}

// SetCost sets the cost of rules that count a meter, which had none.
func (c *Check) SetCost(meter rules.Meter, cost Tokens) {
	if meter == "" {
		c.Cost = cost
		return
	}
	c.Costs = append(c.Costs, MeterCost{meter, cost})
}

// IsLook reports whether the check costs nothing.
func (c *Check) IsLook() bool {
	for i := range c.Costs {
		if c.Costs[i].Cost > 0 {
			return false
		}
	}
	return c.Cost == 0
}

// counts reports whether a matched rule takes part in the check: the check names its meter, or the rule is charged
// after and can deny a check by having nothing left.
func (c *Check) counts(m *rules.Match) bool {
	if m.Rule.Meter == "" || m.Rule.ChargedAfter {
		return true
	}
	_, isNamed := c.CostOf(m.Rule)
	return isNamed
}

// Reason is why a check was denied.
type Reason string

// The reasons. Blocked and CostExceedsLimit have no finite wait.
const (
	LimitExceeded       Reason = "limit_exceeded"
	ConcurrencyExceeded Reason = "concurrency_exceeded"
	Blocked             Reason = "blocked"
	CostExceedsLimit    Reason = "cost_exceeds_limit"
	// ReservationsExhausted: the tenant has MaxReservations open, and no tier decides.
	ReservationsExhausted Reason = "reservations_exhausted"
	StoreUnavailable      Reason = "store_unavailable"
	// RecordIDsExhausted: the tenant has MaxRecordIDs, and the record was not charged.
	RecordIDsExhausted Reason = "record_ids_exhausted"
)

// Reasons lists the reasons of checks that are no records. Every surface must have an answer for each.
var Reasons = [...]Reason{
	LimitExceeded, ConcurrencyExceeded, Blocked, CostExceedsLimit, ReservationsExhausted, StoreUnavailable,
}

// Decision answers a check.
type Decision struct {
	Allowed bool
	Reason  Reason // "" when allowed
	Plan    string // the check's EffectivePlan
	// Bypassed: an enforced bypass rule matched.
	Bypassed bool
	// Degraded: a failure mode decided, because the shared store did not answer or this process cannot apply the rule.
	Degraded bool
	// Record: the check was a record, which is not Allowed only if it was not charged. Repeated: the store has charged
	// the RecordID before.
	Record, Repeated bool
	// Recalled: a DenialCache denied the check without the store.
	Recalled bool
	// Delay is how long the caller of an allowed check waits: the longest of its enforced queues.
	Delay time.Duration
	// Reservation is valid if HasReservation.
	Reservation    ReservationID
	HasReservation bool
	// Deciding is the index in Tiers of the tier that denied the check. For an allowed check it is the enforced limit
	// of requests with the fewest whole tokens (ties: the longest reset, the lowest rule id) or, without one, the limit
	// with the smallest share left. Deciding is -1 without such a tier and if reservations are exhausted.
	Deciding int
	// Tiers are in order of rule id. Tiers that failed open and limits behind a bypass or a block are left out, and
	// tiers that may hold the cost are left out of a recalled denial.
	Tiers []TierDecision
	// Times is how many equal checks the decision is for, since clients report leased checks in bulk. 0 is one.
	Times int64
	// Reported is how many checks the client's whole report has; 0 for a check that the server decided. An observer
	// whose work grows with Times must bound it per report, because one request can report billions of checks.
	Reported int64

	matches     []rules.Match // what Tiers point into
	isExhausted bool
	isUncharged bool // the store did not take the record
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
	Match   *rules.Match
	Allowed bool
	Reason  Reason
	// Limit is the limit in force. Blocks and bypasses have none.
	Limit Limit
	// BucketRead: the tier is a limit whose bucket was read. Without it the fields below mean nothing.
	BucketRead bool
	// Remaining is the level after the check. It is at least minus a millionth, unless the bucket is in debt.
	Remaining Tokens
	// Charged is what the check took from the bucket.
	Charged Tokens
	// Out is the amount that the bucket has lent, and Holders the number of processes that hold it.
	Out     Tokens
	Holders int64
	// RetryAfter is how long until the tier would allow the cost; 0 if it does now or never will.
	RetryAfter time.Duration
	// ResetAfter is how long until the bucket is full; 0 for a concurrency limit.
	ResetAfter time.Duration
	// Stamp is when the bucket was read, in microseconds since the Unix epoch on the store's clock.
	Stamp int64
	// Delay is how long the tier's queue makes the caller wait.
	Delay time.Duration
}

// Enforced reports whether the tier can decide. A tier in an unknown mode can also decide, by failing closed.
func (t *TierDecision) Enforced() bool {
	mode := t.Match.Mode
	return mode == rules.ModeEnforce || mode != rules.ModeShadow && isUnknown(t.Match)
}

// DecidingTier returns the tier at Deciding, or nil. A zero Decision, which denies, has none.
func (d *Decision) DecidingTier() *TierDecision {
	if d.Deciding < 0 || d.Deciding >= len(d.Tiers) {
		return nil
	}
	return &d.Tiers[d.Deciding]
}

// MoreAfter returns how long until the bucket has more for this caller: the wait of a denial, else the time to the next
// whole token, and 0 if the bucket is full. A window reports when it is full.
func (t *TierDecision) MoreAfter() time.Duration {
	switch {
	case t.RetryAfter > 0:
		return t.RetryAfter
	case !t.Limit.Kind.Algorithm().HasRate():
		return t.ResetAfter
	}
	bucket := Bucket{Level: Level{Micros: t.Remaining}, Stamp: t.Stamp, Limit: t.Limit}
	next := min(t.Remaining.Whole()+1, t.Limit.Burst)
	return bucket.until(Tokens(next)*Token, 0)
}

// Window returns the time that earns a burst: the length of the present window, or how long an empty bucket takes to
// fill.
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
