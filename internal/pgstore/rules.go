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
		return q.RulesAfter(ctx, tenant, after, int32(limit))
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
	row, err := w.CreateRule(ctx, dbsqlc.CreateRuleParams{
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
	})
	if err != nil {
		return rules.Rule{}, err
	}
	return ruleFromRow(row)
}

func (w write) updateRule(ctx context.Context, rule rules.Rule) (rules.Rule, error) {
	row, err := w.UpdateRule(ctx, dbsqlc.UpdateRuleParams{
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
	})
	if err != nil {
		return rules.Rule{}, err
	}
	return ruleFromRow(row)
}

func (w write) removeRule(ctx context.Context, id rules.RuleID) error {
	if err := foundOne(w.RemoveRule(ctx, w.revision, w.tenant, id)); err != nil {
		return err
	}
	return w.DeleteOverridesOfRule(ctx, w.tenant, id)
}
