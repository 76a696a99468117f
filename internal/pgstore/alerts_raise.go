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
	// alertRows caps the counts that judging all of a tenant's alerts looks at; with more, the sums are lower bounds.
	alertRows       = 200_000
	fewestAlertRows = 5_000
	// alertLock makes one process at a time raise alerts.
	alertLock = 0x736c75696365_02
)

// ActiveAlerts returns the active alerts of all tenants, by tenant.
func (s *Store) ActiveAlerts(ctx context.Context) ([]violations.ActiveAlert, error) {
	rows, err := s.queriesFor(classBackground, everyTenant).ActiveAlerts(ctx)
	return each(rows, func(row dbsqlc.ActiveAlertsRow) violations.ActiveAlert {
		return violations.ActiveAlert{
			Alert: violations.Alert{
				ID: row.AlertID, Tenant: row.TenantID, Rule: orZeroValue(row.RuleID),
				Kind: violations.AlertKind(row.Kind), PerSubject: row.PerSubject,
				Threshold: row.Threshold, Window: time.Duration(row.WindowMinutes) * time.Minute, Active: true,
				Version: row.Version, Silence: violations.Silence{Until: orZero(row.SilencedUntil)},
			},
			OfTenant: int(row.OfTenant),
		}
	}), wrap(err, "read the active alerts")
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
	return raised, wrap(err, "raise %d alerts", len(alerts))
}

// AlertCounts reads what an alert would have counted.
func (s *Store) AlertCounts(
	ctx context.Context, alert *violations.Alert, since, until time.Time,
) (counts []violations.MinuteCount, lookedBackTo time.Time, err error) {
	counted, err := countForAlerts(ctx, s.queriesFor(classRead, only(alert.Tenant)),
		[]violations.ActiveAlert{{Alert: *alert, OfTenant: 1}},
		func(*violations.Alert) time.Time { return since }, until)
	one := first(counted)
	return one.counts, one.lookedBackTo, wrap(err, "count for an alert")
}

// CountedSince returns the first minute after a time with a check of a rule, or zero.
func (s *Store) CountedSince(ctx context.Context, tenant rules.TenantID, rule rules.RuleID, since time.Time) (time.Time,
	error,
) {
	minute, err := s.queriesFor(classRead, only(tenant)).CountedSince(ctx, tenant, rule, since)
	return sinceEpoch(minute), wrap(err, "read since when checks are counted")
}

type countedForAlert struct {
	counts       []violations.MinuteCount
	lookedBackTo time.Time
}

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
