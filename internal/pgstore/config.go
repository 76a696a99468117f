package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// Config returns a tenant's plans, rules and unexpired overrides as they stand at one moment.
func (s *Store) Config(ctx context.Context, tenant rules.TenantID) (config rules.Config, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	oneView := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, s.pool, oneView, func(tx pgx.Tx) error {
		queries := s.queries.WithTx(tx)
		if _, err := queries.Tenant(ctx, tenant); err != nil {
			return err
		}
		config, err = s.config(ctx, queries, tenant)
		return err
	})
	if err != nil {
		return rules.Config{}, fmt.Errorf("read the configuration of tenant %d: %w", tenant, domainError(err))
	}
	return config, nil
}

func (s *Store) config(ctx context.Context, queries *dbsqlc.Queries, tenant rules.TenantID) (rules.Config, error) {
	planRows, err := queries.Plans(ctx, tenant)
	if err != nil {
		return rules.Config{}, err
	}
	ruleRows, err := queries.RulesAfter(ctx, tenant, 0, math.MaxInt32)
	if err != nil {
		return rules.Config{}, err
	}
	overrideRows, err := queries.UnexpiredOverrides(ctx, tenant)
	if err != nil {
		return rules.Config{}, err
	}
	config := rules.Config{Plans: each(planRows, planFromRow), Rules: s.rulesFromRows(ctx, ruleRows)}
	identities := make(map[rules.RuleID]rules.RuleIdentity, len(config.Rules))
	for i := range config.Rules {
		identities[config.Rules[i].ID] = config.Rules[i].Identity()
	}
	for _, row := range overrideRows {
		if identity, ok := identities[row.RuleID]; ok { // not so for a rule that was left out
			config.Overrides = append(config.Overrides, rules.ConfigOverride{Rule: identity, Override: overrideFromRow(row)})
		}
	}
	slices.SortFunc(config.Rules, func(a, b rules.Rule) int { return a.Identity().Compare(b.Identity()) })
	slices.SortFunc(config.Overrides, func(a, b rules.ConfigOverride) int {
		return cmp.Or(a.Rule.Compare(b.Rule), cmp.Compare(a.UserID, b.UserID))
	})
	return config, nil
}

// ChangeConfig makes the changes that a function derives from the present configuration, all or
// none, while no other write of the tenant is under way.
func (s *Store) ChangeConfig(
	ctx context.Context, tenant rules.TenantID, change func(rules.Config) (rules.Changes, error),
) (changes rules.Changes, err error) {
	err = s.inTenant(ctx, bulkTimeout, tenant, func(ctx context.Context, w write) error {
		current, err := s.config(ctx, w.Queries, tenant)
		if err != nil {
			return err
		}
		if changes, err = change(current); err != nil {
			return err
		}
		if changes.Empty() {
			return errUnchanged
		}
		return w.apply(ctx, current, changes)
	})
	if err != nil {
		return rules.Changes{}, fmt.Errorf("change the configuration of tenant %d: %w", tenant, err)
	}
	return changes, nil
}

// apply writes changes in the order in which they refer to each other, and replaces each After by
// the row as stored.
func (w write) apply(ctx context.Context, current rules.Config, changes rules.Changes) error {
	ids := make(map[rules.RuleIdentity]rules.RuleID, len(current.Rules))
	for i := range current.Rules {
		ids[current.Rules[i].Identity()] = current.Rules[i].ID
	}
	for _, c := range changes.Overrides {
		if c.After == nil {
			if err := w.removeOverride(ctx, ids[c.Before.Rule], c.Before.UserID); err != nil {
				return fmt.Errorf("remove the override for %s: %w", c.Before.Identity(), err)
			}
		}
	}
	for _, c := range changes.Rules {
		if c.After == nil {
			if err := w.removeRule(ctx, ids[c.Before.Identity()]); err != nil {
				return fmt.Errorf("remove rule %s: %w", c.Before.Identity(), err)
			}
		}
	}
	if err := w.applyPlans(ctx, changes.Plans); err != nil {
		return err
	}
	if err := w.applyRules(ctx, ids, changes.Rules); err != nil {
		return err
	}
	if err := w.applyOverrides(ctx, ids, changes.Overrides); err != nil {
		return err
	}
	for _, c := range changes.Plans {
		if c.After == nil {
			if err := w.removePlan(ctx, c.Before.Name); err != nil {
				return fmt.Errorf("remove plan %q: %w", c.Before.Name, err)
			}
		}
	}
	return nil
}

func (w write) applyPlans(ctx context.Context, changes []rules.Change[rules.Plan]) error {
	for i, c := range changes {
		if c.After == nil {
			continue
		}
		put := w.updatePlan
		if c.Before == nil {
			put = w.createPlan
		}
		stored, err := put(ctx, *c.After)
		if err != nil {
			return fmt.Errorf("plan %q: %w", c.After.Name, err)
		}
		changes[i].After = &stored
	}
	return nil
}

func (w write) applyRules(ctx context.Context, ids map[rules.RuleIdentity]rules.RuleID, changes []rules.Change[rules.Rule]) error {
	for i, c := range changes {
		if c.After == nil {
			continue
		}
		rule, identity := *c.After, c.After.Identity()
		put := w.createRule
		if c.Before != nil {
			put, rule.ID = w.updateRule, ids[identity]
		}
		stored, err := put(ctx, rule)
		if err != nil {
			return fmt.Errorf("rule %s: %w", identity, err)
		}
		ids[identity] = stored.ID
		changes[i].After = &stored
	}
	return nil
}

func (w write) applyOverrides(ctx context.Context, ids map[rules.RuleIdentity]rules.RuleID, changes []rules.Change[rules.ConfigOverride]) error {
	for i, c := range changes {
		if c.After == nil {
			continue
		}
		override := c.After.Override
		override.RuleID = ids[c.After.Rule]
		stored, err := w.putOverride(ctx, override)
		if err != nil {
			return fmt.Errorf("override for %s: %w", c.After.Identity(), err)
		}
		changes[i].After = &rules.ConfigOverride{Rule: c.After.Rule, Override: stored}
	}
	return nil
}
