package rules

import (
	"context"
	"time"
)

// Erasure is the receipt for a user who was erased from a tenant. Numbers are rows that were deleted or that name nobody
// any more.
type Erasure struct {
	// ID is what the audit log says instead of the user's id.
	ID string
	At time.Time
	// Assignments is 1 if the user had a plan.
	Assignments, Overrides, Violations, Crossings, Counts, Deliveries, AuditEntries int64
	// Blocks are the blocks of recorded checks that had some of the user.
	Blocks int64
	// Rules name the user in their pattern. They stay, because they are the tenant's configuration.
	Rules []RuleID
}

// Eraser erases users.
type Eraser interface {
	// EraseUser removes a user's plan, overrides and crossings of quotas, and the user's id and addresses from violations, counts, alerts and the
	// audit log. It is not one transaction: after an error it can be repeated. What a check in flight records of the user
	// comes later, and processes that answer checks know the user's plan and overrides for up to a minute.
	EraseUser(ctx context.Context, tenant TenantID, userID string) (Erasure, error)
}

// SubjectCount is how often a subject was denied by a rule.
type SubjectCount struct {
	Rule        RuleID
	Subject     string
	First, Last time.Time // the minutes of the first and the last denial
	Denied      int64
}

// UserRecords reads what nothing else shows of a user.
type UserRecords interface {
	CountsOfUser(ctx context.Context, tenant TenantID, userID string) ([]SubjectCount, error)
}
