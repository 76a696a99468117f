package rules

import (
	"errors"
	"time"
)

const (
	// MaxScheduled bounds the changes of a tenant that wait or are in force until an end.
	MaxScheduled = 100
	// MaxScheduledRules bounds the rules of one change.
	MaxScheduledRules = 500
	// MaxScheduledKept bounds the finished changes that are kept for a tenant.
	MaxScheduledKept = 200
	// MaxScheduledAhead bounds the time until a change begins and ends.
	MaxScheduledAhead = 400 * 24 * time.Hour
)

var (
	// ErrTooManyScheduled means that the tenant has reached MaxScheduled.
	ErrTooManyScheduled = errors.New("too many changes are scheduled")
	// ErrScheduledOverlap means that another change of a rule is scheduled for some of the same time.
	ErrScheduledOverlap = errors.New("another change of the rule is scheduled for this time")
)

// ScheduledState is the state of a scheduled change.
type ScheduledState string

// The states. All but the first two are final.
const (
	ScheduledWaiting ScheduledState = "waiting"
	// ScheduledInForce has been applied and will be reverted.
	ScheduledInForce ScheduledState = "in_force"
	// ScheduledDone has been applied for good, or reverted.
	ScheduledDone ScheduledState = "done"
	// ScheduledEdited was not fully reverted, because a rule was edited or removed meanwhile.
	ScheduledEdited ScheduledState = "edited"
	ScheduledFailed ScheduledState = "failed"
	// ScheduledCanceled was never applied.
	ScheduledCanceled ScheduledState = "canceled"
)

// ScheduledChange is a future change of one or more rules.
//
// At StartsAt it sets the changed fields of all its rules in one transaction; at EndsAt it restores them in another. A
// rule that was removed or would become invalid is left out, and at the end also a rule in which somebody has edited
// one of the fields; ScheduledRule.Failure has the reason.
type ScheduledChange struct {
	ID               int64
	TenantID         TenantID
	Title            string // for people: "12 limits of pro"
	Rules            []ScheduledRule
	RequestedAt      time.Time
	By               Actor
	StartsAt, EndsAt time.Time // a zero end: permanent
	// Lasts, instead of EndsAt, sets the end relative to the start, which the store chooses if the change begins now.
	// Stored changes have none.
	Lasts time.Duration
	// Replaces is a waiting change that this one replaces. Stored changes have none.
	Replaces           int64
	State              ScheduledState
	AppliedAt, EndedAt time.Time
	Failure            string // for people
}

// ScheduledRule is the part of a scheduled change for one rule.
type ScheduledRule struct {
	RuleID RuleID
	// Patch is the requested change, only for people to read.
	Patch   []byte
	Failure string // for people: why the rule was left out
}

// Validate returns the mistakes in the times. A change without a start begins now.
func (c *ScheduledChange) Validate(now time.Time) (wrong FieldErrors) {
	begins, ends, field := c.StartsAt, c.EndsAt, "ends_at"
	switch {
	case begins.IsZero():
		begins = now
	case !begins.After(now):
		wrong.Add("starts_at", "must be in the future")
	case begins.Sub(now) > MaxScheduledAhead:
		wrong.Add("starts_at", "must be within 400 days")
	}
	if c.Lasts != 0 {
		ends, field = begins.Add(c.Lasts), "ends_in_seconds"
	}
	switch {
	case ends.IsZero() && c.StartsAt.IsZero():
		wrong.Add(field, "is missing: a change without a start begins now, and needs an end")
	case ends.IsZero():
	case !ends.After(begins):
		wrong.Add(field, "must be after the start")
	case ends.Sub(now) > MaxScheduledAhead:
		wrong.Add(field, "must be within 400 days")
	}
	return wrong
}

// Overlaps reports whether one change begins while the other is in force, or both begin at the same time.
func (c *ScheduledChange) Overlaps(other *ScheduledChange) bool {
	isIn := func(at time.Time, of *ScheduledChange) bool {
		return at.Equal(of.StartsAt) || at.After(of.StartsAt) && at.Before(of.EndsAt)
	}
	return isIn(c.StartsAt, other) || isIn(other.StartsAt, c)
}
