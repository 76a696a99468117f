package adminapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
	defaultSpan = 24 * time.Hour
	maxSpan     = 400 * 24 * time.Hour
	maxPoints   = 2000

	defaultTop = 10
	// maxRulesOnTop is how many rules are looked through for those of one mode.
	maxRulesOnTop = 500
	// maxShadowRules is how many a summary has.
	maxShadowRules = 50
	// byTheHour is the time from which on rules are compared by the hour, because every rule of a
	// tenant takes a row for each step.
	byTheHour = 3 * time.Hour
)

// span is the time that stats are of.
func (s *surface) span(from, until *time.Time) (since, end time.Time, err error) {
	end = or(until, s.Now()).UTC()
	since = or(from, end.Add(-defaultSpan)).UTC()
	switch {
	case !since.Before(end):
		return since, end, wrongQuery("from", "must be before until")
	case end.Sub(since) > maxSpan:
		return since, end, wrongQuery("from", "must be at most 400 days before until")
	}
	return since, end, nil
}

func showVerdicts(v *violations.Verdicts) openapi.Verdicts {
	return openapi.Verdicts{
		Allowed: v.Allowed, Denied: v.Denied, Bypassed: v.Bypassed, Degraded: v.Degraded,
		Cost: float64(v.Taken) + v.TakenParts.Float(),
	}
}

// GetSeries handles GET …/stats/series.
func (s *surface) GetSeries(ctx context.Context, request openapi.GetSeriesRequestObject) (openapi.GetSeriesResponseObject, error) {
	p := request.Params
	since, until, err := s.span(p.From, p.Until)
	if err != nil {
		return nil, err
	}
	steps := violations.StepsFor(since, until)
	if p.StepSeconds != nil {
		steps = violations.StepsOf(since, until, time.Duration(*p.StepSeconds)*time.Second)
	}
	if steps.Count() > maxPoints {
		return nil, wrongQuery("step_seconds", "makes more than 2000 points; take a longer one or a shorter time")
	}
	chart, err := violations.TrafficBy(ctx, s.Violations, visitOf(ctx).tenant.ID, rules.RuleID(valueOf(p.RuleId)), steps)
	if err != nil {
		return nil, err
	}
	return openapi.GetSeries200JSONResponse{
		From: chart.Since, Until: chart.Until, StepSeconds: int(chart.Step / time.Second),
		Points: itemsOf(chart.Points, showPoint), Total: showVerdicts(&chart.Total),
	}, nil
}

func showPoint(p *violations.Point) openapi.Point {
	v := showVerdicts(&p.Verdicts)
	return openapi.Point{
		At: p.At.UTC(), Allowed: v.Allowed, Denied: v.Denied, Bypassed: v.Bypassed, Degraded: v.Degraded, Cost: v.Cost,
	}
}

// GetViolationSeries handles GET …/stats/violations.
func (s *surface) GetViolationSeries(
	ctx context.Context, request openapi.GetViolationSeriesRequestObject,
) (openapi.GetViolationSeriesResponseObject, error) {
	v := visitOf(ctx)
	since, until, err := s.span(request.Params.From, request.Params.Until)
	if err != nil {
		return nil, err
	}
	filter, err := violationFilter(v.r.URL.Query(), s.Now())
	if err != nil {
		return nil, err
	}
	steps := violations.FineSteps(since, until)
	found, err := s.Violations.ViolationsInSteps(ctx, v.tenant.ID, &filter, steps)
	if err != nil {
		return nil, err
	}
	answer := openapi.GetViolationSeries200JSONResponse{
		From: steps.Since, Until: steps.Until, StepSeconds: int(steps.Step / time.Second),
		Points: make([]openapi.ViolationPoint, steps.Count()), LookedBackTo: timeOrNull(never),
	}
	for i := range answer.Points {
		answer.Points[i].At = steps.Since.Add(time.Duration(i) * steps.Step)
	}
	for _, count := range found.Counts {
		answer.Total += count.Checks
		if i := int(count.At.Sub(steps.Since) / steps.Step); i >= 0 && i < len(answer.Points) {
			answer.Points[i].Checks = count.Checks
		}
	}
	if found.LookedAt >= violations.MaxTopRows {
		answer.LookedBackTo = timeOrNull(found.LookedBackTo)
	}
	return answer, nil
}

// GetTop handles GET …/stats/top.
func (s *surface) GetTop(ctx context.Context, request openapi.GetTopRequestObject) (openapi.GetTopResponseObject, error) {
	p := request.Params
	since, until, err := s.span(p.From, p.Until)
	if err != nil {
		return nil, err
	}
	answer := openapi.GetTop200JSONResponse{By: p.By, From: since, Until: until, LookedBackTo: timeOrNull(never)}
	mode, limit := rules.Mode(valueOf(p.Mode)), or(p.Limit, defaultTop)
	if p.By == openapi.TopByRule {
		if p.RuleId != nil {
			return nil, wrongQuery("rule_id", "does not go with by=rule")
		}
		answer.Items, err = s.topRules(ctx, since, until, mode, limit)
		return answer, err
	}
	top, err := s.Violations.Top(ctx, visitOf(ctx).tenant.ID, violations.TopOf{
		Dimension: violations.Dimension(p.By), Since: since, Until: until,
		Rule: rules.RuleID(valueOf(p.RuleId)), Mode: mode,
	}, limit)
	if err != nil {
		return nil, err
	}
	answer.Items = itemsOf(top.Values, func(v *violations.TopValue) openapi.TopItem {
		return openapi.TopItem{
			Value: v.Value, Denied: v.Violations, LastAt: timeOrNull(v.LastAt),
			Checks: nullable.NewNullNullable[int64](), Rule: nullable.NewNullNullable[openapi.RuleName](),
		}
	})
	if top.LookedAt >= violations.MaxTopRows {
		answer.LookedBackTo = timeOrNull(top.LookedBackTo)
	}
	return answer, nil
}

// topRules are those that denied most. One of a mode is one that has it now.
func (s *surface) topRules(ctx context.Context, since, until time.Time, mode rules.Mode, limit int) ([]openapi.TopItem, error) {
	tenant := visitOf(ctx).tenant.ID
	steps, looked := violations.StepsOf(since, until, time.Minute), limit
	if until.Sub(since) > byTheHour {
		steps = violations.StepsOf(since, until, time.Hour)
	}
	if mode != "" {
		looked = maxRulesOnTop
	}
	top, err := s.Violations.TopRules(ctx, tenant, steps, looked)
	if err != nil {
		return nil, err
	}
	items := []openapi.TopItem{}
	for i := range top {
		rule, err := s.Stores.Rule(ctx, tenant, top[i].Rule)
		isThere := err == nil
		if err != nil && !errors.Is(err, rules.ErrNotFound) {
			return nil, fmt.Errorf("name the rules that denied most: %w", err)
		}
		if mode != "" && (!isThere || rule.Mode != mode) {
			continue
		}
		item := openapi.TopItem{
			Value: formatInt(int64(top[i].Rule)), Denied: top[i].Denied, Checks: nullable.NewNullableWithValue(top[i].Checks()),
			LastAt: timeOrNull(never), Rule: nullable.NewNullNullable[openapi.RuleName](),
		}
		if isThere {
			item.Rule.Set(nameRule(&rule))
		}
		if items = append(items, item); len(items) == limit {
			break
		}
	}
	return items, nil
}

func nameRule(r *rules.Rule) openapi.RuleName {
	return openapi.RuleName{
		RuleId: int64(r.ID), KeyPattern: r.Pattern.String(), Name: r.Name, Plan: orNull(r.Plan),
		Scope: openapi.Scope(r.Scope()), Mode: openapi.Mode(r.Mode),
	}
}

// GetSummary handles GET …/stats/summary.
func (s *surface) GetSummary(ctx context.Context, request openapi.GetSummaryRequestObject) (openapi.GetSummaryResponseObject, error) {
	since, until, err := s.span(request.Params.From, request.Params.Until)
	if err != nil {
		return nil, err
	}
	tenant := visitOf(ctx).tenant.ID
	total, err := violations.Total(ctx, s.Violations, tenant, 0, since, until)
	if err != nil {
		return nil, err
	}
	before, err := violations.Total(ctx, s.Violations, tenant, 0, since.Add(since.Sub(until)), since)
	if err != nil {
		return nil, err
	}
	shadows, err := s.shadowRules(ctx, since, until)
	if err != nil {
		return nil, err
	}
	return openapi.GetSummary200JSONResponse{
		From: since, Until: until, Total: showVerdicts(&total), ShareDenied: shareDenied(&total),
		Before: showVerdicts(&before), ShareDeniedBefore: shareDenied(&before), ShadowRules: shadows,
	}, nil
}

func shareDenied(v *violations.Verdicts) nullable.Nullable[float64] {
	if v.Checks() == 0 {
		return nullable.NewNullNullable[float64]()
	}
	return nullable.NewNullableWithValue(v.ShareDenied())
}

// shadowRules says what the active shadow rules would have done.
func (s *surface) shadowRules(ctx context.Context, since, until time.Time) ([]openapi.ShadowRule, error) {
	tenant, isActive := visitOf(ctx).tenant.ID, true
	found, err := s.Stores.Rules(ctx, tenant, rules.RuleFilter{Mode: rules.ModeShadow, Active: &isActive}, 0, maxShadowRules)
	if err != nil {
		return nil, fmt.Errorf("list shadow rules: %w", err)
	}
	shadows := []openapi.ShadowRule{}
	for i := range found.Rules {
		rule := &found.Rules[i]
		total, err := violations.Total(ctx, s.Violations, tenant, rule.ID, since, until)
		if err != nil {
			return nil, err
		}
		shadows = append(shadows, openapi.ShadowRule{Rule: nameRule(rule), Checks: total.Checks(), Denied: total.Denied})
	}
	slices.SortStableFunc(shadows, func(a, b openapi.ShadowRule) int { return cmp.Compare(b.Denied, a.Denied) })
	return shadows, nil
}
