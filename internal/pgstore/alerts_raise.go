package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
	// alertRows caps the counts that raising all of a tenant's alerts looks at, and those of a preview. Each alert may
	// look at an equal part. In an attack of more subjects the sums are of the newest counts, which are lower bounds.
	alertRows = 200_000
	// fewestAlertRows is for tenants with so many alerts that their parts would be smaller.
	fewestAlertRows = 5_000
)

// RaiseAlerts raises a tenant's alerts, unless another process is doing so.
func (s *Store) RaiseAlerts(ctx context.Context, tenant rules.TenantID, now time.Time) (raised int64, err error) {
	err = s.transaction(ctx, classBackground, only(tenant), func(ctx context.Context, queries *dbsqlc.Queries) error {
		ours, err := queries.TryRaiseAlerts(ctx, alertLock, int64(tenant))
		if err != nil || !ours {
			return err
		}
		rows, err := queries.Alerts(ctx, tenant)
		if err != nil {
			return err
		}
		var alerts []violations.Alert
		for _, row := range rows {
			if row.Alert.IsActive {
				alerts = append(alerts, s.alertFromRow(row.Alert, row.RuleRemoved, row.RaisedAt))
			}
		}
		if len(alerts) == 0 {
			return nil
		}
		counted, err := countForAlerts(ctx, queries, tenant, alerts,
			func(a *violations.Alert) time.Time { return a.RaisedBefore(now) }, now)
		if err != nil {
			return err
		}
		deliveries := dbsqlc.RaiseDeliveriesParams{
			TenantID: tenant, Now: now,
			MostPending: violations.MaxPendingDeliveries,
		}
		for i := range alerts {
			alert := &alerts[i]
			for _, firing := range alert.Firings(counted[i].counts, now) {
				deliveries.AlertIds = append(deliveries.AlertIds, alert.ID)
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
		return 0, fmt.Errorf("raise alerts of tenant %d: %w", tenant, err)
	}
	return raised, nil
}

// AlertCounts reads what an alert would have counted.
func (s *Store) AlertCounts(
	ctx context.Context, alert *violations.Alert, since, until time.Time,
) (counts []violations.MinuteCount, lookedBackTo time.Time, err error) {
	counted, err := ask(ctx, s, only(alert.Tenant),
		func(ctx context.Context, q *dbsqlc.Queries) ([]countedForAlert, error) {
			return countForAlerts(ctx, q, alert.Tenant, []violations.Alert{*alert},
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

// countForAlerts reads the counts of several alerts of a tenant by one statement.
func countForAlerts(
	ctx context.Context, queries *dbsqlc.Queries, tenant rules.TenantID, alerts []violations.Alert,
	since func(*violations.Alert) time.Time, until time.Time,
) ([]countedForAlert, error) {
	atMost := int64(max(fewestAlertRows, alertRows/len(alerts)))
	wanted := dbsqlc.AlertCountsParams{TenantID: tenant, Until: until, AtMost: atMost}
	for i := range alerts {
		alert, least := &alerts[i], alerts[i].Threshold
		if alert.Kind == violations.AlertNearLimit {
			least = 1 // a share of the sum says nothing about that of a window
		}
		wanted.Places = append(wanted.Places, int32(i))
		wanted.Kinds = append(wanted.Kinds, string(alert.Kind))
		wanted.RuleIds = append(wanted.RuleIds, int64(alert.Rule))
		wanted.PerSubjects = append(wanted.PerSubjects, alert.PerSubject)
		wanted.Leasts = append(wanted.Leasts, least)
		wanted.Sinces = append(wanted.Sinces, since(alert))
	}
	rows, err := queries.AlertCounts(ctx, wanted)
	if err != nil {
		return nil, err
	}
	counted := make([]countedForAlert, len(alerts))
	for i := range counted {
		counted[i].lookedBackTo = wanted.Sinces[i]
	}
	for _, row := range rows {
		of := &counted[row.Place]
		if row.LookedAt >= atMost {
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
