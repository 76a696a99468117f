package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
)

var _ traffic.MonthReader = (*Store)(nil)

// WriteUserMonths adds counts of any tenants within 5 s.
func (s *Store) WriteUserMonths(ctx context.Context, writer string, number int64, counts []traffic.UserMonth) error {
	p := dbsqlc.CountUserMonthsParams{AtMost: s.userMonths}
	for i := range counts {
		c := &counts[i]
		p.TenantIds = append(p.TenantIds, int64(c.Tenant))
		p.Months = append(p.Months, dayOf(c.Month))
		p.UserIds = append(p.UserIds, c.User)
		p.Meters = append(p.Meters, string(c.Meter))
		p.Allowed = append(p.Allowed, c.Allowed)
		p.Denied = append(p.Denied, c.Denied)
		p.Cost = append(p.Cost, c.Cost)
		p.CostParts = append(p.CostParts, c.CostParts)
	}
	err := s.transaction(ctx, classRecord, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		fresh, err := q.BatchWritten(ctx, writer, number)
		if err != nil || fresh == 0 {
			return err
		}
		if err := q.ShareCheckpoints(ctx); err != nil {
			return err
		}
		if err := q.BeginMonthUsers(ctx, p.AtMost, p.TenantIds, p.Months); err != nil {
			return err
		}
		return q.CountUserMonths(ctx, p)
	})
	if err = recordError(err); errors.Is(err, violations.ErrRefused) {
		err = errors.Join(traffic.ErrRefused, err)
	}
	if err != nil {
		return fmt.Errorf("write the counts of %d users: %w", len(counts), err)
	}
	return nil
}

// UserMonths reads a page of a month.
func (s *Store) UserMonths(
	ctx context.Context, tenant rules.TenantID, month time.Time, after *traffic.UserMonth, limit int,
) ([]traffic.UserMonth, error) {
	from := traffic.UserMonth{}
	if after != nil {
		from = *after
	}
	rows, err := s.queriesFor(classHeavy, only(tenant)).UserMonths(ctx, dbsqlc.UserMonthsParams{
		TenantID: tenant, Month: dayOf(month), FromUser: from.User, FromMeter: string(from.Meter),
		IsFirst: after == nil, PageSize: rowLimit(limit),
	})
	return each(rows, func(row dbsqlc.UserMonthsRow) traffic.UserMonth {
		return userMonthFromRow(
			dbsqlc.MonthsOfUserRow(row))
	}), wrap(err, "read the users of a month")
}

// MonthsOfUser reads one row for each month and meter.
func (s *Store) MonthsOfUser(ctx context.Context, tenant rules.TenantID, user string,
	months []time.Time,
) ([]traffic.UserMonth, error) {
	rows, err := s.queriesFor(classRead, only(tenant)).MonthsOfUser(ctx, tenant, each(months, dayOf), user)
	return each(rows, userMonthFromRow), wrap(err, "read the months of a user")
}

// KnownUsers looks at the newest lookAt rows of violations.
func (s *Store) KnownUsers(ctx context.Context, tenant rules.TenantID, prefix string, month time.Time,
	limit int,
) ([]traffic.KnownUser, error) {
	rows, err := s.queriesFor(classHeavy, only(tenant)).KnownUsers(ctx, dbsqlc.KnownUsersParams{
		TenantID: tenant, Prefix: prefix, Month: dayOf(month), MonthBefore: dayOf(month.AddDate(0, -1, 0)),
		AtMost: lookAt, PageSize: rowLimit(limit),
	})
	return each(rows, func(row dbsqlc.KnownUsersRow) traffic.KnownUser {
		return traffic.KnownUser{ID: row.UserID, Plan: row.Plan}
	}), wrap(err, "find users")
}

func userMonthFromRow(row dbsqlc.MonthsOfUserRow) traffic.UserMonth {
	return traffic.UserMonth{
		Tenant: row.TenantID, Month: row.Month.Time.UTC(), User: row.UserID,
		Meter: rules.Meter(row.Meter), Allowed: row.Allowed, Denied: row.Denied,
		Cost: row.Cost, CostParts: row.CostParts,
	}
}
