package rules

import (
	"errors"
	"time"
)

const (
	// MaxScheduled is how many changes of a tenant may wait or be in force until an end.
	MaxScheduled = 100
	// MaxScheduledKept is how many changes of a tenant that are over are kept.
	MaxScheduledKept = 200
	// MaxScheduledAhead is how far ahead a change can begin and end.
	MaxScheduledAhead = 400 * 24 * time.Hour
)

var (
	// ErrTooManyScheduled means that a tenant has MaxScheduled changes that wait or are in force until an end.
	ErrTooManyScheduled = errors.New("too many changes are scheduled")
	// ErrScheduledOverlap means that another change of the rule is scheduled for a part of the same time.
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
	// ScheduledEdited was not taken back, because somebody edited what it had set, or removed the rule.
	ScheduledEdited ScheduledState = "edited"
	ScheduledFailed ScheduledState = "failed"
	// ScheduledCanceled was never made.
	ScheduledCanceled ScheduledState = "canceled"
)

// ScheduledChange is a change of one rule at a time to come.
//
// At StartsAt it sets the fields that it changes, and leaves those that it does not. At EndsAt it sets them to what they were,
// unless somebody has edited one of them meanwhile.
type ScheduledChange struct {
	ID          int64
	TenantID    TenantID
	RuleID      RuleID
	RequestedAt time.Time
	By          Actor
	// Patch is the change as it was asked for; only people read it.
	Patch              []byte
	StartsAt, EndsAt   time.Time // a zero end: it stays
	State              ScheduledState
	AppliedAt, EndedAt time.Time
	Failure            string // for people
}

// Validate returns what is wrong with the times.
func (c *ScheduledChange) Validate(now time.Time) (wrong FieldErrors) {
	if !c.StartsAt.After(now) {
		wrong.Add("starts_at", "must be in the future")
	}
	if c.StartsAt.Sub(now) > MaxScheduledAhead {
		wrong.Add("starts_at", "must be within 400 days")
	}
	switch {
	case c.EndsAt.IsZero():
	case !c.EndsAt.After(c.StartsAt):
		wrong.Add("ends_at", "must be after starts_at")
	case c.EndsAt.Sub(now) > MaxScheduledAhead:
		wrong.Add("ends_at", "must be within 400 days")
	}
	return wrong
}

// Overlaps reports whether both changes are of one rule, and one begins while the other is in force.
func (c *ScheduledChange) Overlaps(other *ScheduledChange) bool {
	isIn := func(at time.Time, of *ScheduledChange) bool {
		return at.Equal(of.StartsAt) || at.After(of.StartsAt) && at.Before(of.EndsAt)
	}
	return c.RuleID == other.RuleID && (isIn(c.StartsAt, other) || isIn(other.StartsAt, c))
}
