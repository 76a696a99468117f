package enforce

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Creditor is a store whose single buckets can be reset or credited. Buckets.Take at a cost of 0 reads one.
type Creditor interface {
	// Credit adds an amount to a bucket, and returns the bucket before and after; see State.Credit. Fill resets the
	// bucket, and a negative amount takes away.
	//
	// The limit is the caller's, as in Take; a newer one of the bucket stays in force. Crediting an unused bucket
	// writes nothing, because it is full. Every other credit is written, even at the same level, because a clock that
	// steps back would otherwise undo a reset.
	//
	// An error means that the store gave no answer in time; the bucket was credited at most once.
	Credit(ctx context.Context, key Key, limit Limit, amount Tokens) (before, after Bucket, err error)

	// CreditOnce is Credit with an idempotency key, kept per tenant for CreditsRemembered. A repeated id changes
	// nothing and returns the first answer, or ErrCreditIDReused if the bucket or amount differs.
	CreditOnce(ctx context.Context, id string, key Key, limit Limit, amount Tokens) (before, after Bucket,
		isRepeated bool, err error)
}

// CreditsRemembered is how long CreditOnce keeps an id.
const CreditsRemembered = 24 * time.Hour

// ErrCreditIDReused means that the id was used for another credit.
var ErrCreditIDReused = errors.New("the id names another credit")

// CreditFingerprint identifies a credit's bucket and amount.
func CreditFingerprint(key Key, amount Tokens) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%d %d %d %s", key.Tenant, key.Rule, amount, key.Subject))
}

// Fill is the amount that fills any bucket.
const Fill Tokens = math.MaxInt64

// Credit adds an amount to an advanced bucket. A credit stops at the burst. A negative one stops at 0, or changes
// nothing if the bucket is in debt. A log gives back its latest tokens, a sliding window the tokens of its present
// window first, and a concurrency limit its oldest slots. A negative credit takes no concurrency slots.
func (s *State) Credit(amount Tokens) {
	full := s.room()
	if amount >= full-s.left() {
		if s.Limit.Kind == rules.KindTokenBucket {
			s.Level = Level{Micros: full} // what is lent stays so
			return
		}
		*s = NewState(s.Limit, s.Stamp)
		return
	}
	switch s.Limit.Kind {
	case rules.KindSlidingWindow:
		amount = max(amount, -s.left())
		s.Level.Micros += amount
		if over := s.Level.Micros - full; over > 0 {
			s.Level.Micros, s.Former = full, max(0, s.Former-over)
		}
	case rules.KindSlidingWindowLog:
		if amount < 0 {
			if amount = min(charge(s.Limit, -max(amount, -full)), max(0, s.Level.Micros)); amount > 0 {
				s.take(amount, Holder{})
			}
			return
		}
		s.logGiveBack(amount)
	case rules.KindConcurrency:
		for ; amount >= Token; amount -= Token {
			s.Entries = s.Entries[holdBytes:]
			s.Level.Micros += Token
		}
	default:
		switch least := min(s.Level.Micros, 0); { // a negative credit changes no debt
		case amount >= least-s.Level.Micros: // the sum may not fit 64 bits
			s.Level.Micros += amount
		case least == 0:
			s.Level = Level{}
		}
	}
}

// logGiveBack removes the latest whole tokens from the log, fewer than it has.
func (s *State) logGiveBack(amount Tokens) {
	for amount >= Token {
		last := len(s.Entries) - logBytes
		stamp, count := timeAt(s.Entries, last), Tokens(countAt(s.Entries, last))
		back := min(count, amount/Token)
		amount -= back * Token
		s.Level.Micros += back * Token
		s.Entries = s.Entries[:last]
		if count > back {
			now := s.Stamp
			s.Stamp = stamp
			s.logTake((count - back) * Token)
			s.Stamp = now
		}
	}
}
