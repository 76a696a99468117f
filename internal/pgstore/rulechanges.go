package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

const actPromote = "promote"

// PromoteRule copies a shadow rule's limit to the live rule beside it and removes the shadow rule, or enforces the
// shadow rule itself if live is 0.
func (s Writer) PromoteRule(
	ctx context.Context, tenant rules.TenantID, candidate rules.RuleID, expected rules.Expected, live rules.RuleID,
	liveExpected rules.Expected,
) (inForce rules.Rule, err error) {
	err = s.acting(actPromote).inTenant(ctx, classBulk, tenant, func(ctx context.Context, w write) error {
		shadow, err := w.ruleAt(ctx, candidate, expected)
		if err != nil {
			return err
		}
		if shadow.Mode != rules.ModeShadow {
			return rules.FieldErrors{{Field: "rule_id", Message: "must be a shadow rule"}}
		}
		if live == 0 {
			enforced := shadow
			enforced.Mode, enforced.Active = rules.ModeEnforce, true
			inForce, err = w.updateRule(ctx, &shadow, &enforced)
			return err
		}
		if inForce, err = w.ruleAt(ctx, live, liveExpected); err != nil {
			return fmt.Errorf("live rule %d: %w", live, err)
		}
		if inForce.Mode != rules.ModeEnforce || inForce.Plan != shadow.Plan ||
			inForce.Pattern.String() != shadow.Pattern.String() {
			return rules.FieldErrors{{
				Field:   "into_rule_id",
				Message: "must be an enforced rule with the shadow rule's pattern and plan",
			}}
		}
		return w.promote(ctx, &shadow, &inForce)
	})
	return inForce, wrap(err, "promote rule %d", candidate)
}

func (w write) promote(ctx context.Context, shadow, live *rules.Rule) error {
	after, fields := *live, shadow.Fields()
	kept := live.Fields()
	fields.Mode, fields.ExpiresAt, fields.Description = kept.Mode, kept.ExpiresAt, kept.Description
	fields.IsActive = true
	if wrong := after.SetFields(&fields); len(wrong) > 0 {
		return wrong
	}
	if !live.HasSameFields(&after) {
		updated, _, err := w.updateRules(ctx, []ruleset.Change[rules.Rule]{{Before: live, After: &after}}, shadow.ID)
		if err != nil {
			return err
		}
		*live = first(updated)
	}
	return w.removeRule(ctx, shadow.ID)
}

// ChangeRules creates, updates and removes many rules, all or none; a dry run is rolled back. An error about single
// changes is a ruleset.RuleChangeErrors. If a rule for all plans gives way to rules with its pattern and name for
// single plans, these inherit its overrides.
func (s Writer) ChangeRules(
	ctx context.Context, tenant rules.TenantID, changes []ruleset.RuleChange, dryRun bool,
) (made []ruleset.RuleChanged, err error) {
	err = s.inTenant(ctx, classBulk, tenant, func(ctx context.Context, w write) error {
		before, err := w.rulesToChange(ctx, changes)
		if err != nil {
			return err
		}
		if made, err = w.changeRules(ctx, before, changes); err == nil && dryRun {
			return errUnchanged
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("change %d rules: %w", len(changes), err)
	}
	for i := range made {
		if dryRun && made[i].Before == nil {
			made[i].After.ID = 0 // a dry run's id is not kept
		}
	}
	return made, nil
}

func (w write) rulesToChange(ctx context.Context, changes []ruleset.RuleChange) (map[rules.RuleID]rules.Rule, error) {
	var ids []int64
	for i := range changes {
		ids = append(ids, int64(changes[i].Rule.ID))
	}
	rows, err := w.RulesByID(ctx, w.tenant, ids)
	if err != nil {
		return nil, err
	}
	stored, _, err := rulesAsStored(rows)
	if err != nil {
		return nil, err
	}
	before := make(map[rules.RuleID]rules.Rule, len(stored))
	for i := range stored {
		before[stored[i].ID] = stored[i]
	}
	wrong := ruleset.RuleChangeErrors{}
	named, removed := map[rules.RuleID]bool{}, map[rules.RuleID]bool{}
	for i := range changes {
		c := &changes[i]
		if c.Rule.ID == 0 && !c.Remove {
			continue
		}
		rule, found := before[c.Rule.ID]
		switch {
		case !found:
			wrong[i] = fmt.Errorf("rule %d: %w", c.Rule.ID, rules.ErrNotFound)
		case named[c.Rule.ID]:
			wrong[i] = rules.FieldErrors{{Field: "rule_id", Message: "must be named by one change only"}}
		default:
			if err := expect(c.Expected, rule.Version); err != nil {
				wrong[i] = fmt.Errorf("rule %d: %w", c.Rule.ID, err)
			}
		}
		named[c.Rule.ID] = true
		removed[c.Rule.ID] = c.Remove
	}
	if err := w.findRoom(ctx, changes, removed, wrong); err != nil {
		return nil, err
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return before, nil
}

func (w write) findRoom(ctx context.Context, changes []ruleset.RuleChange, removed map[rules.RuleID]bool,
	wrong ruleset.RuleChangeErrors,
) error {
	var patterns []string
	for i := range changes {
		if changes[i].Rule.ID == 0 {
			patterns = append(patterns, changes[i].Rule.Pattern.String())
		}
	}
	neighbours, err := w.RulesOfPatterns(ctx, w.tenant, patterns)
	if err != nil {
		return err
	}
	plans, err := w.planSet(ctx)
	if err != nil {
		return err
	}
	taken := map[rules.RuleIdentity]bool{}
	alike := map[rules.RuleIdentity]int{} // by pattern and plan
	for i := range neighbours {
		if n := &neighbours[i]; !removed[n.RuleID] {
			taken[rules.RuleIdentity{Pattern: n.KeyPattern, Plan: orEmpty(n.Plan), Name: n.Name}] = true
			alike[rules.RuleIdentity{Pattern: n.KeyPattern, Plan: orEmpty(n.Plan)}]++
		}
	}
	for i := range changes {
		if changes[i].Rule.ID != 0 || changes[i].Remove {
			continue
		}
		identity := changes[i].Rule.Identity()
		group := rules.RuleIdentity{Pattern: identity.Pattern, Plan: identity.Plan}
		alike[group]++
		switch {
		case !plans[identity.Plan]:
			wrong[i] = noSuchPlan("plan", identity.Plan)
		case taken[identity]:
			wrong[i] = fmt.Errorf("%s %w", takenBy("rate_limit_rule_identity_key"), rules.ErrExists)
		case alike[group] > rules.MaxRulesPerPattern:
			wrong[i] = tooManyAlike()
		}
		taken[identity] = true
	}
	return nil
}

// changeRules removes first, since a new rule may have the identity of a removed one.
func (w write) changeRules(ctx context.Context, before map[rules.RuleID]rules.Rule,
	changes []ruleset.RuleChange,
) ([]ruleset.RuleChanged, error) {
	made := make([]ruleset.RuleChanged, len(changes))
	var removed []rules.RuleID
	var updated []ruleset.Change[rules.Rule]
	var created []rules.Rule
	var removedAt, updatedAt, createdAt []int // indexes in changes
	for i := range changes {
		rule := changes[i].Rule
		if stored, ok := before[rule.ID]; ok {
			made[i].Before, made[i].After = &stored, &stored
		}
		switch {
		case changes[i].Remove:
			made[i].After = nil
			removed, removedAt = append(removed, rule.ID), append(removedAt, i)
		case rule.ID == 0:
			created, createdAt = append(created, rule), append(createdAt, i)
		case !made[i].Before.HasSameFields(&rule):
			updated = append(updated, ruleset.Change[rules.Rule]{Before: made[i].Before, After: &rule})
			updatedAt = append(updatedAt, i)
		}
	}
	if len(removed)+len(updated)+len(created) == 0 {
		return made, errUnchanged
	}
	if err := w.countLater(ctx); err != nil {
		return nil, err
	}
	var overrides []dbsqlc.UnexpiredOverridesOfRulesRow
	if len(removed) > 0 {
		var err error
		if overrides, err = w.UnexpiredOverridesOfRules(ctx, w.tenant, ruleNumbers(removed)); err != nil {
			return nil, err
		}
		if removed, err = w.withCandidates(ctx, removed); err != nil {
			return nil, err
		}
	}
	if failed, err := w.removeRules(ctx, removed); err != nil {
		return nil, blame(append(removedAt, 0)[min(failed, len(removedAt))], err)
	}
	stored, failed, err := w.updateRules(ctx, updated)
	if err != nil {
		return nil, blame(updatedAt[failed], err)
	}
	for i := range stored {
		made[updatedAt[i]].After = &stored[i]
	}
	stored, failed, err = w.createRules(ctx, created)
	if err != nil {
		return nil, blame(createdAt[failed], err)
	}
	for i := range stored {
		made[createdAt[i]].After = &stored[i]
	}
	if err := w.moveOverrides(ctx, overrides, made); err != nil {
		return nil, err
	}
	return made, errors.Join(w.CountRules(ctx, int64(w.tenant)), w.CountHeldNow(ctx, int64(w.tenant)))
}

const maxMovedOverrides = 5000

// moveOverrides gives overrides of removed rules for all plans to their heirs. Users without an assigned plan may name
// any, so each heir gets theirs.
func (w write) moveOverrides(ctx context.Context, overrides []dbsqlc.UnexpiredOverridesOfRulesRow,
	made []ruleset.RuleChanged,
) error {
	removed := map[rules.RuleID]int{}               // indexes in made
	heirs := map[rules.RuleIdentity][]*rules.Rule{} // by the identity that the rule for all plans had
	for i := range made {
		switch before, after := made[i].Before, made[i].After; {
		case after == nil:
			removed[before.ID] = i
		case before == nil && after.Plan != "":
			identity := after.Identity()
			identity.Plan = ""
			heirs[identity] = append(heirs[identity], after)
		}
	}
	soon := time.Now().Add(time.Minute) // what ends until then may have ended when it is written
	var moved []rules.Override
	for _, row := range overrides {
		override := overrideFromRow(row.RateLimitOverride)
		from := &made[removed[override.RuleID]]
		known := len(moved)
		for _, heir := range heirs[from.Before.Identity()] {
			if (row.Plan == "" || row.Plan == heir.Plan) && len(override.Validate(heir, soon)) == 0 {
				override.RuleID = heir.ID
				moved = append(moved, override)
			}
		}
		if len(moved) > maxMovedOverrides {
			return ruleset.RuleChangeErrors{removed[from.Before.ID]: rules.FieldErrors{{
				Field: "rule_id",
				Message: fmt.Sprintf(
					"has overrides that the new rules would take over, more than the %d that one save can move; "+
						"create "+
						"the new rules first, "+
						"and remove this one in a later save, which removes its overrides", maxMovedOverrides),
			}}}
		}
		if len(moved) > known {
			from.OverridesMoved = append(from.OverridesMoved, override.UserID)
		} else {
			from.OverridesRemoved = append(from.OverridesRemoved, override.UserID)
		}
	}
	_, _, err := w.putOverrides(ctx, moved)
	return err
}

// blame names the change that an error is about, unless the database is away.
func blame(change int, err error) error {
	var wrong rules.FieldErrors
	var refusal *pgconn.PgError
	const integrityViolations = "23"
	if errors.As(err, &wrong) || errors.Is(err, rules.ErrExists) || errors.Is(err, rules.ErrNotFound) ||
		errors.As(err, &refusal) && strings.HasPrefix(refusal.Code, integrityViolations) {
		return ruleset.RuleChangeErrors{change: err}
	}
	return err
}
