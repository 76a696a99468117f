package pgstore

import (
	"context"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

var _ auth.AccessStore = (*Store)(nil)

// WriteAccess adds entries to the security log.
func (s *Store) WriteAccess(ctx context.Context, events []auth.AccessEvent) error {
	// No semaphore guards this write: callers who use up their connections must not keep the log from being written.
	err := s.queriesFor(classRecord, everyTenant).WriteAccess(ctx, accessColumns(events))
	return wrap(err, "write to the security log")
}

func accessColumns(events []auth.AccessEvent) (columns dbsqlc.WriteAccessParams) {
	for i := range events {
		e := &events[i]
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
		columns.Ips = append(columns.Ips, addressText(e.IP))
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
	var rows []dbsqlc.AccessEvent
	var err error
	if tenant != 0 {
		rows, err = s.queriesFor(classHeavy, only(tenant)).AccessEventsOf(ctx, dbsqlc.AccessEventsOfParams{
			TenantID: tenant, BeforeAt: before.At, BeforeID: before.ID, Since: filter.From,
			AccountID: int64(filter.Account), Kind: string(filter.Kind), Ip: addressText(filter.IP),
			PageSize: rowLimit(limit),
		})
	} else {
		rows, err = s.queriesFor(classHeavy, everyTenant).AccessEvents(ctx, dbsqlc.AccessEventsParams{
			BeforeAt: before.At, BeforeID: before.ID, Since: filter.From, AccountID: int64(filter.Account),
			Typed: filter.Typed, Email: filter.Email, Kind: string(filter.Kind), Tenant: filter.Tenant,
			Ip: addressText(filter.IP), PageSize: rowLimit(limit),
		})
	}
	return each(rows, accessEventFromRow), wrap(err, "read the security log")
}

func accessEventFromRow(row dbsqlc.AccessEvent) auth.AccessEvent {
	return auth.AccessEvent{
		ID: row.AccessID, At: row.At.UTC(), Count: row.Count, Kind: auth.AccessKind(row.Kind), Account: row.AccountID,
		Who: row.Who, Typed: row.Typed, KeyID: row.KeyID, TenantID: row.TenantID, Tenant: row.Tenant,
		IP: orZeroValue(row.Ip), UserAgent: row.UserAgent, Detail: row.Detail, RequestID: row.RequestID,
	}
}
