package rules

import "time"

// Algorithm names how a rule's bucket fills and empties, as people write it.
type Algorithm string

// The algorithms. See Kind for what each does.
const (
	TokenBucket      Algorithm = "token_bucket"
	LeakyBucket      Algorithm = "leaky_bucket"
	FixedWindow      Algorithm = "fixed_window"
	SlidingWindow    Algorithm = "sliding_window"
	SlidingWindowLog Algorithm = "sliding_window_log"
	Concurrency      Algorithm = "concurrency"
)

// Algorithms are all algorithms, in the order in which people choose among them.
var Algorithms = []Algorithm{TokenBucket, LeakyBucket, FixedWindow, SlidingWindow, SlidingWindowLog, Concurrency}

// Kind is an Algorithm as limits and stored buckets have it. Its numbers never change.
type Kind uint8

const (
	// KindTokenBucket earns Rate, up to Burst; continuously, or in steps of Interval.
	KindTokenBucket Kind = iota
	// KindLeakyBucket is a queue with Burst places that drains at Rate. An allowed check waits until what came before
	// has drained.
	KindLeakyBucket
	// KindFixedWindow allows Burst in each window. Windows are aligned to the Unix epoch or to a calendar.
	KindFixedWindow
	// KindSlidingWindow allows Burst in a window that ends now, estimated from two fixed windows: what the present one
	// used, and what the former one used times the part of it that the sliding window still covers.
	KindSlidingWindow
	// KindSlidingWindowLog allows Burst in any window, exactly: it remembers each check for as long as the window.
	KindSlidingWindowLog
	// KindConcurrency allows Burst checks in flight. Each holds a place until it is released, or for Interval.
	KindConcurrency

	kinds
)

// kindOf returns the kind of an algorithm that this process knows.
func kindOf(a Algorithm) Kind {
	for kind := range kinds {
		if kind.Algorithm() == a {
			return kind
		}
	}
	return KindTokenBucket
}

// Algorithm returns the kind's name, or "" for a number that is no kind.
func (k Kind) Algorithm() Algorithm {
	switch k {
	case KindTokenBucket:
		return TokenBucket
	case KindLeakyBucket:
		return LeakyBucket
	case KindFixedWindow:
		return FixedWindow
	case KindSlidingWindow:
		return SlidingWindow
	case KindSlidingWindowLog:
		return SlidingWindowLog
	case KindConcurrency:
		return Concurrency
	}
	return ""
}

// HasRate reports whether limits of the algorithm earn at a rate. The others have a rate of 0.
func (a Algorithm) HasRate() bool { return a == TokenBucket || a == LeakyBucket }

// HasWindow reports whether limits of the algorithm have a Window.
func (a Algorithm) HasWindow() bool {
	return a == FixedWindow || a == SlidingWindow || a == SlidingWindowLog
}

// isListed reports whether buckets of the algorithm keep a list of up to MaxListed.
func (a Algorithm) isListed() bool { return a == SlidingWindowLog || a == Concurrency }

// Limit is what a bucket allows. Limits are compared with ==.
type Limit struct {
	// Rate is in tokens per second, from MinRate to MaxRate; 0 for windows and places.
	Rate float64
	// Burst is the bucket's capacity in tokens, from 1 to MaxBurst: the tokens of a window, the places of a queue or of
	// a concurrency limit. A log and a concurrency limit have at most MaxListed.
	Burst int64
	// Since is when the limit came into force, in microseconds since the Unix epoch on the
	// database's clock. Of two limits for one bucket the later one holds.
	Since int64
	// Interval is, in microseconds, the step of a token bucket's refill (0: continuous), the length of a window, or how
	// long a place is held at most. Below 0 it is the Code of a Calendar.
	Interval int64
	Kind     Kind
}

// SameAmounts reports whether two limits allow the same, whenever each came into force.
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
	// MaxListed is the largest burst of an algorithm that keeps a list: a log of checks, or of places.
	MaxListed = 1000
	// MaxWindow is the longest window that is not of the calendar, and the longest refill interval.
	MaxWindow = 31 * 24 * time.Hour
	// MaxHold is the longest time that a place is held.
	MaxHold = 24 * time.Hour
)

// Limit returns what the rule allows users without an override.
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

// Overridden returns the limit of a user who has an own rate and burst, or an own burst if the limit has no rate. It is
// in force since both are.
func (l Limit) Overridden(rate float64, burst, since int64) Limit {
	if l.Rate > 0 && rate > 0 { // the override may be older than the rule's algorithm
		l.Rate = rate
	}
	if l.Kind.Algorithm().isListed() {
		burst = min(burst, MaxListed) // likewise
	}
	l.Burst, l.Since = burst, max(l.Since, since)
	return l
}

// TimeToFull returns the longest time until a bucket is as if nobody had used it, at most MaxTimeToFull.
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

// WindowAt returns when the window that holds a time begins and when the next begins, all in microseconds since the Unix
// epoch. The limit must have windows.
func (l Limit) WindowAt(at int64) (start, end int64) {
	if l.Interval < 0 {
		return calendarAt(l.Interval).windowAt(at)
	}
	start = at - at%l.Interval
	return start, start + l.Interval
}

// CalendarStarts returns when the former, the present, the next and the window after that begin. A store with a clock of
// its own chooses among these windows; ok is false for a limit without calendar windows.
func (l Limit) CalendarStarts(now int64) (starts [4]int64, ok bool) {
	if l.Interval >= 0 {
		return starts, false
	}
	return calendarAt(l.Interval).startsAround(now), true
}
