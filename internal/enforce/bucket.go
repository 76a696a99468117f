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
// The two parts are why a bucket does not drift. Costs are whole millionths, so taking is exact.
// Refilling splits the rate into its whole and fractional tokens per second: elapsed µs × whole
// rate is an exact integer below 2⁵³, and elapsed × fractional rate is off by at most 2⁻⁵³ of the
// elapsed time, so that all refills of a bucket together stay within one millionth of a token for
// 285 years, however often it is asked. Rounding to 2⁻³² of a millionth adds at most 0.0002
// millionths in a million takes. A plain float64 of tokens loses 0.06 tokens in the same million
// takes from a burst of 1e9.
//
// Every store computes with these same steps on IEEE 754 doubles and so decides alike; the Redis
// script repeats them in Lua.
type Level struct {
	Micros   Tokens
	Fraction uint32
}

const fractions = 1 << 32 // fractions in a millionth

// Holds says whether the level covers a cost, to within half a millionth of a token: less than the
// smallest cost there is, and enough that no rounding ever denies a caller that waited as told.
func (l Level) Holds(cost Tokens) bool {
	return l.Micros >= cost || (l.Micros == cost-1 && l.Fraction >= fractions/2)
}

// earn adds what elapsed microseconds of a limit bring, capped at its burst.
func (l Level) earn(elapsed int64, limit Limit) Level {
	// The float64 conversions keep the compiler from fusing a multiply and an add on machines
	// that could: Lua does not fuse, and both must round alike.
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

// until returns how long the level takes to reach an amount at a rate, rounded up to the
// microsecond and at least one.
//
// A hundredth of a microsecond is forgiven before rounding up, so that noise in the last bits of a
// division does not cost a whole unit; at high rates it is a quarter of a millionth of a token,
// which stays inside what Holds forgives, so waiting is always enough.
func (l Level) until(amount Tokens, rate float64) time.Duration {
	missing := float64(amount-l.Micros) - float64(l.Fraction)/fractions
	if missing <= 0 {
		return 0
	}
	micros := max(1, math.Ceil(missing/rate-min(0.01, 0.25/rate)))
	return min(time.Duration(min(micros, 1e15))*time.Microsecond, rules.MaxTimeToFull)
}

// Bucket is the state of one rule for one subject. Its methods are the token bucket algorithm with
// continuous lazy refill; stores differ only in where they keep it.
type Bucket struct {
	Level Level
	// Stamp is when Level was true, in microseconds since the Unix epoch on the store's clock.
	Stamp int64
	// Limit is the one in force, which may be later than the caller's.
	Limit Limit
}

// NewBucket returns a bucket that nobody has used: full.
func NewBucket(limit Limit, now int64) Bucket {
	return Bucket{Level: Level{Micros: capacity(limit)}, Stamp: now, Limit: limit}
}

// CommitTime is how long a transaction may take, in microseconds, between giving a limit its Since and
// committing. A full read that began that much later than some Since has seen the limit if it exists.
// A transaction that takes longer, which only a large import could, may have its limit set back for as
// long as another process has not polled it.
const CommitTime = int64(10 * time.Second / time.Microsecond)

// Settle brings the bucket to now, with the caller's limit if that is later than the bucket's own:
// tokens are earned at the old rate until the new limit's Since and at the new one after it, then
// capped at the new burst. A clock that went back adds nothing, and the bucket goes on from there.
//
// readAt is when the caller last read everything in the database, 0 if it never did; see Ask.ReadAt. If
// that is well after the bucket's own limit came into force, and the caller's limit is another one, then
// the database has lost the edit that made the bucket's. The caller's limit replaces it, as of readAt. From
// then on it counts as CommitTime older than readAt: so of processes that hold different limits the one that
// read everything last decides, and an edit that it may not have read is later still.
//
// Settle reports whether the bucket must be written even if nothing is taken: its limit was edited, or
// its clock stepped back, and without the write it would stay as it was.
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

// TimeToFull returns how long the bucket takes to fill, rounded up to the microsecond; 0 if full.
func (b *Bucket) TimeToFull() time.Duration {
	return b.Level.until(capacity(b.Limit), b.Limit.Rate)
}

// Wait returns how long the bucket takes to hold a cost, rounded up to the microsecond; 0 if it
// does. A cost above the burst has no such time, and ok is false.
func (b *Bucket) Wait(cost Tokens) (wait time.Duration, ok bool) {
	if cost > capacity(b.Limit) {
		return 0, false
	}
	if b.Level.Holds(cost) {
		return 0, true
	}
	return b.Level.until(cost, b.Limit.Rate), true
}

// capacity is a limit's burst as an amount.
func capacity(limit Limit) Tokens { return Tokens(limit.Burst) * Token }
