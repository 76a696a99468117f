package pgstore

import (
	"context"
	"fmt"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

var _ auth.AccessStore = (*Store)(nil)

// WriteAccess adds entries to the security log.
func (s *Store) WriteAccess(ctx context.Context, events []auth.AccessEvent) error {
	// No semaphore guards this write: callers who use up their connections must not keep the log from being written.
	if err := s.queriesFor(classRecord, everyTenant).WriteAccess(ctx, accessColumns(events)); err != nil {
		return fmt.Errorf("write to the security log: %w", domainError(err))
	}
	return nil
}

func accessColumns(events []auth.AccessEvent) (columns dbsqlc.WriteAccessParams) {
	for i := range events {
		e := &events[i]
		ip := ""
		if e.IP.IsValid() {
			ip = e.IP.String()
		}
		columns.At = append(columns.At, e.At)
		columns.Ids = append(columns.Ids, e.ID)
		columns.TenantIds = append(columns.TenantIds, int64(e.TenantID))
		columns.Tenants = append(columns.Tenants, e.Tenant)
		columns.Counts = append(columns.Counts, e.Count)
		columns.Kinds = append(columns.Kinds, string(e.Kind))
		columns.AccountIds = append(columns.AccountIds, int64(e.Account))
		columns.KeyIds = append(columns.KeyIds, e.KeyID)
		columns.Who = append(columns.Who, e.Who)
		columns.Typed = append(columns.Typed, e.Typed)
		columns.Ips = append(columns.Ips, ip)
		columns.UserAgents = append(columns.UserAgents, e.UserAgent)
		columns.Details = append(columns.Details, e.Detail)
		columns.RequestIds = append(columns.RequestIds, e.RequestID)
	}
	return columns
}

// AccessEvents returns a page of the security log; see auth.AccessStore.
func (s *Store) AccessEvents(
	ctx context.Context, tenant rules.TenantID, filter auth.AccessFilter, before auth.LogCursor, limit int,
) ([]auth.AccessEvent, error) {
	before = firstCursor(before, filter.Until)
	sees := everyTenant
	if tenant != 0 {
		sees = only(tenant)
	}
	rows, err := askMuch(ctx, s, sees, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.AccessEvent, error) {
		if tenant != 0 {
			return q.AccessEventsOf(ctx, dbsqlc.AccessEventsOfParams{
				TenantID: tenant, BeforeAt: before.At, BeforeID: before.ID, Since: filter.From,
				AccountID: int64(filter.Account), Kind: string(filter.Kind), Ip: ipText(&filter),
				PageSize: rowLimit(limit),
			})
		}
		return q.AccessEvents(ctx, dbsqlc.AccessEventsParams{
			BeforeAt: before.At, BeforeID: before.ID, Since: filter.From, AccountID: int64(filter.Account),
			Typed: filter.Typed, Email: filter.Email, Kind: string(filter.Kind), Tenant: filter.Tenant,
			Ip: ipText(&filter), PageSize: rowLimit(limit),
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the security log: %w", err)
	}
	return each(rows, accessEventFromRow), nil
}

func ipText(filter *auth.AccessFilter) string {
	if !filter.IP.IsValid() {
		return ""
	}
	return filter.IP.String()
}

func accessEventFromRow(row dbsqlc.AccessEvent) auth.AccessEvent {
	event := auth.AccessEvent{
		ID: row.AccessID, At: row.At.UTC(), Count: row.Count, Kind: auth.AccessKind(row.Kind), Account: row.AccountID,
		Who:   row.Who,
		Typed: row.Typed, KeyID: row.KeyID, TenantID: row.TenantID, Tenant: row.Tenant, UserAgent: row.UserAgent,
		Detail:    row.Detail,
		RequestID: row.RequestID,
	}
	if row.Ip != nil {
		event.IP = *row.Ip
	}
	return event
}
