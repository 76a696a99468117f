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
	Take(ctx context.Context, asks []Ask) error
}

// Ask is one check's question to its buckets, and the answer.
type Ask struct {
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
