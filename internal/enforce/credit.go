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

// Creditor is a store whose single buckets can be reset or credited.
type Creditor interface {
	// Credit adds an amount to a bucket; see State.Credit for a negative one and Fill.
	//
	// The limit is the caller's, as in Take; a newer one of the bucket stays in force. Even an equal level is written,
	// because a clock that steps back would undo a reset; an unused bucket is not.
	//
	// After an error the bucket was credited at most once.
	Credit(ctx context.Context, key Key, limit Limit, amount Tokens) (before, after Bucket, err error)

	// CreditOnce is Credit with an idempotency key of the tenant, kept for CreditsRemembered. A repeat returns the
	// first answer, or ErrCreditIDReused if the bucket or amount differs.
	CreditOnce(ctx context.Context, id string, key Key, limit Limit, amount Tokens) (before, after Bucket,
		isRepeated bool, err error)
}

// CreditsRemembered is the life of CreditOnce's ids.
const CreditsRemembered = 24 * time.Hour

// ErrCreditIDReused means that the id was used for another credit.
var ErrCreditIDReused = errors.New("the id names another credit")

// CreditFingerprint identifies a credit's bucket and amount.
func CreditFingerprint(key Key, amount Tokens) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%d %d %d %s", key.Tenant, key.Rule, amount, key.Subject))
}

// Fill is the amount that fills any bucket.
const Fill Tokens = math.MaxInt64

// Credit adds up to the burst; a negative amount stops at 0 and deepens no debt. A log gives back its latest tokens, a
// sliding window those of its present window first, a concurrency limit its oldest slots. Negative credits take no
// slots.
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

// logGiveBack removes the latest whole tokens; the log must have more.
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
