package rules

import (
	"errors"
	"time"
)

// The bounds of scheduled changes.
const (
	// MaxScheduled bounds the changes of a tenant that wait or are in force until an end.
	MaxScheduled      = 100
	MaxScheduledRules = 500
	MaxScheduledKept  = 200
	MaxScheduledAhead = 400 * 24 * time.Hour
)

// ErrTooManyScheduled means that MaxScheduled is reached.
var (
	ErrTooManyScheduled = errors.New("too many changes are scheduled")
	// ErrScheduledOverlap means that another change of a rule shares some of the time.
	ErrScheduledOverlap = errors.New("another change of the rule is scheduled for this time")
)

// ScheduledState is the state of a scheduled change.
type ScheduledState string

// The states. All but the first two are final.
const (
	ScheduledWaiting ScheduledState = "waiting"
	ScheduledInForce ScheduledState = "in_force"
	// ScheduledDone has been applied for good, or reverted.
	ScheduledDone ScheduledState = "done"
	// ScheduledEdited was not fully reverted, because a rule was edited or removed meanwhile.
	ScheduledEdited   ScheduledState = "edited"
	ScheduledFailed   ScheduledState = "failed"
	ScheduledCanceled ScheduledState = "canceled"
)

// ScheduledChange sets fields of rules at StartsAt and restores them at EndsAt, all in one transaction. A rule that was
// removed, would become invalid, or was edited meanwhile is left out; ScheduledRule.Failure says why.
type ScheduledChange struct {
	ID               int64
	TenantID         TenantID
	Title            string // for people: "12 limits of pro"
	Rules            []ScheduledRule
	RequestedAt      time.Time
	By               Actor
	StartsAt, EndsAt time.Time // a zero end: permanent
	// Lasts sets the end relative to the start, which may be now; stored changes have none.
	Lasts time.Duration
	// Replaces is a waiting change; stored changes have none.
	Replaces           int64
	State              ScheduledState
	AppliedAt, EndedAt time.Time
	Failure            string // for people
}

// ScheduledRule is the part of a scheduled change for one rule.
type ScheduledRule struct {
	RuleID  RuleID
	Patch   []byte
	Failure string // for people: why the rule was left out
}

// Validate returns the mistakes in the times; a change without a start begins now.
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

// Overlaps reports whether the changes share some time.
func (c *ScheduledChange) Overlaps(other *ScheduledChange) bool {
	isIn := func(at time.Time, of *ScheduledChange) bool {
		return at.Equal(of.StartsAt) || at.After(of.StartsAt) && at.Before(of.EndsAt)
	}
	return isIn(c.StartsAt, other) || isIn(other.StartsAt, c)
}
