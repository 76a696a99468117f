package adminapi

import (
	"cmp"
	"context"
	"fmt"
	"math"
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
	// maxTop does not apply to rules, which are fewer, and all of them are in the matrix.
	maxTop         = 100
	maxRulesOnTop  = 500
	maxShadowRules = 50
	byTheHour      = 3 * time.Hour
	bySixHours     = 14 * 24 * time.Hour
)

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

func (s *surface) GetSeries(ctx context.Context,
	request openapi.GetSeriesRequestObject,
) (openapi.GetSeriesResponseObject, error) {
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
	rule := rules.RuleID(valueOf(p.RuleId))
	if p.Meter != nil {
		if rule != 0 {
			return nil, wrongQuery("meter", "does not go with rule_id")
		}
		rule = violations.RulesOf(*meterOf(p.Meter))
	}
	chart, err := violations.TrafficBy(ctx, s.Violations, requestOf(ctx).tenant.ID, rule, steps)
	if err != nil {
		return nil, err
	}
	return openapi.GetSeries200JSONResponse{
		From: chart.Since, Until: chart.Until, StepSeconds: int(chart.Step / time.Second),
		Points: itemsOf(chart.Points, showPoint), Total: showVerdicts(&chart.Total),
	}, nil
}

func meterOf(word *openapi.Meter) *rules.Meter {
	if word == nil {
		return nil
	}
	meter, _ := rules.ParseMeter(*word)
	return &meter
}

func showPoint(p *violations.Point) openapi.Point {
	v := showVerdicts(&p.Verdicts)
	return openapi.Point{
		At: p.At.UTC(), Allowed: v.Allowed, Denied: v.Denied, Bypassed: v.Bypassed, Degraded: v.Degraded, Cost: v.Cost,
	}
}

func (s *surface) GetViolationSeries(
	ctx context.Context, request openapi.GetViolationSeriesRequestObject,
) (openapi.GetViolationSeriesResponseObject, error) {
	q := requestOf(ctx)
	since, until, err := s.span(request.Params.From, request.Params.Until)
	if err != nil {
		return nil, err
	}
	filter, err := violationFilter(q.r.URL.Query(), s.Now())
	if err != nil {
		return nil, err
	}
	steps := violations.FineSteps(since, until)
	if _, _, ok := filter.Counted(); ok {
		steps = violations.StepsFor(since, until)
	}
	found, err := s.Violations.ViolationsInSteps(ctx, q.tenant.ID, &filter, steps)
	if err != nil {
		return nil, err
	}
	answer := openapi.GetViolationSeries200JSONResponse{
		From: steps.Since, Until: steps.Until, StepSeconds: int(steps.Step / time.Second), Exact: found.Exact,
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

func (s *surface) GetTop(ctx context.Context, request openapi.GetTopRequestObject) (openapi.GetTopResponseObject,
	error,
) {
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
		var lookedBackTo time.Time
		answer.Items, lookedBackTo, err = s.topRules(ctx, since, until, mode, valueOf(p.Meter), limit)
		answer.LookedBackTo = timeOrNull(lookedBackTo)
		return answer, err
	}
	if limit > maxTop {
		return nil, wrongQuery("limit", "must be at most 100, unless by is rule")
	}
	top, err := s.Violations.Top(ctx, requestOf(ctx).tenant.ID, violations.TopOf{
		Dimension: violations.Dimension(p.By), Since: since, Until: until,
		Rule: rules.RuleID(valueOf(p.RuleId)), Mode: mode, Meter: valueOf(p.Meter),
	}, limit)
	if err != nil {
		return nil, err
	}
	answer.Items = itemsOf(top.Values, func(v *violations.TopValue) openapi.TopItem {
		return openapi.TopItem{
			Value: v.Value, Denied: v.Denied, LastAt: timeOrNull(v.LastAt),
			Checks: nullable.NewNullNullable[int64](), Rule: nameOrNull(nil),
		}
	})
	answer.LookedBackTo, answer.Unattributed = timeOrNull(top.LookedBackTo), top.Unattributed
	return answer, nil
}

// topRules selects by a rule's last mode and by the word of its meter.
func (s *surface) topRules(
	ctx context.Context, since, until time.Time, mode rules.Mode, meter string, limit int,
) (items []openapi.TopItem, lookedBackTo time.Time, err error) {
	tenant := requestOf(ctx).tenant.ID
	looked := limit
	if mode != "" || meter != "" {
		looked = max(limit, maxRulesOnTop)
	}
	top, err := s.Violations.TopRules(ctx, tenant, topSteps(since, until), looked)
	if err != nil {
		return nil, never, err
	}
	named, err := rulesEver(ctx, s.Stores, tenant,
		itemsOf(top.Rules, func(v *violations.RuleVerdicts) rules.RuleID { return v.Rule }))
	if err != nil {
		return nil, never, err
	}
	items = []openapi.TopItem{}
	for i := range top.Rules {
		verdicts, rule := &top.Rules[i], named[top.Rules[i].Rule]
		if len(items) == limit || mode != "" && (rule == nil || rule.Mode != mode) ||
			meter != "" && (rule == nil || rule.Meter.Word() != meter) {
			continue
		}
		items = append(items, openapi.TopItem{
			Value: formatInt(verdicts.Rule), Denied: verdicts.Denied, LastAt: timeOrNull(never),
			Checks: nullable.NewNullableWithValue(verdicts.Checks()), Rule: nameOrNull(rule),
		})
	}
	return items, top.LookedBackTo, nil
}

func rulesEver(
	ctx context.Context, stores Stores, tenant rules.TenantID, ids []rules.RuleID,
) (map[rules.RuleID]*rules.Rule, error) {
	found, err := stores.RulesEver(ctx, tenant, ids)
	if err != nil {
		return nil, fmt.Errorf("name rules: %w", err)
	}
	named := make(map[rules.RuleID]*rules.Rule, len(found))
	for i := range found {
		named[found[i].ID] = &found[i]
	}
	return named, nil
}

func (s *surface) GetPresent(ctx context.Context,
	request openapi.GetPresentRequestObject,
) (openapi.GetPresentResponseObject, error) {
	tenant, by := requestOf(ctx).tenant.ID, request.Params.By
	since, until := violations.Present(s.Now())
	present, err := s.Violations.Present(ctx, tenant, violations.Dimension(by), valueOf(request.Params.Meter), since,
		until, or(request.Params.Limit, defaultTop))
	if err != nil {
		return nil, err
	}
	named, err := rulesEver(ctx, s.Stores, tenant,
		itemsOf(present.Values, func(v *violations.PresentValue) rules.RuleID { return v.Rule }))
	if err != nil {
		return nil, err
	}
	return openapi.GetPresent200JSONResponse{
		By: by, From: since, Until: until,
		PerMinute:             perMinute(present.Denied, violations.PresentTime),
		UnattributedPerMinute: perMinute(present.Unattributed, violations.PresentTime),
		Items: itemsOf(present.Values, func(v *violations.PresentValue) openapi.PresentItem {
			return openapi.PresentItem{
				Value: v.Value, PerMinute: perMinute(v.Denied, violations.PresentTime),
				PerMinuteBefore: perMinute(v.Earlier, violations.EarlierTime), Rule: nameOrNull(named[v.Rule]),
			}
		}),
	}, nil
}

func (s *surface) GetBusiest(ctx context.Context,
	request openapi.GetBusiestRequestObject,
) (openapi.GetBusiestResponseObject, error) {
	by := request.Params.By
	since, until := violations.BusyTime(s.Now())
	busiest, err := s.Violations.Busiest(ctx, requestOf(ctx).tenant.ID, violations.Dimension(by), since, until,
		or(request.Params.Limit, defaultTop))
	if err != nil {
		return nil, err
	}
	return openapi.GetBusiest200JSONResponse{
		By: by, From: since, Until: until,
		PerMinute:       perMinute(busiest.All.Checks, violations.PresentTime),
		PerMinuteBefore: perMinute(busiest.All.Before, violations.CallersBefore),
		Items: itemsOf(busiest.Callers, func(c *violations.Caller) openapi.BusiestItem {
			return openapi.BusiestItem{
				Value: c.Value, PerMinute: perMinute(c.Checks, violations.PresentTime),
				PerMinuteBefore: perMinute(c.Before, violations.CallersBefore),
			}
		}),
	}, nil
}

func perMinute(count int64, in time.Duration) int64 {
	return int64(math.Round(float64(count) * float64(time.Minute) / float64(in)))
}

// topSteps are longer for a longer time, because every rule has a row for each step.
func topSteps(since, until time.Time) violations.Steps {
	step := time.Minute
	switch length := until.Sub(since); {
	case length > bySixHours:
		step = 6 * time.Hour
	case length > byTheHour:
		step = time.Hour
	}
	return violations.StepsOf(since, until, step)
}

func nameOrNull(r *rules.Rule) nullable.Nullable[openapi.RuleName] {
	if r == nil {
		return nullable.NewNullNullable[openapi.RuleName]()
	}
	return nullable.NewNullableWithValue(nameRule(r))
}

func nameRule(r *rules.Rule) openapi.RuleName {
	return openapi.RuleName{
		RuleId: openapi.ID(r.ID), KeyPattern: r.Pattern.String(), Name: r.Name, Plan: orNull(r.Plan),
		Scope: openapi.Scope(r.Scope()), Mode: openapi.Mode(r.Mode), Removed: r.Removed,
		Meter: r.Meter.Word(),
	}
}

func (s *surface) GetSummary(ctx context.Context,
	request openapi.GetSummaryRequestObject,
) (openapi.GetSummaryResponseObject, error) {
	since, until, err := s.span(request.Params.From, request.Params.Until)
	if err != nil {
		return nil, err
	}
	tenant, isActive := requestOf(ctx).tenant.ID, true
	meter := meterOf(request.Params.Meter)
	shadows, err := s.Stores.Rules(ctx, tenant,
		rules.RuleFilter{Mode: rules.ModeShadow, Active: &isActive, Meter: meter}, 0, maxShadowRules)
	if err != nil {
		return nil, fmt.Errorf("list shadow rules: %w", err)
	}
	meters, err := s.Stores.Meters(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("list meters: %w", err)
	}
	of := []rules.RuleID{0, violations.ShadowRules} // 0: all checks
	if meter != nil {
		of[0] = violations.RulesOf(*meter)
	}
	for i := range shadows.Rules {
		of = append(of, shadows.Rules[i].ID)
	}
	totals, err := violations.Totals(ctx, s.Violations, tenant, of, since, until)
	if err != nil {
		return nil, err
	}
	totalsBefore, err := violations.Totals(ctx, s.Violations, tenant, of[:1], since.Add(since.Sub(until)), since)
	if err != nil {
		return nil, err
	}
	total, before, shadowDenied := totals[of[0]], totalsBefore[of[0]], totals[violations.ShadowRules].Denied
	if meter != nil {
		shadowDenied = 0
		for i := range shadows.Rules {
			shadowDenied += totals[shadows.Rules[i].ID].Denied
		}
	}
	return openapi.GetSummary200JSONResponse{
		From: since, Until: until, Total: showVerdicts(&total), ShareDenied: shareDenied(&total),
		Before: showVerdicts(&before), ShareDeniedBefore: shareDenied(&before),
		ShadowDenied: shadowDenied, ShadowRules: showShadows(shadows.Rules, totals),
		Meters: itemsOf(meters, func(m *rules.Meter) string { return m.Word() }),
	}, nil
}

func shareDenied(v *violations.Verdicts) nullable.Nullable[float64] {
	return orNullIf(v.Checks() > 0, v.ShareDenied())
}

func showShadows(found []rules.Rule, totals map[rules.RuleID]violations.Verdicts) []openapi.ShadowRule {
	shadows := itemsOf(found, func(rule *rules.Rule) openapi.ShadowRule {
		total := totals[rule.ID]
		return openapi.ShadowRule{Rule: nameRule(rule), Checks: total.Checks(), Denied: total.Denied}
	})
	slices.SortStableFunc(shadows, func(a, b openapi.ShadowRule) int { return cmp.Compare(b.Denied, a.Denied) })
	return shadows
}
