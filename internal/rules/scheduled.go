package rules

import (
	"errors"
	"time"
)

const (
	// MaxScheduled is how many changes of a tenant may wait or be in force until an end.
	MaxScheduled = 100
	// MaxScheduledRules is how many rules one change can be of.
	MaxScheduledRules = 500
	// MaxScheduledKept is how many changes of a tenant that are over are kept.
	MaxScheduledKept = 200
	// MaxScheduledAhead is how far ahead a change can begin and end.
	MaxScheduledAhead = 400 * 24 * time.Hour
)

var (
	// ErrTooManyScheduled means that a tenant has MaxScheduled changes that wait or are in force until an end.
	ErrTooManyScheduled = errors.New("too many changes are scheduled")
	// ErrScheduledOverlap means that another change of a rule is scheduled for a part of the same time.
	ErrScheduledOverlap = errors.New("another change of the rule is scheduled for this time")
)

// ScheduledState is where a scheduled change stands.
type ScheduledState string

// The states. All but the first two are final.
const (
	ScheduledWaiting ScheduledState = "waiting"
	// ScheduledInForce is made, and is to be taken back.
	ScheduledInForce ScheduledState = "in_force"
	// ScheduledDone is made and stays, or was taken back.
	ScheduledDone ScheduledState = "done"
	// ScheduledEdited was not taken back of all of its rules, because somebody edited what it had set, or removed a rule.
	ScheduledEdited ScheduledState = "edited"
	ScheduledFailed ScheduledState = "failed"
	// ScheduledCanceled was never made.
	ScheduledCanceled ScheduledState = "canceled"
)

// ScheduledChange is a change of one or more rules at a time to come.
//
// At StartsAt it sets the fields that it changes, and leaves those that it does not, of all its rules in one transaction. At
// EndsAt it sets them to what they were, in one transaction too. A rule that was removed by then is left out, and so is one that
// would not be valid any more. At the end that goes also for a rule of which somebody has edited one of the fields. The others
// are changed, and the rule that was left out says why.
type ScheduledChange struct {
	ID               int64
	TenantID         TenantID
	Title            string // what it is of: "12 limits of pro"
	Rules            []ScheduledRule
	RequestedAt      time.Time
	By               Actor
	StartsAt, EndsAt time.Time // a zero end: it stays
	// Lasts, in place of EndsAt, makes the end so long after the start, which the store chooses if the change begins now. Stored
	// changes have none.
	Lasts time.Duration
	// Replaces is a change that waits and that this one takes the place of. Stored changes have none.
	Replaces           int64
	State              ScheduledState
	AppliedAt, EndedAt time.Time
	Failure            string // for people
}

// ScheduledRule is what a scheduled change does to one rule.
type ScheduledRule struct {
	RuleID RuleID
	// Patch is the change as it was asked for; only people read it.
	Patch   []byte
	Failure string // for people: why this rule was left out
}

// Validate returns what is wrong with the times. A change without a start begins now.
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

// Overlaps reports whether one change begins while the other is in force, or both begin at one time.
func (c *ScheduledChange) Overlaps(other *ScheduledChange) bool {
	isIn := func(at time.Time, of *ScheduledChange) bool {
		return at.Equal(of.StartsAt) || at.After(of.StartsAt) && at.Before(of.EndsAt)
	}
	return isIn(c.StartsAt, other) || isIn(other.StartsAt, c)
}
