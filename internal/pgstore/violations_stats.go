package pgstore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// Decisions reads hours where the steps are whole hours, and minutes where they are shorter.
func (s *Store) Decisions(ctx context.Context, tenant rules.TenantID, rule rules.RuleID, steps violations.Steps) ([]violations.Point, error) {
	p := dbsqlc.DecisionsByMinuteParams{
		TenantID: tenant, RuleID: rule, Since: steps.Since, Until: steps.Until, StepSeconds: steps.Step.Seconds(),
	}
	rows, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.DecisionsByMinuteRow, error) {
		if steps.Step < time.Hour {
			return q.DecisionsByMinute(ctx, p)
		}
		hours, err := q.DecisionsByHour(ctx, dbsqlc.DecisionsByHourParams(p))
		return each(hours, func(h dbsqlc.DecisionsByHourRow) dbsqlc.DecisionsByMinuteRow { return dbsqlc.DecisionsByMinuteRow(h) }), err
	})
	if err != nil {
		return nil, fmt.Errorf("read how checks were decided: %w", err)
	}
	return each(rows, func(row dbsqlc.DecisionsByMinuteRow) violations.Point {
		return violations.Point{
			At: row.At.UTC(), Verdicts: verdicts(row.Allowed, row.Denied, row.Bypassed, row.Degraded, row.CostTaken),
		}
	}), nil
}

// TopRules reads hours or minutes like Decisions.
func (s *Store) TopRules(ctx context.Context, tenant rules.TenantID, steps violations.Steps, limit int) ([]violations.RuleVerdicts, error) {
	p := dbsqlc.RulesByDenialsInMinutesParams{TenantID: tenant, Since: steps.Since, Until: steps.Until, PageSize: rowLimit(limit)}
	rows, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.RulesByDenialsInMinutesRow, error) {
		if steps.Step < time.Hour {
			return q.RulesByDenialsInMinutes(ctx, p)
		}
		hours, err := q.RulesByDenialsInHours(ctx, dbsqlc.RulesByDenialsInHoursParams(p))
		return each(hours, func(h dbsqlc.RulesByDenialsInHoursRow) dbsqlc.RulesByDenialsInMinutesRow {
			return dbsqlc.RulesByDenialsInMinutesRow(h)
		}), err
	})
	if err != nil {
		return nil, fmt.Errorf("read which rules denied most: %w", err)
	}
	return each(rows, func(row dbsqlc.RulesByDenialsInMinutesRow) violations.RuleVerdicts {
		return violations.RuleVerdicts{
			Rule: row.RuleID, Verdicts: verdicts(row.Allowed, row.Denied, row.Bypassed, row.Degraded, row.CostTaken),
		}
	}), nil
}

func verdicts(allowed, denied, bypassed, degraded int64, taken float64) violations.Verdicts {
	whole := math.Floor(taken)
	return violations.Verdicts{
		Allowed: allowed, Denied: denied, Bypassed: bypassed, Degraded: degraded,
		Taken: int64(whole), TakenParts: tokens(taken - whole),
	}
}

// TopSubjects reads one row for each subject and minute.
func (s *Store) TopSubjects(
	ctx context.Context, tenant rules.TenantID, rule rules.RuleID, since, until time.Time, limit int,
) ([]violations.SubjectCount, error) {
	rows, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.SubjectsByDenialsRow, error) {
		return q.SubjectsByDenials(ctx, dbsqlc.SubjectsByDenialsParams{
			TenantID: tenant, RuleID: rule, Since: since, Until: until, AtLeast: 1, PageSize: rowLimit(limit),
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read whom rule %d denied most: %w", rule, err)
	}
	return each(rows, func(row dbsqlc.SubjectsByDenialsRow) violations.SubjectCount {
		return violations.SubjectCount{Subject: row.Subject, Other: row.Other, Denied: row.Denied}
	}), nil
}

// Top reads the newest violations.MaxTopRows rows.
func (s *Store) Top(ctx context.Context, tenant rules.TenantID, of violations.TopOf, limit int) (top violations.Top, err error) {
	rows, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.TopOfViolationsRow, error) {
		return q.TopOfViolations(ctx, dbsqlc.TopOfViolationsParams{
			Dimension: string(of.Dimension), TenantID: tenant, Since: of.Since, Until: of.Until, RuleID: int64(of.Rule), Mode: string(of.Mode),
			AtMost: violations.MaxTopRows, PageSize: rowLimit(limit + 1), // those without a value may be among them
		})
	})
	if err != nil {
		return top, fmt.Errorf("read what violations share: %w", err)
	}
	for _, row := range rows {
		top.LookedAt, top.LookedBackTo = row.LookedAt, row.LookedBackTo.UTC()
		if row.Value != "" && len(top.Values) < limit {
			top.Values = append(top.Values, violations.TopValue{Value: row.Value, Violations: row.Violations, LastAt: row.LastAt.UTC()})
		}
	}
	return top, nil
}
