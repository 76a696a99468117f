package adminapi

import (
	"context"
	"errors"
	"slices"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
)

func showRule(r *rules.Rule) openapi.Rule {
	shown := openapi.Rule{
		RuleID: openapi.ID(r.ID), KeyPattern: r.Pattern.String(), Name: r.Name, Plan: orNull(r.Plan),
		Scope: openapi.Scope(r.Scope()), Fields: r.Fields(), CandidateFor: orNull(openapi.ID(r.CandidateFor)),
		Version: r.Version, InForceSince: r.InForceSince.UTC(), CreatedAt: r.CreatedAt.UTC(),
		UpdatedAt: r.UpdatedAt.UTC(),
	}
	if r.Action == rules.ActionLimit {
		shown.LimitText = r.DescribeLimit()
	}
	shown.Rate = rateOrNull(r.RatePerSecond, r.RateUnit)
	return shown
}

func rateOrNull(perSecond float64, unit rules.RateUnit) nullable.Nullable[string] {
	return orNullIf(perSecond != 0, rules.FormatRate(perSecond, unit))
}

func answerRule(r *rules.Rule) openapi.TheRuleJSONResponse {
	return openapi.TheRuleJSONResponse{
		Body: showRule(r), Headers: openapi.TheRuleResponseHeaders{ETag: etag(r.Version)},
	}
}

func newRule(tenant rules.TenantID, given *openapi.RuleGiven) (rules.Rule, rules.FieldErrors) {
	rule := rules.Standard()
	rule.TenantID, rule.Name, rule.Plan = tenant, valueOf(given.Name), orZero(given.Plan)
	wrong := rule.Patch(given.Fields)
	rule.NameByMeter()
	pattern, err := rules.ParsePattern(valueOf(given.KeyPattern))
	if err != nil {
		wrong.Add("key_pattern", err.Error())
	}
	rule.Pattern = pattern
	return rule, wrong
}

func (s *surface) givenRule(ctx context.Context, given *openapi.RuleGiven) (rules.Rule, error) {
	rule, wrong := newRule(requestOf(ctx).tenant.ID, given)
	wrong, err := s.wrongRule(ctx, &rule, wrong)
	if err == nil && len(wrong) > 0 {
		err = wrong
	}
	return rule, err
}

func (s *surface) wrongRule(ctx context.Context, r *rules.Rule, wrong rules.FieldErrors) (rules.FieldErrors, error) {
	plans := map[string]bool{}
	if r.Plan != "" {
		_, err := s.Stores.Plan(ctx, r.TenantID, r.Plan)
		if err != nil && !errors.Is(err, rules.ErrNotFound) {
			return nil, err
		}
		plans[r.Plan] = err == nil
	}
	return allWrong(r, wrong, plans), nil
}

// allWrong adds the errors of validation to those found while reading, once for each field.
func allWrong(r *rules.Rule, wrong rules.FieldErrors, plans map[string]bool) rules.FieldErrors {
	unread := wrong
	for _, f := range r.Validate(plans) {
		if !slices.ContainsFunc(unread, func(u rules.FieldError) bool {
			return u.Field == f.Field || u.Field == "rate" && f.Field == "rate_per_second"
		}) {
			wrong = append(wrong, f)
		}
	}
	return wrong
}

func (s *surface) ListRules(ctx context.Context,
	request openapi.ListRulesRequestObject,
) (openapi.ListRulesResponseObject, error) {
	place, err := after[rules.RuleID](ctx)
	if err != nil {
		return nil, err
	}
	p := request.Params
	filter := rules.RuleFilter{
		Scope: rules.Scope(valueOf(p.Scope)), Mode: rules.Mode(valueOf(p.Mode)),
		Action: rules.Action(valueOf(p.Action)),
		Active: p.Active, Text: valueOf(p.Q), Meter: meterOf(p.Meter),
	}
	if requestOf(ctx).r.URL.Query().Has("plan") { // an empty one selects rules for all plans
		filter.Plan = new(string)
		set(filter.Plan, p.Plan)
	}
	if requestOf(ctx).r.URL.Query().Has("name") {
		filter.Name = new(valueOf(p.Name))
	}
	if text := valueOf(p.Pattern); text != "" {
		pattern, err := rules.ParsePattern(text)
		if err != nil {
			return nil, wrongQuery("pattern", err.Error())
		}
		filter.Pattern = pattern.String()
	}
	found, err := s.Stores.Rules(ctx, requestOf(ctx).tenant.ID, filter, place, limitOf(p.Limit))
	if err != nil {
		return nil, err
	}
	return openapi.ListRules200JSONResponse{
		Items: itemsOf(found.Rules, showRule), NextCursor: next(ctx, found.Next),
	}, nil
}

func (s *surface) CreateRule(ctx context.Context,
	request openapi.CreateRuleRequestObject,
) (openapi.CreateRuleResponseObject, error) {
	rule, err := s.givenRule(ctx, request.Body)
	if err != nil {
		return nil, err
	}
	rule, err = s.store(ctx).CreateRule(ctx, rule)
	if errors.Is(err, rules.ErrExists) {
		return nil, httpapi.Conflict.Problem(
			"A rule with this pattern, plan and name exists; choose another name, or change that rule.")
	}
	if err != nil {
		return nil, err
	}
	return openapi.CreateRule201JSONResponse{RuleCreatedJSONResponse: answerNewRule(ctx, &rule)}, nil
}

func answerNewRule(ctx context.Context, r *rules.Rule) openapi.RuleCreatedJSONResponse {
	return openapi.RuleCreatedJSONResponse{Body: showRule(r), Headers: openapi.RuleCreatedResponseHeaders{
		ETag: etag(r.Version), Location: location("tenants/%s/rules/%s", requestOf(ctx).tenant.Slug, int64(r.ID)),
	}}
}

func (s *surface) PutRule(ctx context.Context, request openapi.PutRuleRequestObject) (openapi.PutRuleResponseObject,
	error,
) {
	at := rules.AnyVersion
	if p := request.Params; p.IfMatch != nil || p.IfNoneMatch != nil {
		var err error
		if at, err = expectedOrNone(p.IfMatch, p.IfNoneMatch != nil); err != nil {
			return nil, err
		}
	}
	rule, err := s.givenRule(ctx, request.Body)
	if err != nil {
		return nil, err
	}
	isNew := false
	stored, err := patched(at, func() (stored rules.Rule, err error) {
		stored, isNew, err = s.putRule(ctx, rule, at)
		return stored, err
	})
	switch {
	case err != nil:
		return nil, lost(ctx, err, func() (int64, error) {
			present, err := s.sameRule(ctx, &rule)
			return present.Version, err
		})
	case isNew:
		return openapi.PutRule201JSONResponse{RuleCreatedJSONResponse: answerNewRule(ctx, &stored)}, nil
	}
	return openapi.PutRule200JSONResponse{TheRuleJSONResponse: answerRule(&stored)}, nil
}

func (s *surface) putRule(ctx context.Context, rule rules.Rule, at rules.Expected) (stored rules.Rule, isNew bool,
	err error,
) {
	present, err := s.sameRule(ctx, &rule)
	switch {
	case err != nil:
		return rules.Rule{}, false, err
	case present.ID == 0 && (at == rules.AnyVersion || at == rules.NoneStored):
		stored, err = s.store(ctx).CreateRule(ctx, rule)
		if errors.Is(err, rules.ErrExists) {
			err = rules.ErrChanged
		}
		return stored, true, err
	case present.ID == 0, at == rules.NoneStored, at > 0 && !holds(at, present.Version):
		return rules.Rule{}, false, rules.ErrChanged
	}
	rule.ID, rule.Version, rule.CandidateFor = present.ID, present.Version, present.CandidateFor
	stored, err = s.store(ctx).UpdateRule(ctx, rule)
	return stored, false, err
}

func (s *surface) sameRule(ctx context.Context, rule *rules.Rule) (rules.Rule, error) {
	found, err := s.Stores.Rules(ctx, rule.TenantID,
		rules.RuleFilter{Pattern: rule.Pattern.String(), Plan: &rule.Plan, Name: &rule.Name}, 0, 1)
	if err != nil || len(found.Rules) == 0 {
		return rules.Rule{}, err
	}
	return found.Rules[0], nil
}

func (s *surface) GetRule(ctx context.Context, request openapi.GetRuleRequestObject) (openapi.GetRuleResponseObject,
	error,
) {
	rule, err := s.Stores.Rule(ctx, requestOf(ctx).tenant.ID, rules.RuleID(request.RuleId))
	if err != nil {
		return nil, err
	}
	answer := answerRule(&rule)
	if answer.Body.NoDescriptor, err = s.isUnmet(ctx, &rule); err != nil {
		return nil, err
	}
	return openapi.GetRule200JSONResponse{TheRuleJSONResponse: answer}, nil
}

func (s *surface) isUnmet(ctx context.Context, rule *rules.Rule) (bool, error) {
	namesDescriptor := func(s rules.Segment) bool {
		return s.Attribute == gateway.DescriptorAttribute && !s.Placeholder
	}
	if !rule.Active || !slices.ContainsFunc(rule.Pattern.Segments(), namesDescriptor) {
		return false, nil
	}
	stored, err := s.storedMapping(ctx, rules.GatewayDescriptors)
	if err != nil {
		return false, err
	}
	mapping, err := gateway.ParseDescriptors(stored.Document)
	if err != nil {
		return false, nil //nolint:nilerr // a newer version wrote it
	}
	return !mapping.Compile().CanMeet(requestOf(ctx).tenant.Slug, rule.Pattern), nil
}

func (s *surface) UpdateRule(ctx context.Context,
	request openapi.UpdateRuleRequestObject,
) (openapi.UpdateRuleResponseObject, error) {
	id := rules.RuleID(request.RuleId)
	rule, err := patched(requestOf(ctx).ifMatch, func() (rules.Rule, error) {
		return s.updateRule(ctx, id, request.Body)
	})
	if err != nil {
		return nil, lost(ctx, err, s.ruleVersion(ctx, id))
	}
	return openapi.UpdateRule200JSONResponse{TheRuleJSONResponse: answerRule(&rule)}, nil
}

func (s *surface) updateRule(ctx context.Context, id rules.RuleID, given *openapi.RulePatch) (rules.Rule, error) {
	rule, err := s.Stores.Rule(ctx, requestOf(ctx).tenant.ID, id)
	if err != nil {
		return rules.Rule{}, err
	}
	if !holds(requestOf(ctx).ifMatch, rule.Version) {
		return rules.Rule{}, rules.ErrChanged
	}
	wrong, err := s.wrongRule(ctx, &rule, rule.Patch(*given))
	if err != nil {
		return rules.Rule{}, err
	}
	if len(wrong) > 0 {
		return rules.Rule{}, wrong
	}
	return s.store(ctx).UpdateRule(ctx, rule)
}

func (s *surface) ruleVersion(ctx context.Context, id rules.RuleID) func() (int64, error) {
	return func() (int64, error) {
		rule, err := s.Stores.Rule(ctx, requestOf(ctx).tenant.ID, id)
		return rule.Version, err
	}
}

func (s *surface) DeleteRule(ctx context.Context,
	request openapi.DeleteRuleRequestObject,
) (openapi.DeleteRuleResponseObject, error) {
	id := rules.RuleID(request.RuleId)
	err := s.store(ctx).RemoveRule(ctx, requestOf(ctx).tenant.ID, id, requestOf(ctx).ifMatch)
	return openapi.DeleteRule204Response{}, lost(ctx, err, s.ruleVersion(ctx, id))
}

func (s *surface) PromoteRule(ctx context.Context,
	request openapi.PromoteRuleRequestObject,
) (openapi.PromoteRuleResponseObject, error) {
	tenant, at, id := requestOf(ctx).tenant.ID, requestOf(ctx).ifMatch, rules.RuleID(request.RuleId)
	candidate, err := s.Stores.Rule(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	if candidate.Mode != rules.ModeShadow {
		return nil, httpapi.Conflict.Problem("Only a shadow rule can be promoted; this one is enforced.")
	}
	into, intoVersion := rules.RuleID(orZero(request.Body.IntoRuleId)), rules.AnyVersion
	if into != 0 {
		if request.Body.IntoVersion == nil {
			return nil, wrongBody("/into_version", "is missing; send the version of the live rule that you have read")
		}
		intoVersion = rules.Expected(*request.Body.IntoVersion)
		live, err := s.Stores.Rule(ctx, tenant, into)
		if errors.Is(err, rules.ErrNotFound) || err == nil && !isBeside(&live, &candidate) {
			return nil, wrongBody("/into_rule_id", "must be another rule with the pattern and plan of this one")
		}
		if err != nil {
			return nil, err
		}
	}
	rule, err := s.acting(ctx, "promote").PromoteRule(ctx, tenant, id, at, into, intoVersion)
	if err != nil {
		return nil, s.lostPromotion(ctx, err, id, at)
	}
	return openapi.PromoteRule200JSONResponse{TheRuleJSONResponse: answerRule(&rule)}, nil
}

// lostPromotion answers a lost race: if the candidate has the expected version, the live rule has not.
func (s *surface) lostPromotion(ctx context.Context, err error, id rules.RuleID, at rules.Expected) error {
	if errors.Is(err, rules.ErrChanged) {
		candidate, readErr := s.Stores.Rule(ctx, requestOf(ctx).tenant.ID, id)
		if readErr == nil && holds(at, candidate.Version) {
			return httpapi.Changed.Problem(readAgain, httpapi.FieldError{
				Pointer: "/into_version", Detail: "is no longer the live rule's version: somebody else changed it",
			})
		}
	}
	return lost(ctx, err, s.ruleVersion(ctx, id))
}

func isBeside(live, candidate *rules.Rule) bool {
	a, b := live.Identity(), candidate.Identity()
	return live.ID != candidate.ID && a.Pattern == b.Pattern && a.Plan == b.Plan
}
