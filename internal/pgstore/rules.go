package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

// Rules returns rules that a filter selects, by id, beginning after one; it looks at 2,000 rules a page.
func (s *Store) Rules(
	ctx context.Context, tenant rules.TenantID, filter rules.RuleFilter, after rules.RuleID, limit int,
) (page rules.RulePage, err error) {
	if limit <= 0 {
		return page, nil
	}
	q := s.queriesFor(classRead, only(tenant))
	last := rules.RuleID(math.MaxInt64)
	if filter != (rules.RuleFilter{}) && filter.Pattern == "" { // an index finds the few rules of a pattern
		end, err := q.RulesLookedAt(ctx, tenant, after, s.lookedAt)
		switch {
		case err == nil:
			last, page.Next = end, end
		case !errors.Is(err, pgx.ErrNoRows):
			return rules.RulePage{}, wrap(err, "read rules")
		}
	}
	rows, err := q.RulesPage(ctx, dbsqlc.RulesPageParams{
		TenantID:   tenant,
		After:      after,
		Last:       last,
		Scope:      string(filter.Scope),
		Plan:       filter.Plan,
		Name:       filter.Name,
		Meter:      (*string)(filter.Meter),
		Mode:       string(filter.Mode),
		Action:     string(filter.Action),
		IsActive:   filter.Active,
		KeyPattern: filter.Pattern,
		Containing: filter.Text,
		PageSize:   rowLimit(limit) + 1, // one more shows whether a page follows
	})
	if err != nil {
		return rules.RulePage{}, wrap(err, "read rules")
	}
	if len(rows) > limit {
		rows = rows[:limit]
		page.Next = rows[limit-1].RuleID
	}
	page.Rules = s.rulesFromRows(ctx, rows)
	return page, nil
}

// Matrix returns up to limit rows of a tenant's plan matrix that follow a row.
func (s *Store) Matrix(ctx context.Context, tenant rules.TenantID, after rules.RuleIdentity, limit int,
) (page rules.MatrixPage, err error) {
	if limit <= 0 {
		return page, nil
	}
	q := s.queriesFor(classRead, only(tenant))
	last, err := q.MatrixLast(ctx, dbsqlc.MatrixLastParams{
		TenantID: tenant, AfterPattern: after.Pattern, AfterName: after.Name, Rows: int64(limit), Rules: s.matrixRules,
	})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return rules.MatrixPage{}, wrap(err, "read the plan matrix")
	}
	page.Next = rules.RuleIdentity{Pattern: last.KeyPattern, Name: last.Name}
	rows, err := q.MatrixPage(ctx, dbsqlc.MatrixPageParams{
		TenantID: tenant, AfterPattern: after.Pattern, AfterName: after.Name,
		ToEnd: err != nil, LastPattern: last.KeyPattern, LastName: last.Name,
	})
	if err != nil {
		return rules.MatrixPage{}, wrap(err, "read the plan matrix")
	}
	page.Rules = s.rulesFromRows(ctx, rows)
	return page, nil
}

// Rule returns one rule.
func (s *Store) Rule(ctx context.Context, tenant rules.TenantID, id rules.RuleID) (rules.Rule, error) {
	row, err := s.queriesFor(classRead, only(tenant)).Rule(ctx, tenant, id)
	if err != nil {
		return rules.Rule{}, wrap(err, "read rule %d", id)
	}
	return ruleFromRow(row)
}

// RulesByID returns the rules that exist among some ids.
func (s *Store) RulesByID(ctx context.Context, tenant rules.TenantID, ids []rules.RuleID) ([]rules.Rule, error) {
	rows, err := s.queriesFor(classRead, only(tenant)).RulesByID(ctx, tenant, ruleNumbers(ids))
	return s.rulesFromRows(ctx, rows), wrap(err, "read %d rules", len(ids))
}

// Meters returns what a tenant's rules count beside requests.
func (s *Store) Meters(ctx context.Context, tenant rules.TenantID) ([]rules.Meter, error) {
	names, err := s.queriesFor(classRead, only(tenant)).Meters(ctx, tenant)
	return each(names, func(name string) rules.Meter { return rules.Meter(name) }), wrap(err, "read what rules count")
}

// RulesEver returns rules by id, also those that were removed.
func (s *Store) RulesEver(ctx context.Context, tenant rules.TenantID, ids []rules.RuleID) ([]rules.Rule, error) {
	rows, err := s.queriesFor(classRead, only(tenant)).RulesEver(ctx, tenant, ruleNumbers(ids))
	return s.rulesFromRows(ctx, rows), wrap(err, "read %d rules of any time", len(ids))
}

func ruleNumbers(ids []rules.RuleID) []int64 {
	return each(ids, func(id rules.RuleID) int64 { return int64(id) })
}

// CreateRule returns rules.FieldErrors on key_pattern if rules.MaxRulesPerPattern is reached.
func (s Writer) CreateRule(ctx context.Context, rule rules.Rule) (created rules.Rule, err error) {
	err = s.inTenant(ctx, classWrite, rule.TenantID, func(ctx context.Context, w write) error {
		if err := w.requireRoom(ctx, &rule); err != nil {
			return err
		}
		stored, _, err := w.createRules(ctx, []rules.Rule{rule})
		created = first(stored)
		return err
	})
	return created, wrap(err, "create rule %s", rule.Identity())
}

// UpdateRule changes all of a rule except its identity.
func (s Writer) UpdateRule(ctx context.Context, rule rules.Rule) (updated rules.Rule, err error) {
	err = s.inTenant(ctx, classWrite, rule.TenantID, func(ctx context.Context, w write) error {
		if updated, err = w.ruleAt(ctx, rule.ID, rules.Expected(rule.Version)); err != nil {
			return err
		}
		if updated.HasSameFields(&rule) {
			return errUnchanged
		}
		updated, err = w.updateRule(ctx, &updated, &rule)
		return err
	})
	return updated, wrap(err, "update rule %d", rule.ID)
}

// RemoveRule removes a rule with its candidate and its overrides.
func (s Writer) RemoveRule(ctx context.Context, tenant rules.TenantID, id rules.RuleID, expected rules.Expected) error {
	err := s.inTenant(ctx, classBulk, tenant, func(ctx context.Context, w write) error {
		if _, err := w.ruleAt(ctx, id, expected); err != nil {
			return err
		}
		return w.removeRule(ctx, id)
	})
	return wrap(err, "remove rule %d", id)
}

func (w write) ruleAt(ctx context.Context, id rules.RuleID, expected rules.Expected) (rules.Rule, error) {
	row, err := w.Rule(ctx, w.tenant, id)
	if err != nil {
		return rules.Rule{}, err
	}
	if err := expect(expected, row.Version); err != nil {
		return rules.Rule{}, err
	}
	return ruleFromRow(row)
}

func (w write) requireRoom(ctx context.Context, rule *rules.Rule) error {
	if err := w.requirePlan(ctx, "plan", rule.Plan); err != nil {
		return err
	}
	pattern := rule.Pattern.String()
	neighbours, err := w.RulesOfPatterns(ctx, w.tenant, []string{pattern})
	if err != nil {
		return err
	}
	alike := 0
	for i := range neighbours {
		if orEmpty(neighbours[i].Plan) == rule.Plan {
			alike++
		}
	}
	if alike >= rules.MaxRulesPerPattern {
		return tooManyAlike()
	}
	return nil
}

func tooManyAlike() error {
	return rules.FieldErrors{{
		Field: "key_pattern", Message: fmt.Sprintf(
			"must be another one: at most %d rules can have the same pattern and plan", rules.MaxRulesPerPattern),
	}}
}

func (w write) updateRule(ctx context.Context, before, after *rules.Rule) (rules.Rule, error) {
	updated, _, err := w.updateRules(ctx, []ruleset.Change[rules.Rule]{{Before: before, After: after}})
	return first(updated), err
}

func (w write) removeRule(ctx context.Context, id rules.RuleID) error {
	ids, err := w.withCandidates(ctx, []rules.RuleID{id})
	if err != nil {
		return err
	}
	_, err = w.removeRules(ctx, ids)
	return err
}

// The functions below return the index of the row that an error is about.

func wrongRule(rule *rules.Rule) error {
	if wrong := rule.Validate(map[string]bool{rule.Plan: true}); len(wrong) > 0 {
		return wrong
	}
	return nil
}

func (w write) createRules(ctx context.Context, all []rules.Rule) (created []rules.Rule, failed int, err error) {
	if err := errors.Join(w.requireKnown(ctx, all...), w.requireAdaptRoom(ctx, all)); err != nil {
		adapts := func(rule rules.Rule) bool { return rule.Adapt.Backend != "" }
		return nil, max(0, slices.IndexFunc(all, adapts)), err
	}
	params := make([]dbsqlc.CreateRuleParams, len(all))
	for i := range all {
		rule, fields := &all[i], all[i].Fields()
		if err := wrongRule(rule); err != nil {
			return nil, i, err
		}
		parameters, err := parametersOf(&fields)
		if err != nil {
			return nil, i, err
		}
		params[i] = dbsqlc.CreateRuleParams{
			TenantID: w.tenant, Name: rule.Name, KeyPattern: rule.Pattern.String(), Scope: rule.Scope(),
			Plan:          rule.Plan,
			RatePerSecond: fields.RatePerSecond, RateUnit: fields.RateUnit, BurstCapacity: fields.BurstCapacity,
			Algorithm: fields.Algorithm, Mode: fields.Mode, Action: fields.Action, FailureMode: fields.FailureMode,
			IsActive: fields.IsActive, Description: fields.Description, ExpiresAt: fields.ExpiresAt,
			ExpiresInSeconds: wholeSeconds(rule.ExpiresIn), Parameters: parameters,
			CandidateFor: unlessZero(int64(rule.CandidateFor)), Revision: w.revision,
		}
	}
	rows, failed, err := inTrips(params,
		func(trip []dbsqlc.CreateRuleParams, each func(int, dbsqlc.RateLimitRule, error)) {
			w.CreateRule(ctx, trip).QueryRow(each)
		})
	if err != nil {
		return nil, failed, err
	}
	return rulesAsStored(rows)
}

func (w write) updateRules(ctx context.Context, changes []ruleset.Change[rules.Rule], removed ...rules.RuleID) (
	updated []rules.Rule, failed int, err error,
) {
	all := each(changes, func(change ruleset.Change[rules.Rule]) rules.Rule { return *change.After })
	if err := errors.Join(w.requireKnown(ctx, all...), w.requireAdaptRoom(ctx, all, removed...)); err != nil {
		begins := func(change ruleset.Change[rules.Rule]) bool {
			return change.Before.Adapt.Backend == "" && change.After.Adapt.Backend != ""
		}
		return nil, max(0, slices.IndexFunc(changes, begins)), err
	}
	params := make([]dbsqlc.UpdateRuleParams, len(changes))
	for i := range changes {
		rule, fields := changes[i].After, changes[i].After.Fields()
		if err := wrongRule(rule); err != nil {
			return nil, i, err
		}
		if wrong := rule.WrongMeterChange(changes[i].Before); len(wrong) > 0 {
			return nil, i, wrong
		}
		parameters, err := parametersOf(&fields)
		if err != nil {
			return nil, i, err
		}
		params[i] = dbsqlc.UpdateRuleParams{
			RatePerSecond: fields.RatePerSecond, RateUnit: fields.RateUnit, BurstCapacity: fields.BurstCapacity,
			Algorithm: fields.Algorithm, Mode: fields.Mode, Action: fields.Action, FailureMode: fields.FailureMode,
			IsActive: fields.IsActive, Description: fields.Description, ExpiresAt: fields.ExpiresAt,
			ExpiresInSeconds: wholeSeconds(rule.ExpiresIn), Known: knownParameters, Parameters: parameters,
			LimitChanges: rule.LimitDiffers(changes[i].Before), Revision: w.revision, TenantID: w.tenant,
			RuleID: rule.ID,
		}
	}
	rows, failed, err := inTrips(params,
		func(trip []dbsqlc.UpdateRuleParams, each func(int, dbsqlc.RateLimitRule, error)) {
			w.UpdateRule(ctx, trip).QueryRow(each)
		})
	if err != nil {
		return nil, failed, err
	}
	return rulesAsStored(rows)
}

// removeRules turns off the rules' alerts, which could never fire. Overrides go first, so that a restored rule's limit
// is later than their ends.
func (w write) removeRules(ctx context.Context, ids []rules.RuleID) (failed int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	if err := w.RemoveOverridesOfRules(ctx, w.revision, w.tenant, ruleNumbers(ids)); err != nil {
		return 0, err
	}
	turnedOff, err := w.TurnOffAlertsOfRules(ctx, w.tenant, ruleNumbers(ids))
	if err != nil {
		return 0, err
	}
	if err := w.SilenceDeliveries(ctx, w.tenant, turnedOff); err != nil {
		return 0, err
	}
	params := each(ids, func(id rules.RuleID) dbsqlc.RemoveRuleParams {
		return dbsqlc.RemoveRuleParams{Revision: w.revision, TenantID: w.tenant, RuleID: id}
	})
	_, failed, err = inTrips(params, func(trip []dbsqlc.RemoveRuleParams, each func(int, rules.RuleID, error)) {
		w.RemoveRule(ctx, trip).QueryRow(each)
	})
	return failed, err
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
