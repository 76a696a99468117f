package enforce

import (
	"context"
	"errors"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// ErrNothingTaken marks an error of Take after which certainly nothing was taken for the unanswered checks.
var ErrNothingTaken = errors.New("nothing was taken")

// Buckets is a store of buckets.
type Buckets interface {
	// Take decides a batch of checks in place, in order: a later check sees what an earlier one took.
	//
	// Each check is all or nothing. If every enforced tier holds Cost, the check is allowed, and Cost is taken from
	// them and from the shadow tiers that hold it. Otherwise nothing is taken. A denied check writes nothing but
	// settled buckets (see State.Settle). A Look, and a cost of 0, take nothing.
	//
	// A denial is not an error. An error means that the store could not answer in time, except for the checks that it
	// marked Answered; for each of the others tokens may have been taken, at most once, unless it is ErrNothingTaken.
	//
	// Take returns within the deadline of ctx, and does not touch the checks after it returned.
	Take(ctx context.Context, checks []BucketCheck) error
}

// BucketCheck is a check as a store of buckets sees it, and the store's answer.
type BucketCheck struct {
	Cost Tokens
	// Mixed: the tiers differ in cost, so each has its own in Tier.Cost. Cost is the largest of them.
	Mixed bool
	// ReadAt is when the caller last read all limits, in microseconds since the Unix epoch on the database's clock; 0
	// if that is not known. See State.Settle.
	ReadAt int64
	// Tiers are buckets of one tenant, no two with the same key.
	Tiers []Tier
	// Holder holds the places that the check takes, if a tier is a concurrency limit.
	Holder Holder
	// Reserve asks to keep what the check takes, so that it can be settled; nil asks for nothing. An allowed check then
	// has a reservation, also if it took nothing.
	Reserve *Reservation
	// Look asks what a take would answer, and takes nothing.
	Look bool
	// NoDelay denies where a queue would make the caller wait.
	NoDelay bool
	// Leases makes it a call of Lender.Lease instead, for the buckets of the tiers. Only a Lender's own code sets it, so that such
	// calls wait in line with checks.
	Leases []Lease

	// Allowed is the answer: every enforced tier holds Cost.
	Allowed bool
	// Exhausted is part of the answer: the check is denied only because its tenant has MaxReservations open.
	Exhausted bool
	// Answered marks a check that was answered although Take returned an error.
	Answered bool
	// Recalled marks a denial by a DenialCache, without the store. Then only the tiers that do not hold Cost have an
	// answer.
	Recalled bool
	// Leased marks a check that tokens in this process allowed, which the store had lent to it.
	Leased bool
}

// TakeFrom decides the check on buckets in this process's memory, as Buckets.Take promises. held[i] is the bucket of
// Tiers[i], or nil if nobody used it; TakeFrom updates it in place. If it returns true, the store must also keep state[i]
// of each tier that it Takes from and that had no bucket. state has room for all tiers. A store sets Exhausted before if the
// check may not reserve.
func (c *BucketCheck) TakeFrom(held []*State, state []State, now int64) (taken bool) {
	wasExhausted := c.Exhausted
	c.Allowed = true
	for i := range c.Tiers {
		tier := &c.Tiers[i]
		if held[i] == nil {
			state[i] = NewState(tier.Limit, now)
		} else {
			state[i] = *held[i]
			if state[i].Settle(tier.Limit, c.ReadAt, now) {
				*held[i] = state[i]
			}
		}
		view := state[i].View()
		tier.Holds = view.Level.Holds(c.needed(tier, view.Limit))
		if !tier.Holds && !tier.Shadow {
			c.Allowed = false
		}
	}
	if c.Exhausted = wasExhausted && c.Allowed; c.Exhausted {
		c.Allowed = false
	}
	taken = c.Allowed && c.Cost > 0 && !c.Look
	for i := range c.Tiers {
		tier := &c.Tiers[i]
		if taken && c.takes(tier) {
			state[i].take(charge(state[i].Limit, c.costOf(tier)), c.Holder)
			if held[i] != nil {
				*held[i] = state[i]
			}
		}
		tier.answer(c, &state[i])
	}
	return taken
}

// Takes reports whether an allowed check takes from the bucket of a tier.
func (c *BucketCheck) Takes(tier int) bool { return c.takes(&c.Tiers[tier]) }

func (c *BucketCheck) takes(tier *Tier) bool { return tier.Holds && c.costOf(tier) > 0 }

// costOf returns what the check takes from the bucket of a tier.
func (c *BucketCheck) costOf(tier *Tier) Tokens {
	if c.Mixed {
		return tier.Cost
	}
	return c.Cost
}

// needed returns what the bucket of a tier must hold for the check to pass.
func (c *BucketCheck) needed(tier *Tier, limit Limit) Tokens {
	amount := charge(limit, c.costOf(tier))
	if c.NoDelay && limit.Kind == rules.KindLeakyBucket && amount > 0 {
		return max(amount, capacity(limit)) // an empty queue
	}
	return amount
}

// Key names one bucket.
type Key struct {
	Tenant  rules.TenantID
	Rule    rules.RuleID
	Subject string // any bytes; see rules.Match
	// Shard is 0 if all buckets of the tenant are kept together, and else which of them are: 1 to rules.Shards. It follows from
	// the rest: see KeyOf.
	Shard uint8
}

// Tier is one bucket of a BucketCheck.
type Tier struct {
	Key    Key
	Limit  Limit // as the caller knows it
	Shadow bool  // never decides
	// NeverLease: the rule's tokens are not lent to processes.
	NeverLease bool
	// Cost is what a Mixed check takes from the bucket.
	Cost Tokens

	// Holds is part of the answer: the bucket held the cost.
	Holds bool
	// Bucket is part of the answer: the bucket after the check, with the limit in force.
	Bucket Bucket
	// Out and Holders are part of the answer: what the bucket has lent, and to how many processes.
	Out     Tokens
	Holders int64
	// told: retry and reset are the waits of a bucket whose Level does not tell them: until it holds the cost, if it does
	// not, and until it is full.
	told         bool
	retry, reset time.Duration
}

// answer fills the tier's answer from the settled bucket after the check.
func (t *Tier) answer(check *BucketCheck, state *State) {
	t.Bucket, t.Out, t.Holders, t.told, t.retry, t.reset = state.View(), state.Out(), state.Holders(), false, 0, 0
	if !TellsWaits(t.Bucket.Limit) && t.Out == 0 {
		return
	}
	t.told, t.reset = true, state.TimeToFull()
	if !t.Holds {
		t.retry, _ = state.Wait(check.costOf(t))
	}
}

// Serve answers the tier from tokens that the store has lent to this process: they hold the cost.
func (t *Tier) Serve(bucket Bucket) {
	t.Holds, t.Bucket, t.Out, t.Holders, t.told, t.retry, t.reset = true, bucket, 0, 0, false, 0, 0
}

// SetWaits sets the waits of a tier whose Level does not tell them, in microseconds; see TellsWaits.
func (t *Tier) SetWaits(retry, reset int64) {
	t.told, t.retry, t.reset = true, micros(retry), micros(reset)
}

// TellsWaits reports whether a store must tell the waits of a bucket with the limit. It must also tell those of a bucket that
// has lent tokens.
func TellsWaits(limit Limit) bool { return isListed(limit) && limit.Kind != rules.KindConcurrency }

// Wait returns how long the tier's bucket takes to hold the check's cost, rounded up to the microsecond. ok is false for a
// cost above the burst, which it never holds.
func (t *Tier) Wait(check *BucketCheck) (wait time.Duration, ok bool) {
	limit := t.Bucket.Limit
	switch {
	case charge(limit, check.costOf(t)) > capacity(limit):
		return 0, false
	case t.Holds:
		return 0, true
	case limit.Kind == rules.KindConcurrency:
		return PlaceWait, true
	case t.told:
		return t.retry, true
	}
	return t.Bucket.until(check.needed(t, limit)), true
}

// TimeToFull returns how long the tier's bucket takes to fill, rounded up to the microsecond; 0 for a concurrency limit,
// because nobody knows.
func (t *Tier) TimeToFull() time.Duration {
	switch limit := t.Bucket.Limit; {
	case limit.Kind == rules.KindConcurrency:
		return 0
	case t.told:
		return t.reset
	}
	return t.Bucket.until(capacity(t.Bucket.Limit))
}

// Delay returns how long the caller of an allowed check waits before it goes on, for what the queue held before it.
func (t *Tier) Delay(check *BucketCheck) time.Duration {
	if t.Bucket.Limit.Kind != rules.KindLeakyBucket {
		return 0
	}
	before := t.Bucket
	if check.Allowed && t.Holds && !check.Look {
		before.Level.Micros += check.costOf(t)
	}
	return before.until(capacity(before.Limit))
}
