package rules

import (
	"fmt"
	"time"
)

// FillsLaterThan reports whether some bucket fills more than a second later at this limit than at the other. Stores
// keep full buckets for ten seconds, so a second does not matter.
func (l Limit) FillsLaterThan(other Limit) bool {
	if l.Burst <= 0 {
		return false
	}
	// An edit of the algorithm or window carries the usage over, so the bucket may be empty at the new limit.
	if l.Kind != other.Kind || l.Interval != other.Interval {
		return l.TimeToFull() > time.Second
	}
	if l.Rate <= 0 {
		return false // a window keeps its end, and a concurrency slot its expiry
	}
	// The delay is linear in the bucket's level, so one of the extremes decides: empty, or full at the other limit.
	empty := float64(l.Burst) / l.Rate
	if other.Rate > 0 {
		empty -= float64(other.Burst) / other.Rate
	}
	full := float64(l.Burst-other.Burst) / l.Rate
	return max(empty, full) > 1
}

// Slowdown is an edit that makes buckets fill later. A store must update such buckets before it forgets idle ones: see
// Limit.FillsLaterThan.
type Slowdown struct {
	Tenant TenantID
	Rule   RuleID
	// User owns the buckets, after a change to an override; "" for all buckets of the rule.
	User string
	// From and To are the Since of the limits before and after; From is 0 if unknown.
	From, To int64
	// IsStep is set for the lower share of a rule that adapts. Steps are frequent.
	IsStep bool
}

// ID is the same in all processes. From is part of it only for a limit that was later than To and is no longer stored;
// otherwise processes that read at different times would disagree.
func (s Slowdown) ID() string {
	if s.From > s.To {
		return fmt.Sprintf("%d-%d:%s", s.From, s.To, s.User)
	}
	return fmt.Sprintf("%d:%s", s.To, s.User)
}
