package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// Plans returns plans by name, beginning after one.
func (s *Store) Plans(ctx context.Context, tenant rules.TenantID, after string, limit int) ([]rules.PlanUse, error) {
	rows, err := s.queriesFor(classRead, only(tenant)).PlanUses(ctx, tenant, after, rowLimit(limit))
	return each(rows, planUseFromRow), wrap(err, "read plans")
}

// Plan returns one plan.
func (s *Store) Plan(ctx context.Context, tenant rules.TenantID, name string) (rules.PlanUse, error) {
	row, err := s.queriesFor(classRead, only(tenant)).PlanUse(ctx, tenant, name)
	return planUseFromRow(dbsqlc.PlanUsesRow(row)), wrap(err, "read plan %q", name)
}

// CreatePlan creates a plan; its name may be that of a removed one.
func (s Writer) CreatePlan(ctx context.Context, plan rules.Plan) (created rules.Plan, err error) {
	err = s.inTenant(ctx, classWrite, plan.TenantID, func(ctx context.Context, w write) error {
		created, err = w.createPlan(ctx, plan)
		return err
	})
	return created, wrap(err, "create plan")
}

// UpdatePlan changes a plan's description and position.
func (s Writer) UpdatePlan(ctx context.Context, plan rules.Plan) (updated rules.Plan, err error) {
	err = s.inTenant(ctx, classWrite, plan.TenantID, func(ctx context.Context, w write) error {
		stored, err := w.Plan(ctx, w.tenant, plan.Name)
		if err != nil {
			return err
		}
		if err := expect(rules.Expected(plan.Revision), stored.Revision); err != nil {
			return err
		}
		if stored.Description == plan.Description && stored.Position == plan.Position {
			updated = planFromRow(stored)
			return errUnchanged
		}
		updated, err = w.updatePlan(ctx, plan)
		return err
	})
	return updated, wrap(err, "update plan %q", plan.Name)
}

// RemovePlan returns rules.ErrInUse while rules or users are on the plan or it is the tenant's default.
func (s Writer) RemovePlan(ctx context.Context, tenant rules.TenantID, name string, expected rules.Expected) error {
	err := s.inTenant(ctx, classWrite, tenant, func(ctx context.Context, w write) error {
		stored, err := w.Plan(ctx, w.tenant, name)
		if err != nil {
			return err
		}
		if err := expect(expected, stored.Revision); err != nil {
			return err
		}
		return w.removePlan(ctx, name)
	})
	return wrap(err, "remove plan %q", name)
}

// ReplacePlan removes a plan with its rules, and puts its users on another one. Returns rules.ErrInUse for the tenant's
// default plan.
func (s Writer) ReplacePlan(ctx context.Context, tenant rules.TenantID, name, by string,
	expected rules.Expected,
) error {
	err := s.inBulk(ctx, tenant, func(ctx context.Context, w write) error {
		stored, err := w.Plan(ctx, w.tenant, name)
		if err != nil {
			return err
		}
		if err := expect(expected, stored.Revision); err != nil {
			return err
		}
		if by == name || by == "" {
			return rules.FieldErrors{{Field: "users_to", Message: "must be another plan"}}
		}
		if err := w.requirePlan(ctx, "users_to", by); err != nil {
			return err
		}
		if err := w.removeRulesOfPlan(ctx, name); err != nil {
			return err
		}
		if err := w.MoveUsers(ctx, dbsqlc.MoveUsersParams{
			TenantID: w.tenant, FromPlan: name, ToPlan: by, Revision: w.revision,
		}); err != nil {
			return err
		}
		return w.removePlan(ctx, name)
	})
	return wrap(err, "replace plan %q by %q", name, by)
}

func (w write) removeRulesOfPlan(ctx context.Context, name string) error {
	ids, err := w.RulesOfPlan(ctx, w.tenant, name)
	if err != nil || len(ids) == 0 {
		return err
	}
	if err := w.countLater(ctx); err != nil {
		return err
	}
	all, err := w.withCandidates(ctx, ids)
	if err != nil {
		return err
	}
	if _, err := w.removeRules(ctx, all); err != nil {
		return err
	}
	return errors.Join(w.CountRules(ctx, int64(w.tenant)), w.CountHeldNow(ctx, int64(w.tenant)))
}

func (w write) createPlan(ctx context.Context, plan rules.Plan) (rules.Plan, error) {
	row, err := w.CreatePlan(ctx, dbsqlc.CreatePlanParams{
		TenantID: w.tenant, Name: plan.Name, Description: plan.Description, Position: plan.Position,
		Revision: w.revision,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return rules.Plan{}, fmt.Errorf("plan %q %w", plan.Name, rules.ErrExists)
	}
	return planFromRow(row), err
}

func (w write) updatePlan(ctx context.Context, plan rules.Plan) (rules.Plan, error) {
	row, err := w.UpdatePlan(ctx, dbsqlc.UpdatePlanParams{
		Description: plan.Description, Position: plan.Position, Revision: w.revision, TenantID: w.tenant,
		Name: plan.Name,
	})
	return planFromRow(row), err
}

func (w write) removePlan(ctx context.Context, name string) error {
	use, err := w.PlanUse(ctx, w.tenant, name)
	if err != nil {
		return err
	}
	var users []string
	if use.Rules > 0 {
		users = append(users, counted(use.Rules, "rule"))
	}
	if use.Users > 0 {
		users = append(users, counted(use.Users, "user"))
	}
	if use.IsDefault {
		users = append(users, "the tenant, as its default")
	}
	if len(users) > 0 {
		return fmt.Errorf("plan %q is %w by %s", name, rules.ErrInUse, strings.Join(users, " and "))
	}
	return foundOne(w.RemovePlan(ctx, w.revision, w.tenant, name))
}

func counted(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func (w write) planSet(ctx context.Context) (map[string]bool, error) {
	names, err := w.PlanNames(ctx, w.tenant)
	plans := map[string]bool{"": true}
	for _, name := range names {
		plans[name] = true
	}
	return plans, err
}

// requirePlan refuses plans that were removed, which the foreign key alone would accept.
func (w write) requirePlan(ctx context.Context, field, name string) error {
	if name == "" {
		return nil
	}
	_, err := w.Plan(ctx, w.tenant, name)
	if errors.Is(err, pgx.ErrNoRows) {
		return noSuchPlan(field, name)
	}
	return err
}
