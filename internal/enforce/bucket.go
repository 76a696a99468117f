package enforce

import (
	"math"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Limit is what a bucket allows; see rules.Limit.
type Limit = rules.Limit

// Level is what a bucket holds: Micros millionths of a token, plus Fraction / 2³² of one more.
//
// Two parts keep all refills of a bucket within one millionth of a token for 285 years. A float64 of tokens loses 0.06
// tokens in a million takes from a burst of 1e9.
type Level struct {
	Micros   Tokens
	Fraction uint32
}

const fractions = 1 << 32 // fractions in a millionth

// Holds forgives half a millionth of a token, so that rounding never denies a caller that waited for Retry-After.
func (l Level) Holds(cost Tokens) bool {
	return l.Micros >= cost || (l.Micros == cost-1 && l.Fraction >= fractions/2)
}

func (l Level) earn(elapsed int64, limit Limit) Level {
	return l.earnUpTo(elapsed, limit.Rate, capacity(limit))
}

func (l Level) earnUpTo(elapsed int64, rate float64, most Tokens) Level {
	// The float64 conversions prevent a fused multiply-add, which Lua does not have: both must round alike.
	whole := math.Floor(rate)
	gain := float64(float64(elapsed) * (rate - whole))
	gainWhole := math.Floor(gain)
	micros := float64(l.Micros) + float64(float64(elapsed)*whole) + gainWhole
	fraction := float64(l.Fraction) + math.Floor(float64((gain-gainWhole)*fractions)+0.5)
	if fraction >= fractions {
		micros++
		fraction -= fractions
	}
	if micros >= float64(most) {
		return Level{Micros: most}
	}
	return Level{Micros: Tokens(micros), Fraction: uint32(fraction)}
}

// until returns microseconds, rounded up and at least one.
//
// A hundredth of a microsecond is forgiven, because noise in a division's last bits would cost a whole one.
func (l Level) until(amount Tokens, rate float64) int64 {
	missing := float64(amount-l.Micros) - float64(l.Fraction)/fractions
	if missing <= 0 {
		return 0
	}
	return int64(min(max(1, math.Ceil(missing/rate-min(0.01, 0.25/rate))), 1e15))
}

// Bucket is a store's answer about one rule's bucket for one subject.
type Bucket struct {
	Level Level
	// Stamp is when Level was true, in microseconds since the Unix epoch on the store's clock.
	Stamp int64
	Limit Limit
}

// Holds reports whether the bucket covers a cost.
func (b *Bucket) Holds(cost Tokens) bool { return b.Level.Holds(charge(b.Limit, cost)) }

func (b *Bucket) until(amount, had Tokens) time.Duration {
	if b.Level.Micros >= amount {
		return 0
	}
	if !b.Limit.Kind.Algorithm().HasRate() {
		_, end := b.Limit.WindowAt(b.Stamp)
		return micros(max(end, int64(had)) - b.Stamp)
	}
	earning := b.Level.until(amount, b.Limit.Rate)
	if step := b.Limit.Interval; step > 0 && earning > 0 {
		_, end := b.Limit.WindowAt(b.Stamp)
		earning = (earning-1)/step*step + max(end, int64(had)) - b.Stamp
	}
	return micros(earning)
}

// MaxWait is the longest time until a bucket is full: a debt of one burst takes as long as the burst.
const MaxWait = 2 * rules.MaxTimeToFull

func micros(n int64) time.Duration {
	return min(time.Duration(min(max(n, 0), 1e15))*time.Microsecond, MaxWait)
}

func capacity(limit Limit) Tokens { return Tokens(limit.Burst) * Token }

// charge returns what a check of a cost takes: whole tokens of a log, one slot of a concurrency limit.
func charge(limit Limit, cost Tokens) Tokens {
	switch limit.Kind {
	case rules.KindSlidingWindowLog:
		return (cost + Token - 1) / Token * Token
	case rules.KindConcurrency:
		return min(cost, 1) * Token
	}
	return cost
}

func isListed(limit Limit) bool {
	return limit.Kind == rules.KindSlidingWindow || limit.Kind == rules.KindSlidingWindowLog ||
		limit.Kind == rules.KindConcurrency
}
