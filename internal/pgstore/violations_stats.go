package pgstore

import (
	"context"
	"math"
	"time"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// spans are the lengths, in minutes, of the sums that are kept beside minutes.
var spans = []int32{60, 6 * 60, 24 * 60}

func spanOf(step time.Duration) (minutes int32) {
	for _, span := range spans {
		if step%(time.Duration(span)*time.Minute) == 0 {
			minutes = span
		}
	}
	return minutes
}

// Decisions reads minutes, or the longest spans that fit the steps.
func (s *Store) Decisions(ctx context.Context, tenant rules.TenantID, rule rules.RuleID,
	steps violations.Steps,
) ([]violations.Point, error) {
	q := s.queriesFor(classHeavy, only(tenant))
	var rows []dbsqlc.DecisionsBySpanRow
	var err error
	if span := spanOf(steps.Step); span > 0 {
		rows, err = q.DecisionsBySpan(ctx, dbsqlc.DecisionsBySpanParams{
			TenantID: tenant, RuleID: rule, SpanMinutes: span, Since: steps.Since, Until: steps.Until,
			StepSeconds: steps.Step.Seconds(),
		})
	} else {
		var minutes []dbsqlc.DecisionsByMinuteRow
		minutes, err = q.DecisionsByMinute(ctx, dbsqlc.DecisionsByMinuteParams{
			TenantID: tenant, RuleID: rule, Since: steps.Since, Until: steps.Until, StepSeconds: steps.Step.Seconds(),
		})
		rows = each(minutes,
			func(m dbsqlc.DecisionsByMinuteRow) dbsqlc.DecisionsBySpanRow { return dbsqlc.DecisionsBySpanRow(m) })
	}
	return each(rows, func(row dbsqlc.DecisionsBySpanRow) violations.Point {
		return violations.Point{
			At: row.At.UTC(), Verdicts: verdicts(row.Allowed, row.Denied, row.Bypassed, row.Degraded, row.CostTaken),
		}
	}), wrap(err, "read how checks were decided")
}

// Totals reads the longest spans within the time, and shorter ones or minutes at its ends.
func (s *Store) Totals(
	ctx context.Context, tenant rules.TenantID, of []rules.RuleID, steps violations.Steps,
) (totals map[rules.RuleID]violations.Verdicts, err error) {
	q := s.queriesFor(classHeavy, only(tenant))
	params := dbsqlc.TotalsByHourParams{
		TenantID: tenant, RuleIds: ruleNumbers(of), Since: steps.Since, Until: steps.Until,
	}
	var rows []dbsqlc.TotalsByHourRow
	if steps.Step < time.Hour {
		params.InnerSince, params.InnerUntil = steps.Within(time.Hour)
		rows, err = q.TotalsByHour(ctx, params)
	} else {
		params.InnerSince, params.InnerUntil = steps.Within(24 * time.Hour)
		var days []dbsqlc.TotalsByDayRow
		days, err = q.TotalsByDay(ctx, dbsqlc.TotalsByDayParams(params))
		rows = each(days, func(row dbsqlc.TotalsByDayRow) dbsqlc.TotalsByHourRow { return dbsqlc.TotalsByHourRow(row) })
	}
	if err != nil {
		return nil, wrap(err, "read what %d rules decided", len(of))
	}
	totals = make(map[rules.RuleID]violations.Verdicts, len(rows))
	for _, row := range rows {
		totals[row.RuleID] = verdicts(row.Allowed, row.Denied, row.Bypassed, row.Degraded, row.CostTaken)
	}
	return totals, nil
}

// TotalsOfDays reads sums of days.
func (s *Store) TotalsOfDays(ctx context.Context, tenant rules.TenantID, since,
	until time.Time,
) ([]violations.RuleVerdicts, error) {
	rows, err := s.queriesFor(classHeavy, only(tenant)).TotalsByRule(ctx, tenant, since, until)
	return each(rows, func(row dbsqlc.TotalsByRuleRow) violations.RuleVerdicts {
		return violations.RuleVerdicts{
			Rule:     row.RuleID,
			Verdicts: verdicts(row.Allowed, row.Denied, row.Bypassed, row.Degraded, row.CostTaken),
		}
	}), wrap(err, "read what all rules decided")
}

// TopRules reads minutes or spans like Decisions.
func (s *Store) TopRules(ctx context.Context, tenant rules.TenantID, steps violations.Steps,
	limit int,
) (top violations.RuleTop, err error) {
	q := s.queriesFor(classHeavy, only(tenant))
	var rows []dbsqlc.RulesByDenialsInSpansRow
	if span := spanOf(steps.Step); span > 0 {
		rows, err = q.RulesByDenialsInSpans(ctx, dbsqlc.RulesByDenialsInSpansParams{
			TenantID: tenant, SpanMinutes: span, Since: steps.Since, Until: steps.Until, AtMost: s.topRows,
			PageSize: rowLimit(limit),
		})
	} else {
		var minutes []dbsqlc.RulesByDenialsInMinutesRow
		minutes, err = q.RulesByDenialsInMinutes(ctx, dbsqlc.RulesByDenialsInMinutesParams{
			TenantID: tenant, Since: steps.Since, Until: steps.Until, AtMost: s.topRows, PageSize: rowLimit(limit),
		})
		rows = each(minutes, func(m dbsqlc.RulesByDenialsInMinutesRow) dbsqlc.RulesByDenialsInSpansRow {
			return dbsqlc.RulesByDenialsInSpansRow(m)
		})
	}
	if err != nil {
		return top, wrap(err, "read which rules denied most")
	}
	for _, row := range rows {
		if row.LookedAt >= int64(s.topRows) {
			top.LookedBackTo = row.LookedBackTo.UTC()
		}
		top.Rules = append(top.Rules, violations.RuleVerdicts{
			Rule: row.RuleID, Verdicts: verdicts(row.Allowed, row.Denied, row.Bypassed, row.Degraded, row.CostTaken),
		})
	}
	return top, nil
}

func verdicts(allowed, denied, bypassed, degraded int64, taken float64) violations.Verdicts {
	whole := math.Floor(taken)
	return violations.Verdicts{
		Allowed: allowed, Denied: denied, Bypassed: bypassed, Degraded: degraded,
		Taken: int64(whole), TakenParts: tokens(taken - whole),
	}
}

// ViolationsInSteps reads at most violations.MaxTopRows, the newest: counts or, if the filter is not Counted, rows by
// the index that Violations would use.
func (s *Store) ViolationsInSteps(
	ctx context.Context, tenant rules.TenantID, f *violations.Filter, steps violations.Steps,
) (counts violations.StepCounts, err error) {
	if by, value, ok := f.Counted(); ok && steps.Step >= time.Minute {
		return s.denialsInSteps(ctx, tenant, by, value, f, steps)
	}
	params := dbsqlc.ViolationsInStepsParams{
		TenantID: tenant, Since: steps.Since, Until: steps.Until, StepSeconds: steps.Step.Seconds(), AtMost: s.topRows,
		RuleID: int64(f.Rule), Scope: string(f.Scope), Mode: string(f.Mode), Meter: f.Meter,
		Plan:   f.Plan,
		UserID: f.UserID, Network: networkText(f.IP), Endpoint: f.Endpoint, EndpointPrefix: f.EndpointPrefix,
	}
	params.ByUser, params.ByAddress, params.ByEndpoint, params.ByRule = indexOf(f)
	rows, err := s.queriesFor(classHeavy, only(tenant)).ViolationsInSteps(ctx, params)
	if err != nil {
		return counts, wrap(err, "count violations over time")
	}
	for _, row := range rows {
		counts.LookedAt, counts.LookedBackTo = row.LookedAt, row.LookedBackTo.UTC()
		counts.Counts = append(counts.Counts, violations.StepCount{At: row.At.UTC(), Checks: row.Checks})
	}
	return counts, nil
}

func (s *Store) denialsInSteps(
	ctx context.Context, tenant rules.TenantID, by violations.Dimension, value string, f *violations.Filter,
	steps violations.Steps,
) (counts violations.StepCounts, err error) {
	rows, err := s.queriesFor(classHeavy, only(tenant)).DenialsInSteps(ctx, dbsqlc.DenialsInStepsParams{
		TenantID: tenant, Dimension: string(by), OfAll: value == "", Value: value, RuleID: int64(f.Rule),
		Mode: string(f.Mode), Meter: f.Meter, Since: steps.Since, Until: steps.Until,
		StepSeconds: steps.Step.Seconds(), AtMost: s.topRows,
	})
	if err != nil {
		return counts, wrap(err, "count denials over time")
	}
	counts.Exact = true
	for _, row := range rows {
		counts.LookedAt, counts.LookedBackTo = row.LookedAt, row.LookedBackTo.UTC()
		counts.Exact = counts.Exact && row.Unattributed == 0
		counts.Counts = append(counts.Counts, violations.StepCount{At: row.At.UTC(), Checks: row.Checks})
	}
	return counts, nil
}

// Top reads the newest violations.MaxTopRows counts.
func (s *Store) Top(ctx context.Context, tenant rules.TenantID, of violations.TopOf, limit int) (top violations.Top,
	err error,
) {
	minutes := violations.StepsOf(of.Since, of.Until, time.Minute)
	rows, err := s.queriesFor(classHeavy, only(tenant)).TopOfDenials(ctx, dbsqlc.TopOfDenialsParams{
		Dimension: string(of.Dimension), TenantID: tenant, Since: minutes.Since, Until: minutes.Until,
		RuleID: int64(of.Rule), Mode: string(of.Mode), Meter: of.Meter,
		AtMost: int64(s.topRows), PageSize: rowLimit(limit) + 1, // and the row without a value
	})
	if err != nil {
		return top, wrap(err, "read what violations share")
	}
	for _, row := range rows {
		if row.Value != "" {
			top.Values = append(top.Values,
				violations.TopValue{Value: row.Value, Denied: row.Denied, LastAt: row.LastAt.UTC()})
			continue
		}
		top.Unattributed = row.Unattributed
		if row.LookedBackTo.After(minutes.Since) {
			top.LookedBackTo = row.LookedBackTo.UTC()
		}
	}
	return top, nil
}

// Present reads the newest violations.MaxTopRows counts.
func (s *Store) Present(
	ctx context.Context, tenant rules.TenantID, by violations.Dimension, meter string, since, until time.Time,
	limit int,
) (present violations.PresentDenials, err error) {
	params := dbsqlc.PresentDenialsParams{
		TenantID: tenant, ByRule: by == violations.ByRule, Dimension: string(by), Meter: meter,
		Earlier: since.Add(-violations.EarlierTime), Since: since, Until: until,
		AtMost: int64(s.topRows), PageSize: rowLimit(limit) + 1, // and the row without a value
	}
	if params.ByRule {
		params.Dimension = string(violations.ByEndpoint) // each dimension has all denials
	}
	rows, err := s.queriesFor(classHeavy, only(tenant)).PresentDenials(ctx, params)
	if err != nil {
		return present, wrap(err, "read what is denied at present")
	}
	for _, row := range rows {
		if row.Value == "" {
			present.Denied, present.Unattributed = row.AllDenied, row.Unattributed
			continue
		}
		present.Values = append(present.Values, violations.PresentValue{
			Value: row.Value, Denied: row.Denied, Earlier: row.Earlier, Rule: rules.RuleID(row.RuleID),
		})
	}
	return present, nil
}

// Busiest returns who made the most checks, each with their checks of the hour before.
func (s *Store) Busiest(
	ctx context.Context, tenant rules.TenantID, by violations.Dimension, since, until time.Time, limit int,
) (busiest violations.Busiest, err error) {
	rows, err := s.queriesFor(classHeavy, only(tenant)).BusiestCallers(ctx, dbsqlc.BusiestCallersParams{
		TenantID: tenant, Dimension: string(by), Since: since, Until: until,
		Earlier: since.Add(-violations.CallersBefore), PageSize: rowLimit(limit) + 1, // and the row of all
	})
	if err != nil {
		return busiest, wrap(err, "read who makes most checks")
	}
	for _, row := range rows {
		caller := violations.Caller{Value: row.Value, Checks: row.Checks, Before: row.Earlier}
		if row.Value == "" {
			busiest.All = caller
			continue
		}
		busiest.Callers = append(busiest.Callers, caller)
	}
	return busiest, nil
}
