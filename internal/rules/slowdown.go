package rules

import (
	"fmt"
	"time"
)

// FillsLaterThan reports whether some bucket fills more than a second later at this limit than it would at
// another. Stores keep full buckets for ten seconds, so less than that does not matter. A limit of block and bypass
// rules is zero.
func (l Limit) FillsLaterThan(other Limit) bool {
	if l.Burst <= 0 {
		return false
	}
	// An edit of the algorithm or window carries over what was used, so the bucket may be empty at the new limit.
	if l.Kind != other.Kind || l.Interval != other.Interval {
		return l.TimeToFull() > time.Second
	}
	if l.Rate <= 0 {
		return false // a window ends when it would have ended, and a place is held as long as before
	}
	// How much later depends linearly on what the bucket holds, so an end of the range decides: it is empty, or
	// it holds all that the other limit allows.
	empty := float64(l.Burst) / l.Rate
	if other.Rate > 0 {
		empty -= float64(other.Burst) / other.Rate
	}
	full := float64(l.Burst-other.Burst) / l.Rate
	return max(empty, full) > 1
}

// Slowdown is an edit after which buckets fill later than before. A store must settle such buckets before it forgets
// idle ones: see Limit.FillsLaterThan.
type Slowdown struct {
	Tenant TenantID
	Rule   RuleID
	// User is whose buckets they are, after a change to an override; "" for all of the rule's.
	User string
	// From and To are the Since of the limits before and after; From is 0 if it is not known.
	From, To int64
}

// ID tells the slowdown from others of the rule, in all processes alike. Which limit was there before depends on when a
// process read, so it counts only where it was the later one, which the database has lost.
func (s Slowdown) ID() string {
	if s.From > s.To {
		return fmt.Sprintf("%d-%d:%s", s.From, s.To, s.User)
	}
	return fmt.Sprintf("%d:%s", s.To, s.User)
}
