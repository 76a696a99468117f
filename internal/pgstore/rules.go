package pgstore

import (
	"context"
	"fmt"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// Rules returns a tenant's rules by id, those after one id, at most limit of them.
func (s *Store) Rules(ctx context.Context, tenant rules.TenantID, after rules.RuleID, limit int) ([]rules.Rule, error) {
	rows, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.RateLimitRule, error) {
		return q.RulesAfter(ctx, tenant, after, rowLimit(limit))
	})
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	return s.rulesFromRows(ctx, rows), nil
}

// Rule returns one rule.
func (s *Store) Rule(ctx context.Context, tenant rules.TenantID, id rules.RuleID) (rules.Rule, error) {
	row, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.RateLimitRule, error) {
		return q.Rule(ctx, tenant, id)
	})
	if err != nil {
		return rules.Rule{}, fmt.Errorf("read rule %d: %w", id, err)
	}
	return ruleFromRow(row)
}

// CreateRule creates a rule.
func (s *Store) CreateRule(ctx context.Context, rule rules.Rule) (created rules.Rule, err error) {
	err = s.inTenant(ctx, statementTimeout, rule.TenantID, func(ctx context.Context, w write) error {
		created, err = w.createRule(ctx, rule)
		return err
	})
	if err != nil {
		return rules.Rule{}, fmt.Errorf("create rule %s: %w", rule.Identity(), err)
	}
	return created, nil
}

// UpdateRule changes all of a rule but what identifies it, if its Version is still the stored one.
func (s *Store) UpdateRule(ctx context.Context, rule rules.Rule) (updated rules.Rule, err error) {
	err = s.inTenant(ctx, statementTimeout, rule.TenantID, func(ctx context.Context, w write) error {
		stored, err := w.Rule(ctx, w.tenant, rule.ID)
		if err != nil {
			return err
		}
		if stored.Version != rule.Version {
			return fmt.Errorf("version %d was to be updated and %d is stored: %w", rule.Version, stored.Version, rules.ErrChanged)
		}
		updated, err = w.updateRule(ctx, rule)
		return err
	})
	if err != nil {
		return rules.Rule{}, fmt.Errorf("update rule %d: %w", rule.ID, err)
	}
	return updated, nil
}

// RemoveRule removes a rule and its overrides.
func (s *Store) RemoveRule(ctx context.Context, tenant rules.TenantID, id rules.RuleID) error {
	err := s.inTenant(ctx, statementTimeout, tenant, func(ctx context.Context, w write) error {
		return w.removeRule(ctx, id)
	})
	if err != nil {
		return fmt.Errorf("remove rule %d: %w", id, err)
	}
	return nil
}

func (w write) createRule(ctx context.Context, rule rules.Rule) (rules.Rule, error) {
	if err := w.requirePlan(ctx, "plan", rule.Plan); err != nil {
		return rules.Rule{}, err
	}
	created, _, err := w.createRules(ctx, []rules.Rule{rule})
	return first(created), err
}

func (w write) updateRule(ctx context.Context, rule rules.Rule) (rules.Rule, error) {
	updated, _, err := w.updateRules(ctx, []rules.Rule{rule})
	return first(updated), err
}

func (w write) removeRule(ctx context.Context, id rules.RuleID) error {
	_, err := w.removeRules(ctx, []rules.RuleID{id})
	return err
}

// The functions below return which row the error is about.

// createRules expects that the plans of the rules were looked for.
func (w write) createRules(ctx context.Context, all []rules.Rule) (created []rules.Rule, failed int, err error) {
	params := each(all, func(rule rules.Rule) dbsqlc.CreateRuleParams {
		return dbsqlc.CreateRuleParams{
			TenantID:      w.tenant,
			Name:          rule.Name,
			KeyPattern:    rule.Pattern.String(),
			Scope:         rule.Scope(),
			Plan:          rule.Plan,
			RatePerSecond: rule.RatePerSecond,
			RateUnit:      rule.RateUnit,
			BurstCapacity: rule.Burst,
			Algorithm:     rule.Algorithm,
			Mode:          rule.Mode,
			Action:        rule.Action,
			FailureMode:   string(rule.FailureMode),
			IsActive:      rule.Active,
			Description:   rule.Description,
			Revision:      w.revision,
		}
	})
	rows, failed, err := inTrips(params, func(trip []dbsqlc.CreateRuleParams, each func(int, dbsqlc.RateLimitRule, error)) {
		w.CreateRule(ctx, trip).QueryRow(each)
	})
	if err != nil {
		return nil, failed, err
	}
	return rulesAsStored(rows)
}

func (w write) updateRules(ctx context.Context, all []rules.Rule) (updated []rules.Rule, failed int, err error) {
	params := each(all, func(rule rules.Rule) dbsqlc.UpdateRuleParams {
		return dbsqlc.UpdateRuleParams{
			RatePerSecond: rule.RatePerSecond,
			RateUnit:      rule.RateUnit,
			BurstCapacity: rule.Burst,
			Algorithm:     rule.Algorithm,
			Mode:          rule.Mode,
			Action:        rule.Action,
			FailureMode:   string(rule.FailureMode),
			IsActive:      rule.Active,
			Description:   rule.Description,
			Revision:      w.revision,
			TenantID:      w.tenant,
			RuleID:        rule.ID,
		}
	})
	rows, failed, err := inTrips(params, func(trip []dbsqlc.UpdateRuleParams, each func(int, dbsqlc.RateLimitRule, error)) {
		w.UpdateRule(ctx, trip).QueryRow(each)
	})
	if err != nil {
		return nil, failed, err
	}
	return rulesAsStored(rows)
}

func (w write) removeRules(ctx context.Context, ids []rules.RuleID) (failed int, err error) {
	params := each(ids, func(id rules.RuleID) dbsqlc.RemoveRuleParams {
		return dbsqlc.RemoveRuleParams{Revision: w.revision, TenantID: w.tenant, RuleID: id}
	})
	_, failed, err = inTrips(params, func(trip []dbsqlc.RemoveRuleParams, each func(int, rules.RuleID, error)) {
		w.RemoveRule(ctx, trip).QueryRow(each)
	})
	if err != nil || len(ids) == 0 {
		return failed, err
	}
	numbers := each(ids, func(id rules.RuleID) int64 { return int64(id) })
	return 0, w.DeleteOverridesOfRules(ctx, w.tenant, numbers)
}

func rulesAsStored(rows []dbsqlc.RateLimitRule) (stored []rules.Rule, failed int, err error) {
	stored = make([]rules.Rule, len(rows))
	for i, row := range rows {
		if stored[i], err = ruleFromRow(row); err != nil {
			return nil, i, err
		}
	}
	return stored, 0, nil
}
