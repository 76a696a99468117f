package enforce

import (
	"context"

	"github.com/sluicegate/sluice/internal/rules"
)

// Buckets is a store of token buckets.
type Buckets interface {
	// Take answers every ask in place, in order: a later ask sees what an earlier one took.
	//
	// Each ask is all or nothing: it is allowed, and Cost taken from all its enforced tiers, if
	// every one of them holds Cost; else nothing is taken from any. A shadow tier is taken from if
	// the ask is allowed and the tier holds Cost. A denied ask writes nothing but settled buckets
	// (see Bucket.Settle). A cost of 0 looks without taking.
	//
	// A denial is an answer. An error means that the store could not answer in time, except for
	// the asks that it marked Answered; for each of the others tokens may or may not have been
	// taken, once.
	//
	// Take returns within the deadline of ctx, and does not touch asks after it returned.
	Take(ctx context.Context, asks []BucketCheck) error
}

// Ask is one check's question to its buckets, and the answer.
type BucketCheck struct {
	Cost Tokens
	// ReadAt is when the caller last read all limits, those of the tiers among them, in microseconds since
	// the Unix epoch on the database's clock; 0 if it does not know. Bucket.Settle says what it decides.
	ReadAt int64
	// Tiers are buckets of one tenant, no two with the same key.
	Tiers []Tier

	// Allowed is the answer: every enforced tier holds Cost.
	Allowed bool
	// Answered says of an ask in a call that failed that it was answered all the same.
	Answered bool
	// Recalled says that the store was not asked, because a DenialCache knew that it denies. Then
	// only the tiers that do not hold Cost have an answer, and it is theirs alone.
	Recalled bool
}

// Answer answers the ask at a time, as Buckets.Take promises, out of the buckets that a store in this
// process holds: held[i] is that of Tiers[i], or nil if nobody used it. What is to be remembered is
// written into held. If it says that tokens were taken, the store must remember too, of the tiers
// that had no bucket, each that Holds: Tier.Bucket is the new one.
func (c *BucketCheck) TakeFrom(held []*Bucket, now int64) (taken bool) {
	c.Allowed = true
	for i := range c.Tiers {
		tier := &c.Tiers[i]
		if held[i] == nil {
			tier.Bucket = NewBucket(tier.Limit, now)
		} else {
			tier.Bucket = *held[i]
			if tier.Bucket.Settle(tier.Limit, c.ReadAt, now) {
				*held[i] = tier.Bucket
			}
		}
		tier.Holds = tier.Bucket.Level.Holds(c.Cost)
		if !tier.Holds && !tier.Shadow {
			c.Allowed = false
		}
	}
	if !c.Allowed || c.Cost == 0 {
		return false
	}
	for i := range c.Tiers {
		if tier := &c.Tiers[i]; tier.Holds {
			tier.Bucket.Level.Micros -= c.Cost
			if held[i] != nil {
				*held[i] = tier.Bucket
			}
		}
	}
	return true
}

// Key names one bucket.
type Key struct {
	Tenant  rules.TenantID
	Rule    rules.RuleID
	Subject string // any bytes; see rules.Match
}

// Tier is one bucket of an ask.
type Tier struct {
	Key    Key
	Limit  Limit // as the caller knows it
	Shadow bool  // never decides

	// Holds is part of the answer: the bucket held the cost when it was asked.
	Holds bool
	// Bucket is part of the answer: the bucket after the ask, with the limit in force. Its Stamp
	// is the store's and may be left out.
	Bucket Bucket
}
