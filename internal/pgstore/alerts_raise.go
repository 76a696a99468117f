package pgstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
	// alertRows caps the counts that judging all of a tenant's alerts looks at, and those of a preview. Each alert may
	// look at an equal part. In an attack of more subjects the sums are of the newest counts, which are lower bounds.
	alertRows = 200_000
	// fewestAlertRows is for tenants with so many alerts that their parts would be smaller.
	fewestAlertRows = 5_000
	// alertLock is an advisory lock: one process at a time raises alerts.
	alertLock = 0x736c75696365_02
)

// ActiveAlerts returns the active alerts of all tenants, by tenant.
func (s *Store) ActiveAlerts(ctx context.Context) ([]violations.ActiveAlert, error) {
	rows, err := askFor(ctx, s, classBackground, everyTenant,
		func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.ActiveAlertsRow, error) {
			return q.ActiveAlerts(ctx)
		})
	if err != nil {
		return nil, fmt.Errorf("read the active alerts: %w", err)
	}
	return each(rows, func(row dbsqlc.ActiveAlertsRow) violations.ActiveAlert {
		alert := violations.ActiveAlert{
			Alert: violations.Alert{
				ID: row.AlertID, Tenant: row.TenantID, Kind: violations.AlertKind(row.Kind), PerSubject: row.PerSubject,
				Threshold: row.Threshold, Window: time.Duration(row.WindowMinutes) * time.Minute, Active: true,
				Version: row.Version, Silence: violations.Silence{Until: orZero(row.SilencedUntil)},
			},
			OfTenant: int(row.OfTenant),
		}
		if row.RuleID != nil {
			alert.Rule = *row.RuleID
		}
		return alert
	}), nil
}

// RaiseAlerts judges alerts by two statements.
func (s *Store) RaiseAlerts(ctx context.Context, alerts []violations.ActiveAlert, now time.Time) (raised int64,
	err error,
) {
	err = s.transaction(ctx, classBackground, everyTenant, func(ctx context.Context, queries *dbsqlc.Queries) error {
		if err := queries.LockAlerts(ctx, alertLock); err != nil {
			return err
		}
		counted, err := countForAlerts(ctx, queries, alerts,
			func(a *violations.Alert) time.Time { return a.RaisedBefore(now) }, now)
		if err != nil {
			return err
		}
		deliveries := dbsqlc.RaiseDeliveriesParams{
			Now: now, MostOfAlert: violations.MaxPendingDeliveries, MostOfTenant: violations.MaxPendingOfTenant,
		}
		for i := range alerts {
			alert := &alerts[i].Alert
			for _, firing := range alert.Firings(counted[i].counts, now) {
				deliveries.TenantIds = append(deliveries.TenantIds, int64(alert.Tenant))
				deliveries.AlertIds = append(deliveries.AlertIds, alert.ID)
				deliveries.Versions = append(deliveries.Versions, alert.Version)
				deliveries.RuleIds = append(deliveries.RuleIds, int64(firing.Rule))
				deliveries.Subjects = append(deliveries.Subjects, firing.Subject)
				deliveries.Counts = append(deliveries.Counts, firing.Denied)
				deliveries.Sinces = append(deliveries.Sinces, firing.Since)
				deliveries.RaisedBefore = append(deliveries.RaisedBefore, alert.RaisedBefore(now))
				deliveries.Silenced = append(deliveries.Silenced, alert.Silence.Holds(now))
			}
		}
		if len(deliveries.AlertIds) > 0 {
			raised, err = queries.RaiseDeliveries(ctx, deliveries)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("raise %d alerts: %w", len(alerts), domainError(err))
	}
	return raised, nil
}

// AlertCounts reads what an alert would have counted.
func (s *Store) AlertCounts(
	ctx context.Context, alert *violations.Alert, since, until time.Time,
) (counts []violations.MinuteCount, lookedBackTo time.Time, err error) {
	counted, err := ask(ctx, s, only(alert.Tenant),
		func(ctx context.Context, q *dbsqlc.Queries) ([]countedForAlert, error) {
			return countForAlerts(ctx, q, []violations.ActiveAlert{{Alert: *alert, OfTenant: 1}},
				func(*violations.Alert) time.Time { return since }, until)
		})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("count for an alert: %w", err)
	}
	return counted[0].counts, counted[0].lookedBackTo, nil
}

// CountedSince reads the first minute after a time in which a rule met a check.
func (s *Store) CountedSince(ctx context.Context, tenant rules.TenantID, rule rules.RuleID, since time.Time) (time.Time,
	error,
) {
	minute, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) (time.Time, error) {
		return q.CountedSince(ctx, tenant, rule, since)
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("read since when checks are counted: %w", err)
	}
	if minute.Unix() == 0 { // none
		return time.Time{}, nil
	}
	return minute.UTC(), nil
}

type countedForAlert struct {
	counts       []violations.MinuteCount
	lookedBackTo time.Time
}

// countForAlerts reads the counts of several alerts by one statement. Fails if they are more than one tenant's can be.
func countForAlerts(
	ctx context.Context, queries *dbsqlc.Queries, alerts []violations.ActiveAlert,
	since func(*violations.Alert) time.Time, until time.Time,
) ([]countedForAlert, error) {
	const mostRows = alertRows + 50_000
	wanted := dbsqlc.AlertCountsParams{Until: until, MostRows: mostRows + 1}
	for i := range alerts {
		alert := &alerts[i].Alert
		wanted.Places = append(wanted.Places, int32(i))
		wanted.TenantIds = append(wanted.TenantIds, int64(alert.Tenant))
		wanted.Kinds = append(wanted.Kinds, string(alert.Kind))
		wanted.AtMosts = append(wanted.AtMosts, int64(max(fewestAlertRows, alertRows/alerts[i].OfTenant)))
		wanted.RuleIds = append(wanted.RuleIds, int64(alert.Rule))
		wanted.PerSubjects = append(wanted.PerSubjects, alert.PerSubject)
		wanted.Leasts = append(wanted.Leasts, alert.Least())
		wanted.Sinces = append(wanted.Sinces, since(alert))
	}
	wanted.Oldest = slices.MinFunc(wanted.Sinces, time.Time.Compare)
	rows, err := queries.AlertCounts(ctx, wanted)
	if err != nil {
		return nil, err
	}
	if len(rows) > mostRows {
		return nil, fmt.Errorf("%d alerts have more than %d counts together", len(alerts), mostRows)
	}
	counted := make([]countedForAlert, len(alerts))
	for i := range counted {
		counted[i].lookedBackTo = wanted.Sinces[i]
	}
	for _, row := range rows {
		of := &counted[row.Place]
		if row.LookedAt >= wanted.AtMosts[row.Place] {
			of.lookedBackTo = row.LookedBackTo.UTC()
		}
		if row.Counts {
			of.counts = append(of.counts, violations.MinuteCount{
				Rule: rules.RuleID(row.RuleID), Subject: row.Subject, Minute: row.Minute.UTC(), Count: row.Counted,
				Checks: row.Checks,
			})
		}
	}
	return counted, nil
}
