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
// The two parts keep a bucket from drifting. Costs are whole millionths, so taking is exact.
// Refilling splits the rate into its whole and fractional tokens per second: elapsed µs × whole
// rate is an exact integer below 2⁵³, and elapsed × fractional rate is off by at most 2⁻⁵³ of the
// elapsed time, so that all refills of a bucket together stay within one millionth of a token for
// 285 years, however often it is asked. Rounding to 2⁻³² of a millionth adds at most 0.0002
// millionths in a million takes. A plain float64 of tokens loses 0.06 tokens in the same million
// takes from a burst of 1e9.
//
// Every store computes these steps on IEEE 754 doubles and so decides alike; the Redis script repeats them in Lua.
type Level struct {
	Micros   Tokens
	Fraction uint32
}

const fractions = 1 << 32 // fractions in a millionth

// Holds reports whether the level covers a cost, to within half a millionth of a token. That is less than the smallest
// cost, and enough that no rounding denies a caller that waited as told.
func (l Level) Holds(cost Tokens) bool {
	return l.Micros >= cost || (l.Micros == cost-1 && l.Fraction >= fractions/2)
}

// earn adds what a limit earns in elapsed microseconds, capped at its burst.
func (l Level) earn(elapsed int64, limit Limit) Level {
	// The float64 conversions keep the compiler from fusing a multiply and an add: Lua does not fuse, and both must round
	// alike.
	whole := math.Floor(limit.Rate)
	gain := float64(float64(elapsed) * (limit.Rate - whole))
	gainWhole := math.Floor(gain)
	micros := float64(l.Micros) + float64(float64(elapsed)*whole) + gainWhole
	fraction := float64(l.Fraction) + math.Floor(float64((gain-gainWhole)*fractions)+0.5)
	if fraction >= fractions {
		micros++
		fraction -= fractions
	}
	if full := capacity(limit); micros >= float64(full) {
		return Level{Micros: full}
	}
	return Level{Micros: Tokens(micros), Fraction: uint32(fraction)}
}

// until returns how long the level takes to reach an amount at a rate, rounded up to the microsecond and at least one.
//
// A hundredth of a microsecond is forgiven before rounding up, so that noise in the last bits of a division does not cost
// a whole unit. At high rates it is a quarter of a millionth of a token, which Holds forgives, so waiting is enough.
func (l Level) until(amount Tokens, rate float64) time.Duration {
	missing := float64(amount-l.Micros) - float64(l.Fraction)/fractions
	if missing <= 0 {
		return 0
	}
	micros := max(1, math.Ceil(missing/rate-min(0.01, 0.25/rate)))
	return min(time.Duration(min(micros, 1e15))*time.Microsecond, rules.MaxTimeToFull)
}

// Bucket is the state of one rule for one subject. Its methods are the token bucket algorithm with continuous lazy refill.
type Bucket struct {
	Level Level
	// Stamp is when Level was true, in microseconds since the Unix epoch on the store's clock.
	Stamp int64
	// Limit is the one in force, which may be later than the caller's.
	Limit Limit
}

// NewBucket returns a full bucket.
func NewBucket(limit Limit, now int64) Bucket {
	return Bucket{Level: Level{Micros: capacity(limit)}, Stamp: now, Limit: limit}
}

// CommitTime is how long a transaction may take, in microseconds, from giving a limit its Since to committing. A full read
// that began that much later than a Since has seen the limit if it exists. If a transaction takes longer, as a large import
// might, a process that has not polled its limit yet may set buckets back to the former one.
const CommitTime = int64(10 * time.Second / time.Microsecond)

// Settle brings the bucket to now, with the caller's limit if that is later than the bucket's own: tokens are earned at the
// old rate until the new limit's Since and at the new one after it, then capped at the new burst. A clock that went back
// adds nothing, and the bucket goes on from the new time.
//
// readAt is when the caller last read the whole database; see BucketCheck.ReadAt. If that is more than CommitTime after
// the bucket's limit came into force, and the caller's limit differs, then the database has lost the edit that made the
// bucket's limit. The caller's limit replaces it as of readAt, with a Since CommitTime before readAt. So of processes that
// hold different limits the one that read last decides, and an edit that it may not have read is later still.
//
// Settle reports whether the bucket must be written even if nothing is taken: its limit was edited, or its clock stepped
// back, and without the write it would stay as it was.
func (b *Bucket) Settle(limit Limit, readAt, now int64) (mustWrite bool) {
	if b.Stamp > now {
		b.Stamp, mustWrite = now, true
	}
	from := limit.Since
	if limit.Since <= b.Limit.Since {
		if limit.SameAmounts(b.Limit) || b.Limit.Since+CommitTime >= readAt {
			limit = b.Limit
		} else {
			from, limit.Since = readAt, readAt-CommitTime
		}
	}
	if limit != b.Limit {
		edit := min(max(from, b.Stamp), now)
		b.Level = b.Level.earn(edit-b.Stamp, b.Limit)
		b.Stamp, b.Limit, mustWrite = edit, limit, true
	}
	b.Level = b.Level.earn(now-b.Stamp, b.Limit)
	b.Stamp = now
	return mustWrite
}

// TimeToFull returns how long the bucket takes to fill, rounded up to the microsecond.
func (b *Bucket) TimeToFull() time.Duration {
	return b.Level.until(capacity(b.Limit), b.Limit.Rate)
}

// Wait returns how long the bucket takes to hold a cost, rounded up to the microsecond. ok is false for a cost above the
// burst, which it never holds.
func (b *Bucket) Wait(cost Tokens) (wait time.Duration, ok bool) {
	if cost > capacity(b.Limit) {
		return 0, false
	}
	if b.Level.Holds(cost) {
		return 0, true
	}
	return b.Level.until(cost, b.Limit.Rate), true
}

func capacity(limit Limit) Tokens { return Tokens(limit.Burst) * Token }
