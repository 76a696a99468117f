package rules

import (
	"context"
	"errors"
	"time"
)

// MaxOpenErasures is how many users a tenant may have erased at once, because each is a walk through its records.
const MaxOpenErasures = 100

// ErrTooManyErasures means that the tenant has reached MaxOpenErasures.
var ErrTooManyErasures = errors.New("too many users are being erased")

// Erasure is the erasure of a user from a tenant, and its receipt once it has finished.
type Erasure struct {
	ID          string
	RequestedAt time.Time
	FinishedAt  time.Time // zero: it goes on
	Error       string    // why the latest try failed, for people; "" once another worked
	NextTryAt   time.Time // zero: during a try, and at the end
	Steps       []ErasureStep
	// Rules name the user in their pattern, and stay because they are configuration.
	Rules []RuleID
}

// ErasureStep takes a user out of one kind of records.
type ErasureStep struct {
	Name       string
	Rows       int64
	FinishedAt time.Time // zero: it goes on, or has not begun
}

// SubjectCount counts the denials of a subject by a rule.
type SubjectCount struct {
	Rule        RuleID
	Subject     string
	First, Last time.Time // the minutes of the first and the last denial
	Denied      int64
}

// UserRecords reads records of a user that no other reader returns.
type UserRecords interface {
	// CountsOfUser returns the counts of the first day since a time that has some, and the time to continue at, or
	// zero.
	CountsOfUser(ctx context.Context, tenant TenantID, userID string, since time.Time) (counts []SubjectCount,
		next time.Time, err error)
	CheckpointsOfUser(ctx context.Context, tenant TenantID, userID string, after CheckpointPlace, limit int) (
		[]Checkpoint, error)
	Erasure(ctx context.Context, tenant TenantID, id string) (Erasure, error)
}
