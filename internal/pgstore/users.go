package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	usersPerStatement = 5000
	// spread is how long a process may decide by an assignment that has changed.
	spread = 10 * time.Second
)

// Assignments returns assignments by user id, beginning after one: those of a plan ("" for all) whose user id has a
// prefix.
func (s *Store) Assignments(ctx context.Context, tenant rules.TenantID, plan, prefix, after string,
	limit int,
) ([]rules.Assignment, error) {
	rows, err := s.queriesFor(classFor(limit), only(tenant)).AssignmentsAfter(ctx, dbsqlc.AssignmentsAfterParams{
		TenantID: tenant, After: after, Prefix: prefix, Plan: plan, PageSize: rowLimit(limit),
	})
	return each(rows, assignmentFromRow), wrap(err, "read plan assignments")
}

// Assignment returns the plan that is assigned to a user.
func (s *Store) Assignment(ctx context.Context, tenant rules.TenantID, userID string) (rules.Assignment, error) {
	row, err := s.queriesFor(classRead, only(tenant)).Assignment(ctx, tenant, userID)
	return assignmentFromRow(row), wrap(err, "read the plan of user %q", userID)
}

// IsSentPlan reports whether a denied check named a plan that is not the user's own.
func (s *Store) IsSentPlan(ctx context.Context, tenant rules.TenantID, userID, plan string, deniedAt time.Time) (bool,
	error,
) {
	isSent, err := s.queriesFor(classRead, only(tenant)).IsSentPlan(ctx, dbsqlc.IsSentPlanParams{
		TenantID: tenant, UserID: userID, Plan: plan, DeniedAt: deniedAt.Add(-spread),
	})
	return isSent, wrap(err, "find out who named the plan of user %q", userID)
}

// Assign puts a user on a plan or, with "", back on the tenant's default.
func (s Writer) Assign(ctx context.Context, assignment rules.Assignment,
	expected rules.Expected,
) (stored rules.Assignment, err error) {
	err = s.inTenant(ctx, classWrite, assignment.TenantID, func(ctx context.Context, w write) error {
		stored, err = w.assign(ctx, assignment, expected)
		return err
	})
	return stored, wrap(err, "assign plan %q to user %q", assignment.Plan, assignment.UserID)
}

func (w write) assign(ctx context.Context, assignment rules.Assignment, expected rules.Expected) (rules.Assignment,
	error,
) {
	row, err := w.Assignment(ctx, w.tenant, assignment.UserID)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return rules.Assignment{}, err
	}
	if err := expect(expected, row.Revision); err != nil {
		return rules.Assignment{}, err
	}
	after := rules.Assignment{
		TenantID: w.tenant, UserID: assignment.UserID, Plan: assignment.Plan, Revision: w.revision,
		Removed: assignment.Plan == "",
	}
	if row.Plan == after.Plan {
		after.Revision = row.Revision
		return after, errUnchanged
	}
	if err := w.requirePlan(ctx, "plan", after.Plan); err != nil {
		return rules.Assignment{}, err
	}
	_, err = w.assignAll(ctx, []rules.Assignment{after})
	return after, err
}

// AssignAll returns how many users were on another plan before. Assignments are validated here, because the statement
// would not say which of thousands is malformed.
func (s Writer) AssignAll(ctx context.Context, tenant rules.TenantID, assignments []rules.Assignment) (changed int64,
	err error,
) {
	plans := map[string]bool{"": true}
	named := make(map[string]bool, len(assignments))
	for i := range assignments {
		plans[assignments[i].Plan] = true
	}
	for i := range assignments {
		wrong := assignments[i].Validate(plans)
		if named[assignments[i].UserID] {
			wrong = append(wrong, rules.FieldError{Field: "user_id", Message: "must be named once"})
		}
		if len(wrong) > 0 {
			return 0, fmt.Errorf("assign plans: user %d of %d: %w", i+1, len(assignments), wrong)
		}
		named[assignments[i].UserID] = true
	}
	err = s.inBulk(ctx, tenant, func(ctx context.Context, w write) error {
		for plan := range plans {
			if err := w.requirePlan(ctx, "plan", plan); err != nil {
				return err
			}
		}
		if err := w.requireUserRoom(ctx, assignments); err != nil {
			return err
		}
		changed, err = w.assignAll(ctx, assignments)
		return unlessNone(changed, err)
	})
	return changed, wrap(err, "assign plans")
}

// assignAll unassigns first, which makes room for others.
func (w write) assignAll(ctx context.Context, assignments []rules.Assignment) (changed int64, err error) {
	var users, plans, unassigned []string
	for _, a := range assignments {
		if a.Plan == "" {
			unassigned = append(unassigned, a.UserID)
		} else {
			users, plans = append(users, a.UserID), append(plans, a.Plan)
		}
	}
	for some := range slices.Chunk(unassigned, usersPerStatement) {
		gone, err := w.UnassignUsers(ctx, w.revision, w.tenant, some)
		if err != nil {
			return 0, err
		}
		changed += gone
	}
	for len(users) > 0 {
		n := min(len(users), usersPerStatement)
		assigned, err := w.AssignUsers(ctx, dbsqlc.AssignUsersParams{
			TenantID: int64(w.tenant), UserIds: users[:n], Plans: plans[:n], Revision: w.revision,
		})
		if err != nil {
			return 0, err
		}
		changed += assigned
		users, plans = users[n:], plans[n:]
	}
	return changed, nil
}

func unlessNone(changed int64, err error) error {
	if err == nil && changed == 0 {
		return errUnchanged
	}
	return err
}
