package enforce

import (
	"context"
	"math"
)

// Creditor is a store whose buckets people can change one by one, to reset one or to credit it.
// Looking at buckets needs no port of its own: that is Buckets.Take at a cost of 0, with an ask for
// each bucket, so that the store can part them as it likes.
type Creditor interface {
	// Credit adds an amount to a bucket, or takes it away if it is negative, and returns the bucket
	// as it was, settled, and as it is now. See Bucket.Credit; an amount of Fill resets the bucket.
	//
	// The limit is the one that the caller knows, as in Take, and a later one that the bucket holds
	// stays in force. A bucket that nobody used is full: crediting it writes nothing. Any other is
	// written even if its level stays the same, so that no clock that steps back undoes a reset.
	//
	// An error means that the store could not answer in time; the bucket may then have been
	// credited or not, once.
	Credit(ctx context.Context, key Key, limit Limit, amount Tokens) (before, after Bucket, err error)
}

// Fill is an amount that fills any bucket.
const Fill Tokens = math.MaxInt64

// Credit adds an amount to the bucket, which must be settled, or takes it away if it is negative. The
// bucket then holds no less than nothing and no more than its burst.
func (b *Bucket) Credit(amount Tokens) {
	full := capacity(b.Limit)
	switch {
	case amount >= full-b.Level.Micros:
		b.Level = Level{Micros: full}
	case amount < -b.Level.Micros:
		b.Level = Level{}
	default:
		b.Level.Micros += amount
	}
}
