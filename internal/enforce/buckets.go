package enforce

import (
	"context"
	"errors"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// ErrNothingTaken marks an error of Take after which nothing was taken for the unanswered checks.
var ErrNothingTaken = errors.New("nothing was taken")

// Buckets is a store of buckets.
type Buckets interface {
	// Take decides a batch of checks in place, in order: a later check sees the takes of the earlier ones.
	//
	// Each check is all or nothing. If every enforced tier holds Cost, the check is allowed and takes Cost from these
	// tiers and from the shadow tiers that hold it. A denied check takes nothing and writes only buckets whose limit or
	// clock changed (see State.Advance). A Look and a cost of 0 take nothing. A tier with After holds any cost while
	// something is left, and a Record is never denied.
	//
	// A denial is not an error. An error means that the store gave no answer in time for the checks that are not marked
	// Answered. Tokens may have been taken for these checks, at most once, unless the error is ErrNothingTaken.
	//
	// Take returns within the store's own time budget, or a few after a loss of data, and does not touch the checks
	// afterwards. It ignores the cancellation of ctx, because a check shares its batch with checks of other callers.
	Take(ctx context.Context, checks []BucketCheck) error
}

// BucketCheck is a check as a store of buckets sees it, with the store's answer.
type BucketCheck struct {
	Cost Tokens
	// Mixed: the tiers differ in cost, and Tier.Cost has the cost of each. Cost is the largest.
	Mixed bool
	// ReadAt is when the caller last read all limits, in microseconds since the Unix epoch on the database's clock; 0
	// if unknown. See State.Advance.
	ReadAt int64
	// Tiers are buckets of one tenant, no two with the same key.
	Tiers []Tier
	// Holder owns the concurrency slots that the check takes.
	Holder Holder
	// Reserve asks the store to keep a reservation, even of a check that took nothing; nil asks for none.
	Reserve *Reservation
	// Look asks for the answer of a take without taking.
	Look bool
	// NoDelay denies a check that a queue would delay.
	NoDelay bool
	// Record charges the tiers for something that has already happened, as much as a tier with After would be charged,
	// even if nothing is left. An answered Record is Allowed, and all its tiers hold. It takes no concurrency slots and
	// never reserves.
	Record bool
	// RecordID lets the store charge a Record once: a repeat within two minutes is a look, and Repeated. The store
	// remembers MaxRecordIDs of a tenant and charges nothing for further ones, which are Exhausted.
	RecordID RecordID
	// Call is set by a store whose other calls of a tenant, such as settlements, queue in line with checks.
	Call any

	Allowed bool
	// Exhausted is part of the answer: only MaxReservations or MaxRecordIDs denied the check.
	Exhausted bool
	// Repeated is part of the answer: the RecordID was charged before.
	Repeated bool
	// Answered marks a check that was answered although Take returned an error.
	Answered bool
	// Recalled marks a denial from a DenialCache. Only the tiers that lack Cost then have an answer.
	Recalled bool
	// Leased marks a check that leased tokens in this process allowed.
	Leased bool
}

// TakeFrom decides the check on buckets in this process's memory, as Buckets.Take promises. held[i] is the bucket of
// Tiers[i], or nil if nobody used it; TakeFrom updates it in place. If TakeFrom returns true, the store must also keep
// state[i] for each i where held[i] is nil and c.Takes(i). The length of state is that of Tiers. A store sets
// Exhausted before the call if the check may not reserve or its RecordID has no room, and Repeated.
func (c *BucketCheck) TakeFrom(held []*State, state []State, now int64) (taken bool) {
	wasExhausted := c.Exhausted
	c.Allowed = true
	for i := range c.Tiers {
		tier := &c.Tiers[i]
		if held[i] == nil {
			state[i] = NewState(tier.Limit, now)
		} else {
			state[i] = *held[i]
			if state[i].Advance(tier.Limit, c.ReadAt, now) {
				*held[i] = state[i]
			}
		}
		view := state[i].View()
		tier.Holds, tier.Charged = c.Record || view.Level.Holds(c.needed(tier, view.Limit)), 0
		if !tier.Holds && !tier.Shadow {
			c.Allowed = false
		}
	}
	if c.Exhausted = wasExhausted && c.Allowed; c.Exhausted {
		c.Allowed = false
	}
	taken = c.Took()
	for i := range c.Tiers {
		tier := &c.Tiers[i]
		if taken && c.takes(tier, state[i].Limit) {
			tier.Charged = c.takeFrom(tier, &state[i])
			if held[i] != nil {
				*held[i] = state[i]
			}
		}
		tier.answer(c, &state[i])
	}
	return taken
}

// Takes reports whether an allowed check takes from the bucket of an answered tier.
func (c *BucketCheck) Takes(tier int) bool {
	return c.takes(&c.Tiers[tier], c.Tiers[tier].Bucket.Limit)
}

func (c *BucketCheck) takes(tier *Tier, limit Limit) bool {
	return tier.Holds && c.costOf(tier) > 0 && !(c.Record && limit.Kind == rules.KindConcurrency)
}

// IsChargedAfter reports whether the check charges a tier as much of its cost as fits.
func (c *BucketCheck) IsChargedAfter(tier *Tier) bool { return tier.After || c.Record }

func (c *BucketCheck) takeFrom(tier *Tier, state *State) (charged Tokens) {
	amount := charge(state.Limit, c.costOf(tier))
	if c.IsChargedAfter(tier) {
		return state.takeMore(amount, c.Holder)
	}
	state.take(amount, c.Holder)
	return amount
}

// Took reports whether the check was allowed and not a look or a repeat.
func (c *BucketCheck) Took() bool { return c.Allowed && c.Cost > 0 && !c.Look && !c.Repeated }

// SetCharged computes Charged of a tier without After, from its cost and the rest of the answer.
func (c *BucketCheck) SetCharged(tier *Tier) {
	tier.Charged = 0
	if c.Took() && tier.Holds {
		tier.Charged = charge(tier.Bucket.Limit, c.costOf(tier))
	}
}

func (c *BucketCheck) costOf(tier *Tier) Tokens {
	if c.Mixed {
		return tier.Cost
	}
	return c.Cost
}

// needed returns the amount that the bucket of a tier must hold for the check to pass.
func (c *BucketCheck) needed(tier *Tier, limit Limit) Tokens {
	if tier.After {
		return 1
	}
	amount := charge(limit, c.costOf(tier))
	if c.NoDelay && limit.Kind == rules.KindLeakyBucket && amount > 0 {
		return max(amount, capacity(limit)) // an empty queue
	}
	return amount
}

// isAboveBurst reports whether the bucket of a tier can never hold what the check needs.
func (c *BucketCheck) isAboveBurst(tier *Tier, limit Limit) bool {
	return !c.IsChargedAfter(tier) && charge(limit, c.costOf(tier)) > capacity(limit)
}

// Key names one bucket.
type Key struct {
	Tenant  rules.TenantID
	Rule    rules.RuleID
	Subject string // any bytes; see rules.Match
}

// Tier is one bucket of a BucketCheck.
type Tier struct {
	Key    Key
	Limit  Limit // as the caller knows it
	Shadow bool  // never decides
	// NeverLease: the rule forbids leasing its tokens.
	NeverLease bool
	// After: it holds any cost while a millionth of a token is left, else not even 0. An allowed check is charged its
	// cost as far as it fits: a token bucket can go into debt by one burst, and other algorithms give what is left.
	// Leases do not serve the tier.
	After bool
	// Meter is what the tier counts. Only reservations need it.
	Meter rules.Meter
	// Cost is the tier's own cost in a Mixed check.
	Cost Tokens

	// Holds is part of the answer: the bucket held the cost.
	Holds bool
	// Charged is part of the answer: what the check took from the bucket.
	Charged Tokens
	// Bucket is part of the answer: the bucket after the check, with the limit in force.
	Bucket Bucket
	// Out and Holders are part of the answer: the tokens that are lent, and the number of processes that hold them.
	Out     Tokens
	Holders int64
	// Former is part of the answer; see State.
	Former Tokens
	// hasWaits: the store computed retry (until the bucket holds the cost) and reset (until it is full), because Level
	// alone does not determine them; see NeedsWaits.
	hasWaits     bool
	retry, reset time.Duration
}

func (t *Tier) answer(check *BucketCheck, state *State) {
	t.Bucket, t.Out, t.Holders, t.hasWaits, t.retry, t.reset = state.View(), state.Out(), state.Holders(), false, 0, 0
	t.Former = state.Former
	if !NeedsWaits(t.Bucket.Limit) && t.Out == 0 {
		return
	}
	t.hasWaits, t.reset = true, state.TimeToFull()
	if !t.Holds {
		t.retry, _ = state.Wait(check.needed(t, t.Bucket.Limit))
	}
}

// Serve answers the tier from leased tokens, which hold the cost.
func (t *Tier) Serve(bucket Bucket, charged Tokens) {
	t.Holds, t.Charged, t.Bucket, t.Out, t.Holders, t.Former = true, charged, bucket, 0, 0, 0
	t.hasWaits, t.retry, t.reset = false, 0, 0
}

// SetWaits sets the waits that Level does not determine, in microseconds; see NeedsWaits.
func (t *Tier) SetWaits(retry, reset int64) {
	t.hasWaits, t.retry, t.reset = true, micros(retry), micros(reset)
}

// NeedsWaits reports whether a store must compute the waits of a limit's buckets. A bucket that has lent tokens needs
// them for any limit.
func NeedsWaits(limit Limit) bool { return isListed(limit) && limit.Kind != rules.KindConcurrency }

// Wait returns how long the tier's bucket takes to hold what the check needs, rounded up to the microsecond. ok is
// false for a cost above the burst.
func (t *Tier) Wait(check *BucketCheck) (wait time.Duration, ok bool) {
	limit := t.Bucket.Limit
	switch {
	case check.isAboveBurst(t, limit):
		return 0, false
	case t.Holds:
		return 0, true
	case limit.Kind == rules.KindConcurrency:
		return SlotWait, true
	case t.hasWaits:
		return t.retry, true
	}
	return t.Bucket.until(check.needed(t, limit), t.Former), true
}

// TimeToFull returns how long the tier's bucket takes to fill, rounded up to the microsecond; 0 for a concurrency
// limit, whose slots are released at unknown times.
func (t *Tier) TimeToFull() time.Duration {
	switch limit := t.Bucket.Limit; {
	case limit.Kind == rules.KindConcurrency:
		return 0
	case t.hasWaits:
		return t.reset
	}
	return t.Bucket.until(capacity(t.Bucket.Limit), t.Former)
}

// Delay returns how long the caller of an allowed check waits for the queue before it.
func (t *Tier) Delay() time.Duration {
	if t.Bucket.Limit.Kind != rules.KindLeakyBucket {
		return 0
	}
	before := t.Bucket
	before.Level.Micros += t.Charged
	return before.until(capacity(before.Limit), 0)
}
