package adminapi

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

func (s *surface) ShowEffect(ctx context.Context,
	request openapi.ShowEffectRequestObject,
) (openapi.ShowEffectResponseObject, error) {
	tenant := requestOf(ctx).tenant
	candidate, err := s.readEffect(ctx, request.Body)
	if err != nil {
		return nil, err
	}
	answer := openapi.ShowEffect200JSONResponse{
		IsRecording: tenant.Settings.RecordDays > 0, Since: timeOrNull(never), Until: timeOrNull(never),
		NoneSince: timeOrNull(never), Note: orNull(""), BoundBy: orNull(openapi.ID(0)),
		Rules: []openapi.EffectOfRule{}, Users: []openapi.EffectOfUser{}, LeftOut: []openapi.EffectLeftOut{},
	}
	result, err := replay.Effect(ctx, s.Recorded, tenant.ID, candidate,
		cmp.Or(valueOf(request.Body.MostChecks), replay.EffectChecks), s.Now())
	switch {
	case errors.Is(err, replay.ErrNotInSample):
		answer.Note = nullable.NewNullableWithValue(
			"Only a sample of the users is recorded, and this user is not in it.")
		return answer, nil
	case err != nil:
		return nil, err
	case result.Read == 0:
		if candidate.IsOfUser() {
			answer.NoneSince = timeOrNull(result.Since)
		}
		return answer, nil
	}
	answer.Since, answer.Until = timeOrNull(result.First), timeOrNull(result.Last)
	answer.Checks, answer.Share = showFigure(result.Checks), result.Share
	answer.DeniedThen, answer.DeniedNow = showFigure(result.DeniedThen), showFigure(result.DeniedNow)
	answer.NewlyDenied, answer.NoLongerDenied = showFigure(result.NewlyDenied), showFigure(result.NoLongerDenied)
	if candidate.IsOfUser() {
		answer.BoundBy = orNull(openapi.ID(boundBy(result)))
	}
	answer.LeftOut = itemsOf(result.LeftOut, showLeftOut)
	notes := notesOfPlans(candidate, result)
	for i := range result.Rules {
		if of := &result.Rules[i]; of.IsChanged {
			answer.Rules = append(answer.Rules, openapi.EffectOfRule{
				RuleId: orNull(openapi.ID(of.RuleID)), Rule: of.Rule, Mode: openapi.Mode(of.Mode),
				Note:       orNull(notes[of.Rule]),
				DeniedThen: showFigure(of.DeniedThen),
				DeniedNow:  showFigure(of.DeniedNow), NewlyDenied: showFigure(of.NewlyDenied),
				NoLongerDenied: showFigure(of.NoLongerDenied),
			})
		}
	}
	for i := range result.Users {
		u := &result.Users[i]
		if u.NewlyDenied+u.NoLongerDenied == 0 || len(answer.Users) == effectUsers {
			break
		}
		answer.Users = append(answer.Users, openapi.EffectOfUser{
			UserId: orNull(u.UserID), Ip: orNull(u.IP), NewlyDenied: u.NewlyDenied, NoLongerDenied: u.NoLongerDenied,
		})
	}
	return answer, nil
}

// boundBy returns the other rule that denies most of a user's checks, if an override changes nothing; else 0.
func boundBy(result *replay.Result) (id int64) {
	most := 0.0
	if result.NewlyDenied.Value+result.NoLongerDenied.Value > 0 {
		return 0
	}
	for i := range result.Rules {
		of := &result.Rules[i]
		if !of.IsChanged && of.Mode == string(rules.ModeEnforce) && of.DeniedNow.Value > most {
			id, most = of.RuleID, of.DeniedNow.Value
		}
	}
	return id
}

func notesOfPlans(candidate *replay.Candidate, result *replay.Result) map[string]string {
	notes, checked, listed := map[string]string{}, map[string]bool{}, 0.0
	for i := range result.Plans {
		checked[result.Plans[i].Plan] = true
		listed += result.Plans[i].Checks.Value
	}
	if listed < result.Checks.Value {
		return notes // there are more plans than a result lists
	}
	for i := range candidate.Config.Rules {
		if rule := &candidate.Config.Rules[i]; rule.Plan != "" && !checked[rule.Plan] {
			notes[rule.Identity().String()] = "No recorded check was on the plan " + rule.Plan + "."
		}
	}
	return notes
}

func (s *surface) readEffect(ctx context.Context, q *openapi.EffectQuestion) (candidate *replay.Candidate, err error) {
	tenant := requestOf(ctx).tenant.ID
	given, removed := valueOf(q.Rules), valueOf(q.Remove)
	kinds := 0
	for _, isGiven := range []bool{len(given)+len(removed) > 0, q.Override != nil, q.File != nil} {
		if isGiven {
			kinds++
		}
	}
	if kinds != 1 || valueOf(q.Prune) && q.File == nil {
		return nil, wrongBody("/rules", "send rules, remove or an override, or else a file; prune is for a file only")
	}
	asked := replay.Request{File: valueOf(q.File), Prune: valueOf(q.Prune)}
	var wrong []httpapi.FieldError
	var plans []string
	switch {
	case q.Override != nil:
		return s.readEffectOverride(ctx, q.Override)
	case q.File != nil:
		names, err := s.planNames(ctx)
		if err != nil {
			return nil, err
		}
		plans = slices.Collect(maps.Keys(names))
	case len(removed) > 0:
		if wrong, err = s.removedRules(ctx, &asked, removed); err != nil {
			return nil, err
		}
	}
	candidate, err = asked.Candidate(plans)
	var mistakes ruleset.Errors
	if errors.As(err, &mistakes) {
		return nil, httpapi.BodyProblem(mistakesOf("/file", mistakes))
	}
	if err != nil {
		return nil, err
	}
	for i := range given {
		rule, mistakes := newRule(tenant, &given[i])
		mistakes = allWrong(&rule, mistakes, map[string]bool{rule.Plan: true}) // a plan may be created later
		wrong = append(wrong, pointers("/rules/"+strconv.Itoa(i), mistakes)...)
		candidate.Config.Rules = append(candidate.Config.Rules, rule)
	}
	return candidate, httpapi.BodyProblem(wrong)
}

func (s *surface) readEffectOverride(ctx context.Context, given *openapi.EffectOverride) (*replay.Candidate, error) {
	rule, err := s.Stores.Rule(ctx, requestOf(ctx).tenant.ID, rules.RuleID(given.RuleId))
	if errors.Is(err, rules.ErrNotFound) {
		return nil, wrongBody("/override/rule_id", "must be the id of a rule of the tenant")
	}
	if err != nil {
		return nil, err
	}
	override := rules.Override{
		TenantID: rule.TenantID, RuleID: rule.ID, UserID: given.UserId, RatePerSecond: valueOf(given.RatePerSecond),
		RateUnit: rules.PerSecond,
		Burst:    given.BurstCapacity, Reason: "its effect is looked at",
	}
	if err := httpapi.BodyProblem(pointers("/override", override.Validate(&rule, s.Now()))); err != nil {
		return nil, err
	}
	return &replay.Candidate{Config: ruleset.Config{Overrides: []ruleset.ConfigOverride{{
		Rule:     rule.Identity(),
		Override: override,
	}}}}, nil
}

const effectUsers = 5

func showFigure(f replay.Figure) openapi.Figure {
	return openapi.Figure{Value: f.Value, Error: f.Error}
}
