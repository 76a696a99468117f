package enforce

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"time"
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

	// CreditOnce is Credit for a caller that repeats it until it is answered. For a day the store remembers the
	// credits of a tenant by the ids that their callers chose: one whose id it knows changes nothing, and answers
	// as it did the first time. It is ErrCreditIDReused if that was another bucket or amount.
	CreditOnce(ctx context.Context, id string, key Key, limit Limit, amount Tokens) (before, after Bucket, isRepeated bool, err error)
}

// CreditsRemembered is how long CreditOnce knows an id.
const CreditsRemembered = 24 * time.Hour

// ErrCreditIDReused is for an id that named another credit before.
var ErrCreditIDReused = errors.New("the id names another credit")

// CreditFingerprint tells credits with one id apart.
func CreditFingerprint(key Key, amount Tokens) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%d %d %d %s", key.Tenant, key.Rule, amount, key.Subject))
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
