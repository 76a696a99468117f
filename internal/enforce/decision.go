package enforce

import (
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Check asks whether a request may pass at a cost.
type Check struct {
	rules.Request
	// EffectivePlan decides (see snapshot.Tenant.PlanOf); Request.Plan is the plan that the caller named.
	EffectivePlan string
	Cost          Tokens // of rules that count requests; 0 looks without taking
	Costs         []MeterCost
	// OwnLimit, a fixed window without Since, replaces the limits of rules that name a descriptor; a burst of 0 blocks.
	OwnLimit *rules.Limit
	// Proxied: the caller can neither wait nor release, so queues deny and concurrency rules do not apply.
	Proxied bool
	// Reserve keeps a reservation for ReserveFor (0: DefaultReserveFor), as every check of a concurrency rule does.
	Reserve    bool
	ReserveFor time.Duration
	// A record charges all limits but concurrency, even without tokens or behind a block, unless a bypass matches.
	Record   bool
	RecordID RecordID
	Key      string
}

// MeterCost is a cost for the rules of one meter.
type MeterCost struct {
	Meter rules.Meter
	Cost  Tokens
}

// CostOf returns the cost for a rule; isNamed is false without a cost of its meter.
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

// SetCost sets the cost of a meter that had none.
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

func (c *Check) counts(m *rules.Match) bool {
	if m.Rule.Meter == "" || m.Rule.ChargedAfter {
		return true
	}
	_, isNamed := c.CostOf(m.Rule)
	return isNamed
}

// Reason is why a check was denied.
type Reason string

// Blocked and CostExceedsLimit have no finite wait.
const (
	LimitExceeded       Reason = "limit_exceeded"
	ConcurrencyExceeded Reason = "concurrency_exceeded"
	Blocked             Reason = "blocked"
	CostExceedsLimit    Reason = "cost_exceeds_limit"
	// ReservationsExhausted: the tenant has MaxReservations open, and no tier decides.
	ReservationsExhausted Reason = "reservations_exhausted"
	StoreUnavailable      Reason = "store_unavailable"
	// RecordIDsExhausted: the tenant has MaxRecordIDs, so the record was not charged.
	RecordIDsExhausted Reason = "record_ids_exhausted"
)

// Reasons lists the reasons of checks other than records; every surface must answer each.
var Reasons = [...]Reason{
	LimitExceeded, ConcurrencyExceeded, Blocked, CostExceedsLimit, ReservationsExhausted, StoreUnavailable,
}

// Decision answers a check.
type Decision struct {
	Allowed  bool
	Reason   Reason // "" when allowed
	Plan     string // the check's EffectivePlan
	Bypassed bool
	Degraded bool
	// Record: the check was a record, Allowed if it was charged, now or, if Repeated, before.
	Record, Repeated bool
	Recalled         bool
	Delay            time.Duration
	Reservation      ReservationID
	HasReservation   bool
	// Deciding indexes the tier that denied, or of an allowed check the enforced tier with the least left; see
	// decidesBefore. Deciding is -1 without such a tier and if reservations are exhausted.
	Deciding int
	// Tiers are in order of rule id. Tiers that failed open or hold in a recalled denial, and limits behind a bypass or
	// block, are left out.
	Tiers []TierDecision
	// Times is how many equal checks a client reported; 0 is one.
	Times int64
	// Reported is how many checks the client's report has; 0 if the server decided. Bound work that grows with Times by
	// it, because a report can have billions.
	Reported int64

	matches     []rules.Match // what Tiers point into
	isExhausted bool
	isUncharged bool // the store did not take the record
}

// Count is how many checks the decision is for.
func (d *Decision) Count() int64 { return max(1, d.Times) }

// Reset clears the decision but keeps its memory.
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
	Limit   Limit
	// BucketRead: the bucket was read; else the fields below mean nothing.
	BucketRead bool
	// Remaining is at least minus a millionth, unless the bucket is in debt.
	Remaining  Tokens
	Charged    Tokens
	Out        Tokens
	Holders    int64
	RetryAfter time.Duration
	ResetAfter time.Duration
	Stamp      int64
	Delay      time.Duration
}

// Enforced reports whether the tier can decide, as an unknown mode can by failing closed.
func (t *TierDecision) Enforced() bool {
	mode := t.Match.Mode
	return mode == rules.ModeEnforce || mode != rules.ModeShadow && isUnknown(t.Match)
}

// DecidingTier returns the tier at Deciding, or nil, as for the zero Decision, which denies.
func (d *Decision) DecidingTier() *TierDecision {
	if d.Deciding < 0 || d.Deciding >= len(d.Tiers) {
		return nil
	}
	return &d.Tiers[d.Deciding]
}

// MoreAfter returns the wait of a denial, else the time to the next whole token or of a window to its reset.
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

// Window returns the length of the present window, or the time that fills an empty bucket.
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
