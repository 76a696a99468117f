package enforce

import (
	"context"
	"errors"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// ErrNothingTaken marks an error of Take that took nothing for the unanswered checks.
var ErrNothingTaken = errors.New("nothing was taken")

// Buckets is a store of buckets.
type Buckets interface {
	// Take decides checks in order, each all or nothing; a later one sees the takes of the earlier ones.
	//
	// If every enforced tier holds Cost, the check takes Cost from them and from the shadow tiers that hold it. A
	// denied check writes only buckets whose limit or clock changed (see State.Advance).
	//
	// A denial is not an error. An error means no answer in time for the checks that are not marked Answered. Their
	// tokens may have been taken once, unless the error is ErrNothingTaken.
	//
	// Take returns within the store's time budget, or a few after a loss of data, and does not touch the checks
	// afterwards. The cancellation of ctx is ignored, because a check shares its batch with checks of other callers.
	Take(ctx context.Context, checks []BucketCheck) error
}

// BucketCheck is a check as a store of buckets sees it, with the store's answer.
type BucketCheck struct {
	Cost  Tokens
	Mixed bool // the tiers differ in cost; Cost is the largest
	// ReadAt is when the caller last read all limits, in µs since the Unix epoch by the database; 0 if unknown.
	ReadAt  int64
	Tiers   []Tier // buckets of one tenant, no two with the same key
	Holder  Holder
	Reserve *Reservation
	Look    bool
	NoDelay bool
	// Record charges for something that has happened, and is Allowed even if nothing is left; no concurrency slot is
	// taken.
	Record bool
	// RecordID: a repeat within two minutes is a look, and Repeated. The store remembers MaxRecordIDs of a tenant and
	// charges nothing for more, which are Exhausted.
	RecordID RecordID
	// Call is set by a store whose other calls of a tenant, such as settlements, queue in line with checks.
	Call any

	TakeAnswer
}

// TakeAnswer is a store's answer to a BucketCheck, beside those of its tiers.
type TakeAnswer struct {
	Allowed   bool
	Exhausted bool
	Repeated  bool
	// Answered: the store answered although Take returned an error.
	Answered bool
	// Recalled: a DenialCache denied the check, so only the tiers that lack Cost have an answer.
	Recalled bool
	Leased   bool
}

// TakeFrom decides the check on buckets in memory, updating held[i] of Tiers[i], which is nil if unused. If TakeFrom
// returns true, the store must also keep state[i] where held[i] is nil and c.Takes(i). Before the call, a store sets
// Repeated, and Exhausted if there is no room for a reservation or RecordID.
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

// Takes reports whether an allowed check takes from an answered tier's bucket.
func (c *BucketCheck) Takes(tier int) bool {
	return c.takes(&c.Tiers[tier], c.Tiers[tier].Bucket.Limit)
}

func (c *BucketCheck) takes(tier *Tier, limit Limit) bool {
	return tier.Holds && c.costOf(tier) > 0 && !(c.Record && limit.Kind == rules.KindConcurrency)
}

// IsChargedAfter reports whether a tier is charged as much of the cost as fits.
func (c *BucketCheck) IsChargedAfter(tier *Tier) bool { return tier.After || c.Record }

func (c *BucketCheck) takeFrom(tier *Tier, state *State) (charged Tokens) {
	amount := charge(state.Limit, c.costOf(tier))
	if c.IsChargedAfter(tier) {
		return state.takeMore(amount, c.Holder)
	}
	state.take(amount, c.Holder)
	return amount
}

// Took reports whether the check was allowed and is no look.
func (c *BucketCheck) Took() bool { return c.Allowed && c.Cost > 0 && !c.Look && !c.Repeated }

// SetCharged sets Charged of an answered tier without After.
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
	Key        Key
	Limit      Limit // as the caller knows it
	Shadow     bool  // never decides
	NeverLease bool
	// After: the tier holds any cost while a millionth of a token is left, else not even 0. A token bucket can then go
	// into debt by one burst; other algorithms give all they have. Leases do not serve the tier.
	After bool
	Meter rules.Meter
	Cost  Tokens

	TierAnswer
}

// TierAnswer is a store's answer about a tier.
type TierAnswer struct {
	Holds   bool
	Charged Tokens
	Bucket  Bucket
	// Out is lent, to as many processes as Holders.
	Out     Tokens
	Holders int64
	Former  Tokens
	// hasWaits: retry (until the bucket holds the cost) and reset (until it is full) come from the store; see
	// NeedsWaits.
	hasWaits     bool
	retry, reset time.Duration
}

func (t *Tier) answer(check *BucketCheck, state *State) {
	t.TierAnswer = TierAnswer{
		Holds: t.Holds, Charged: t.Charged, Bucket: state.View(), Out: state.Out(), Holders: state.Holders(),
		Former: state.Former,
	}
	if !NeedsWaits(t.Bucket.Limit) && t.Out == 0 {
		return
	}
	t.hasWaits, t.reset = true, state.TimeToFull()
	if !t.Holds {
		t.retry, _ = state.Wait(check.needed(t, t.Bucket.Limit))
	}
}

// Serve answers the tier from leased tokens that hold the cost.
func (t *Tier) Serve(bucket Bucket, charged Tokens) {
	t.TierAnswer = TierAnswer{Holds: true, Charged: charged, Bucket: bucket}
}

// SetWaits sets the waits that Level does not determine, in microseconds.
func (t *Tier) SetWaits(retry, reset int64) {
	t.hasWaits, t.retry, t.reset = true, micros(retry), micros(reset)
}

// NeedsWaits reports whether Level does not determine the waits of a limit's buckets, as after any lending.
func NeedsWaits(limit Limit) bool { return isListed(limit) && limit.Kind != rules.KindConcurrency }

// Wait returns how long the tier takes to hold what the check needs; ok is false for a cost above the burst.
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

// TimeToFull returns how long the bucket takes to fill; 0 for a concurrency limit.
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
