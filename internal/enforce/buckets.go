package enforce

import (
	"context"

	"github.com/sluicegate/sluice/internal/rules"
)

// Buckets is a store of token buckets.
type Buckets interface {
	// Take decides a batch of checks in place, in order: a later check sees what an earlier one took.
	//
	// Each check is all or nothing. If every enforced tier holds Cost, the check is allowed, and Cost is taken from
	// them and from the shadow tiers that hold it. Otherwise nothing is taken. A denied check writes nothing but
	// settled buckets (see Bucket.Settle). A cost of 0 looks without taking.
	//
	// A denial is not an error. An error means that the store could not answer in time, except for the checks that it
	// marked Answered; for each of the others tokens may have been taken, at most once.
	//
	// Take returns within the deadline of ctx, and does not touch the checks after it returned.
	Take(ctx context.Context, checks []BucketCheck) error
}

// BucketCheck is a check as a store of buckets sees it, and the store's answer.
type BucketCheck struct {
	Cost Tokens
	// ReadAt is when the caller last read all limits, in microseconds since the Unix epoch on the database's clock; 0
	// if that is not known. See Bucket.Settle.
	ReadAt int64
	// Tiers are buckets of one tenant, no two with the same key.
	Tiers []Tier

	// Allowed is the answer: every enforced tier holds Cost.
	Allowed bool
	// Answered marks a check that was answered although Take returned an error.
	Answered bool
	// Recalled marks a denial by a DenialCache, without the store. Then only the tiers that do not hold Cost have an
	// answer.
	Recalled bool
}

// TakeFrom decides the check on buckets in this process's memory, as Buckets.Take promises. held[i] is the bucket of
// Tiers[i], or nil if nobody used it; TakeFrom updates it in place. If tokens were taken, the store must also keep
// Tier.Bucket of each tier that Holds and had no bucket.
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

// Tier is one bucket of a BucketCheck.
type Tier struct {
	Key    Key
	Limit  Limit // as the caller knows it
	Shadow bool  // never decides

	// Holds is part of the answer: the bucket held the cost.
	Holds bool
	// Bucket is part of the answer: the bucket after the check, with the limit in force. A store may leave out its Stamp.
	Bucket Bucket
}
