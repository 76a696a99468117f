package rules

import (
	"context"
	"time"
)

// Erasure is the receipt for the erasure of a user from a tenant. The counts are rows that were deleted or made
// anonymous.
type Erasure struct {
	// ID replaces the user's id in the audit log.
	ID string
	At time.Time
	// Assignments is 1 if the user had a plan.
	Assignments, Overrides, Violations, Crossings, Counts, Deliveries, AuditEntries int64
	// Blocks counts the blocks of recorded checks that contained the user.
	Blocks int64
	// Rules name the user in their pattern. They stay, because they are configuration.
	Rules []RuleID
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
	CountsOfUser(ctx context.Context, tenant TenantID, userID string) ([]SubjectCount, error)
}
