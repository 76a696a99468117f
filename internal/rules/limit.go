package rules

import (
	"slices"
	"time"
)

// Algorithm names how a rule's bucket fills and empties. See Kind for each.
type Algorithm string

// The algorithms.
const (
	TokenBucket      Algorithm = "token_bucket"
	LeakyBucket      Algorithm = "leaky_bucket"
	FixedWindow      Algorithm = "fixed_window"
	SlidingWindow    Algorithm = "sliding_window"
	SlidingWindowLog Algorithm = "sliding_window_log"
	Concurrency      Algorithm = "concurrency"
)

// Algorithms lists all algorithms by their Kind, which is also the UI's order.
var Algorithms = []Algorithm{TokenBucket, LeakyBucket, FixedWindow, SlidingWindow, SlidingWindowLog, Concurrency}

// Kind is the stored number of an Algorithm, which never changes.
type Kind uint8

const (
	// KindTokenBucket refills at Rate up to Burst, continuously or in steps of Interval.
	KindTokenBucket Kind = iota
	// KindLeakyBucket is a queue of length Burst that drains at Rate. An allowed check waits until the queue before it
	// has drained.
	KindLeakyBucket
	// KindFixedWindow allows Burst in each window. Windows are aligned to the Unix epoch or to a calendar.
	KindFixedWindow
	// KindSlidingWindow allows Burst in the window that ends now. The estimate is the present fixed window's count plus
	// the former one's, weighted by the part that the sliding window still covers.
	KindSlidingWindow
	// KindSlidingWindowLog allows Burst in any window, exactly: each check is remembered for one window.
	KindSlidingWindowLog
	// KindConcurrency allows Burst checks in flight. A check holds its slot until it is released, at most for Interval.
	KindConcurrency
)

func kindOf(a Algorithm) Kind { return Kind(max(0, slices.Index(Algorithms, a))) }

// Algorithm returns the kind's name, or "" for an unknown number.
func (k Kind) Algorithm() Algorithm {
	if int(k) < len(Algorithms) {
		return Algorithms[k]
	}
	return ""
}

// HasRate reports whether limits of the algorithm have a rate other than 0.
func (a Algorithm) HasRate() bool { return a == TokenBucket || a == LeakyBucket }

// HasWindow reports whether limits of the algorithm have a Window.
func (a Algorithm) HasWindow() bool {
	return a == FixedWindow || a == SlidingWindow || a == SlidingWindowLog
}

func (a Algorithm) isListed() bool { return a == SlidingWindowLog || a == Concurrency }

// Limit is what a bucket allows; limits are compared with ==.
type Limit struct {
	// Rate is in tokens per second, from MinRate to MaxRate; 0 for windows and concurrency limits.
	Rate float64
	// Burst is the bucket's capacity, from 1 to MaxBurst: the tokens of a bucket or window, the length of a queue, or
	// the slots of a concurrency limit. A log and a concurrency limit have at most MaxListed.
	Burst int64
	// Since is when the limit came into force, in microseconds by the database's clock; of two limits for one bucket
	// the later wins.
	Since int64
	// Interval, in microseconds, is a token bucket's refill step (0: continuous), a window's length, or the longest
	// hold of a concurrency slot; below 0 it is the code of a calendar.
	Interval int64
	Kind     Kind
}

// SameAmounts reports whether two limits are equal except for Since.
func (l Limit) SameAmounts(other Limit) bool {
	other.Since = l.Since
	return l == other
}

// The ranges of a limit. Within them every cost and burst is exact in millionths of a token.
const (
	MinRate       = 1e-6
	MaxRate       = 1e9
	MaxBurst      = 1_000_000_000
	MaxTimeToFull = 365 * 24 * time.Hour
	MaxListed     = 1000
	// MaxWindow bounds refill intervals and windows, except for calendar windows.
	MaxWindow = 366 * 24 * time.Hour
	MaxHold   = 24 * time.Hour
)

// Limit returns the limit for users without an override.
func (r *Rule) Limit() Limit {
	limit := Limit{
		Rate: r.RatePerSecond, Burst: r.Burst, Since: UnixMicro(r.InForceSince),
		Kind: kindOf(r.Algorithm), Interval: r.Window.interval(),
	}
	switch limit.Kind {
	case KindTokenBucket:
		limit.Interval = r.RefillInterval.Microseconds()
	case KindConcurrency:
		limit.Interval = r.MaxHold.Microseconds()
	}
	return limit
}

// Overridden applies a user's override; since is in microseconds.
func (l Limit) Overridden(rate float64, burst, since int64) Limit {
	if l.Rate > 0 && rate > 0 { // the override may be older than the rule's algorithm
		l.Rate = rate
	}
	if l.Kind.Algorithm().isListed() {
		burst = min(burst, MaxListed) // the override may be older than the rule's algorithm
	}
	l.Burst, l.Since = burst, max(l.Since, since)
	return l
}

// TimeToFull returns the longest time until an unused bucket is full.
func (l Limit) TimeToFull() time.Duration {
	var full time.Duration
	switch {
	case l.Interval < 0:
		full = calendarAt(l.Interval).longest()
	case l.Kind == KindSlidingWindow:
		full = 2 * time.Duration(l.Interval) * time.Microsecond
	default:
		full = time.Duration(l.Interval) * time.Microsecond
	}
	if l.Rate > 0 {
		seconds := min(float64(l.Burst)/l.Rate, MaxTimeToFull.Seconds())
		full += time.Duration(seconds * float64(time.Second))
	}
	return min(full, MaxTimeToFull)
}

// WindowAt returns the window around a time, in microseconds since the Unix epoch, of a limit with windows.
func (l Limit) WindowAt(at int64) (start, end int64) {
	if l.Interval < 0 {
		return calendarAt(l.Interval).windowAt(at)
	}
	start = at - at%l.Interval
	return start, start + l.Interval
}

// CalendarStarts returns the starts of the former, present and next two windows; a store chooses by its own clock.
func (l Limit) CalendarStarts(now int64) (starts [4]int64, ok bool) {
	if l.Interval >= 0 {
		return starts, false
	}
	return calendarAt(l.Interval).startsAround(now), true
}
