package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

// Config returns a tenant's plans, rules and unexpired overrides in one snapshot of the database.
func (s *Store) Config(ctx context.Context, tenant rules.TenantID) (config ruleset.Config, err error) {
	err = s.oneView(ctx, classLoad, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) error {
		config, err = s.config(ctx, q, tenant)
		return err
	})
	return config, wrap(err, "read the configuration of tenant %d", tenant)
}

func (s *Store) config(ctx context.Context, queries *dbsqlc.Queries, tenant rules.TenantID) (ruleset.Config, error) {
	plans, err := plansInUse(ctx, queries, tenant)
	if err != nil {
		return ruleset.Config{}, err
	}
	ruleRows, err := queries.AllRules(ctx, tenant)
	if err != nil {
		return ruleset.Config{}, err
	}
	overrideRows, err := queries.UnexpiredOverrides(ctx, tenant)
	if err != nil {
		return ruleset.Config{}, err
	}
	gatewayRows, err := queries.Gateways(ctx, tenant)
	if err != nil {
		return ruleset.Config{}, err
	}
	config := ruleset.Config{
		Plans: plans, Rules: s.rulesFromRows(ctx, ruleRows),
		Gateways: each(gatewayRows, gatewayFromRow),
	}
	identities := make(map[rules.RuleID]rules.RuleIdentity, len(config.Rules))
	for i := range config.Rules {
		identities[config.Rules[i].ID] = config.Rules[i].Identity()
	}
	for _, row := range overrideRows {
		if identity, ok := identities[row.RuleID]; ok { // an unreadable rule was left out
			config.Overrides = append(config.Overrides,
				ruleset.ConfigOverride{Rule: identity, Override: overrideFromRow(row)})
		}
	}
	slices.SortFunc(config.Rules, func(a, b rules.Rule) int { return a.Identity().Compare(b.Identity()) })
	slices.SortFunc(config.Overrides, func(a, b ruleset.ConfigOverride) int {
		return cmp.Or(a.Rule.Compare(b.Rule), cmp.Compare(a.UserID, b.UserID))
	})
	return config, nil
}

func plansInUse(ctx context.Context, queries *dbsqlc.Queries, id rules.TenantID) ([]rules.Plan, error) {
	if _, err := queries.Tenant(ctx, id); err != nil {
		return nil, err
	}
	rows, err := queries.PlanUses(ctx, id, "", math.MaxInt32)
	if err != nil {
		return nil, err
	}
	plans := make([]rules.Plan, len(rows))
	for i, row := range rows {
		plans[i] = planFromRow(row.Plan)
		var uses []string
		switch {
		case row.Users == 1:
			uses = append(uses, "1 user is on it")
		case row.Users > 1:
			uses = append(uses, fmt.Sprintf("%d users are on it", row.Users))
		}
		if row.IsDefault {
			uses = append(uses, "it is the tenant's default")
		}
		plans[i].InUse = strings.Join(uses, " and ")
	}
	return plans, nil
}

// ChangeConfig makes the changes that a function derives from the present configuration, all or none.
func (s Writer) ChangeConfig(
	ctx context.Context, tenant rules.TenantID, change func(ruleset.Config) (ruleset.Changes, error),
) (changes ruleset.Changes, err error) {
	err = s.acting("import").inBulk(ctx, tenant, func(ctx context.Context, w write) error {
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
	return changes, wrap(err, "change the configuration of tenant %d", tenant)
}

// apply keeps references valid by its order, and replaces each After by the stored row.
func (w write) apply(ctx context.Context, current ruleset.Config, changes ruleset.Changes) error {
	ids := make(map[rules.RuleIdentity]rules.RuleID, len(current.Rules))
	for i := range current.Rules {
		ids[current.Rules[i].Identity()] = current.Rules[i].ID
	}
	if err := w.countLater(ctx); err != nil {
		return err
	}
	if err := w.applyRemovals(ctx, ids, changes); err != nil {
		return err
	}
	if err := w.applyPlans(ctx, changes.Plans); err != nil {
		return err
	}
	if err := w.applyRules(ctx, ids, changes.Rules); err != nil {
		return err
	}
	if err := w.CountRules(ctx, int64(w.tenant)); err != nil {
		return err
	}
	if err := w.applyOverrides(ctx, ids, changes.Overrides); err != nil {
		return err
	}
	if err := w.applyGateways(ctx, changes.Gateways); err != nil {
		return err
	}
	for _, c := range changes.Plans {
		if c.After == nil {
			if err := w.removePlan(ctx, c.Before.Name); err != nil {
				return fmt.Errorf("remove plan %q: %w", c.Before.Name, err)
			}
		}
	}
	return w.CountHeldNow(ctx, int64(w.tenant))
}

func (w write) countLater(ctx context.Context) error {
	return errors.Join(w.CountRulesLater(ctx), w.CountHeldLater(ctx, int64(w.tenant)))
}

func (w write) applyPlans(ctx context.Context, changes []ruleset.Change[rules.Plan]) error {
	for i, c := range changes {
		if c.After == nil {
			continue
		}
		put, after := w.createPlan, *c.After
		if c.Before != nil {
			put, after.Position = w.updatePlan, c.Before.Position // of new ones only
		}
		stored, err := put(ctx, after)
		if err != nil {
			return fmt.Errorf("plan %q: %w", c.After.Name, err)
		}
		changes[i].After = &stored
	}
	return nil
}

func (w write) applyRemovals(ctx context.Context, ids map[rules.RuleIdentity]rules.RuleID,
	changes ruleset.Changes,
) error {
	var overrides []rules.Override
	var overrideNames []ruleset.OverrideIdentity
	for _, c := range changes.Overrides {
		if c.After == nil {
			overrides = append(overrides, rules.Override{RuleID: ids[c.Before.Rule], UserID: c.Before.UserID})
			overrideNames = append(overrideNames, c.Before.Identity())
		}
	}
	if failed, err := w.removeOverrides(ctx, overrides); err != nil {
		return fmt.Errorf("remove the override for %s: %w", overrideNames[failed], err)
	}
	var removed []rules.RuleID
	var ruleNames []rules.RuleIdentity
	for _, c := range changes.Rules {
		if c.After == nil {
			removed = append(removed, ids[c.Before.Identity()])
			ruleNames = append(ruleNames, c.Before.Identity())
		}
	}
	if failed, err := w.removeRules(ctx, removed); err != nil {
		return fmt.Errorf("remove rule %s: %w", ruleNames[failed], err)
	}
	return nil
}

func (w write) applyRules(ctx context.Context, ids map[rules.RuleIdentity]rules.RuleID,
	changes []ruleset.Change[rules.Rule],
) error {
	plans, err := w.planSet(ctx)
	if err != nil {
		return err
	}
	var updated []ruleset.Change[rules.Rule]
	var created []rules.Rule
	var createdAt, updatedAt []int // indexes in changes
	for i, c := range changes {
		switch {
		case c.After == nil:
		case c.Before != nil:
			rule := *c.After
			rule.ID = ids[rule.Identity()]
			updated = append(updated, ruleset.Change[rules.Rule]{Before: c.Before, After: &rule})
			updatedAt = append(updatedAt, i)
		case !plans[c.After.Plan]:
			return fmt.Errorf("rule %s: %w", c.After.Identity(), noSuchPlan("plan", c.After.Plan))
		default:
			created, createdAt = append(created, *c.After), append(createdAt, i)
		}
	}
	stored, failed, err := w.updateRules(ctx, updated)
	if err != nil {
		return fmt.Errorf("rule %s: %w", updated[failed].After.Identity(), err)
	}
	for i := range stored {
		changes[updatedAt[i]].After = &stored[i]
	}
	stored, failed, err = w.createRules(ctx, created)
	if err != nil {
		return fmt.Errorf("rule %s: %w", created[failed].Identity(), err)
	}
	for i := range stored {
		changes[createdAt[i]].After = &stored[i]
		ids[stored[i].Identity()] = stored[i].ID
	}
	return nil
}

func (w write) applyOverrides(ctx context.Context, ids map[rules.RuleIdentity]rules.RuleID,
	changes []ruleset.Change[ruleset.ConfigOverride],
) error {
	var overrides []rules.Override
	var at []int // indexes in changes
	for i, c := range changes {
		if c.After != nil {
			override := c.After.Override
			override.RuleID = ids[c.After.Rule]
			overrides, at = append(overrides, override), append(at, i)
		}
	}
	stored, failed, err := w.putOverrides(ctx, overrides)
	if err != nil {
		return fmt.Errorf("override for %s: %w", changes[at[failed]].After.Identity(), err)
	}
	for i := range stored {
		change := &changes[at[i]]
		change.After = &ruleset.ConfigOverride{Rule: change.After.Rule, Override: stored[i]}
	}
	return nil
}
