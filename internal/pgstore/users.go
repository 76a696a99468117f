package pgstore

import (
	"context"
	"fmt"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// Assignments returns who is on a plan, or on any if it is "", by user id, those after one id, at
// most limit of them.
func (s *Store) Assignments(ctx context.Context, tenant rules.TenantID, plan, after string, limit int) ([]rules.Assignment, error) {
	rows, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.TenantUser, error) {
		return q.AssignmentsAfter(ctx, dbsqlc.AssignmentsAfterParams{TenantID: tenant, After: after, Plan: plan, PageSize: rowLimit(limit)})
	})
	if err != nil {
		return nil, fmt.Errorf("read plan assignments: %w", err)
	}
	return each(rows, assignmentFromRow), nil
}

// Assignment returns which plan a user was put on.
func (s *Store) Assignment(ctx context.Context, tenant rules.TenantID, userID string) (rules.Assignment, error) {
	row, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.TenantUser, error) {
		return q.Assignment(ctx, tenant, userID)
	})
	if err != nil {
		return rules.Assignment{}, fmt.Errorf("read the plan of user %q: %w", userID, err)
	}
	return assignmentFromRow(row), nil
}

// AssignPlan puts users on a plan and returns how many were not on it before. The users are judged
// here, unlike elsewhere, because one malformed id among thousands would fail the statement with an
// error that does not say which.
func (s *Store) AssignPlan(ctx context.Context, tenant rules.TenantID, plan string, userIDs []string) (changed int64, err error) {
	for i, userID := range userIDs {
		assignment := rules.Assignment{UserID: userID, Plan: plan}
		if errs := assignment.Validate(map[string]bool{plan: true}); len(errs) > 0 {
			return 0, fmt.Errorf("assign plan %q to user %d of %d: %w", plan, i+1, len(userIDs), errs)
		}
	}
	err = s.inTenant(ctx, bulkTimeout, tenant, func(ctx context.Context, w write) error {
		if err := w.requirePlan(ctx, "plan", plan); err != nil {
			return err
		}
		changed, err = w.AssignPlan(ctx, dbsqlc.AssignPlanParams{
			TenantID: int64(tenant), Plan: plan, Revision: w.revision, UserIds: userIDs,
		})
		return unlessNone(changed, err)
	})
	if err != nil {
		return 0, fmt.Errorf("assign plan %q: %w", plan, err)
	}
	return changed, nil
}

// UnassignPlan puts users back on the tenant's default plan and returns how many had another.
func (s *Store) UnassignPlan(ctx context.Context, tenant rules.TenantID, userIDs []string) (changed int64, err error) {
	err = s.inTenant(ctx, bulkTimeout, tenant, func(ctx context.Context, w write) error {
		changed, err = w.UnassignPlan(ctx, w.revision, w.tenant, userIDs)
		return unlessNone(changed, err)
	})
	if err != nil {
		return 0, fmt.Errorf("unassign plans: %w", err)
	}
	return changed, nil
}

func unlessNone(changed int64, err error) error {
	if err == nil && changed == 0 {
		return errUnchanged
	}
	return err
}
