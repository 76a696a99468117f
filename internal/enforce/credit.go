package enforce

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"time"
)

// Creditor is a store whose buckets people can reset or credit one by one. To look at a bucket, use Buckets.Take at a cost
// of 0.
type Creditor interface {
	// Credit adds an amount to a bucket, and returns the bucket settled before and after. See Bucket.Credit; an amount of
	// Fill resets the bucket, and a negative one takes away.
	//
	// The limit is the one that the caller knows, as in Take; a later one of the bucket stays in force. Crediting an unused
	// bucket, which is full, writes nothing. Any other is written even at the same level, so that a clock that steps back
	// does not undo a reset.
	//
	// An error means that the store could not answer in time; the bucket was credited at most once.
	Credit(ctx context.Context, key Key, limit Limit, amount Tokens) (before, after Bucket, err error)

	// CreditOnce is Credit for a caller that retries. The store remembers a tenant's credits for a day by the callers' ids:
	// a repeated id changes nothing and returns the first answer, or ErrCreditIDReused if the bucket or amount differs.
	CreditOnce(ctx context.Context, id string, key Key, limit Limit, amount Tokens) (before, after Bucket, isRepeated bool, err error)
}

// CreditsRemembered is how long CreditOnce remembers an id.
const CreditsRemembered = 24 * time.Hour

// ErrCreditIDReused means that the id named another credit before.
var ErrCreditIDReused = errors.New("the id names another credit")

// CreditFingerprint tells credits with one id apart.
func CreditFingerprint(key Key, amount Tokens) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%d %d %d %s", key.Tenant, key.Rule, amount, key.Subject))
}

// Fill is the amount that fills any bucket.
const Fill Tokens = math.MaxInt64

// Credit adds an amount, perhaps a negative one, to the bucket, which must be settled. The level stays between 0 and the
// burst.
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
