package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

const erasedAtOnce = 2000

// RestoreTenant undoes RemoveTenant; the tenant stays suspended. Returns rules.ErrFinal once the erasure has begun.
func (s Writer) RestoreTenant(ctx context.Context, slug string) (restored rules.Tenant, err error) {
	err = s.inTransactionAs(ctx, s.by, func(ctx context.Context, q *dbsqlc.Queries) error {
		row, err := q.RestoreTenant(ctx, slug)
		if errors.Is(err, pgx.ErrNoRows) {
			if _, err = q.RemovedTenant(ctx, slug); err == nil {
				err = rules.ErrFinal // its erasure has begun
			}
		}
		restored = tenantFromRow(row)
		return err
	})
	return restored, wrap(err, "restore tenant %s", slug)
}

// RemovedTenants returns removed tenants by slug, beginning after one.
func (s *Store) RemovedTenants(ctx context.Context, after string, limit int) ([]rules.RemovedTenant, error) {
	rows, err := s.queriesFor(classRead, everyTenant).RemovedTenants(ctx, after, rowLimit(limit))
	return each(rows, func(row dbsqlc.RemovedTenantsRow) rules.RemovedTenant {
		removed := rules.RemovedTenant{
			Slug: row.Slug, Name: row.Name, RemovedAt: row.RemovedAt.UTC(), BeganAt: orZero(row.BeganAt),
			ErasedAt: orZero(row.DoneAt),
		}
		if json.Unmarshal(row.Erased, &removed.Rows) != nil {
			removed.Rows = nil // cannot happen: the database's function counts them
		}
		return removed
	}), wrap(err, "read removed tenants")
}

// EraseRemovedTenants erases the rows of tenants that were removed before a time. A failure of forget, which removes
// data elsewhere, stops no erasure.
func (s *Store) EraseRemovedTenants(ctx context.Context, before time.Time,
	forget func(context.Context, rules.TenantID) error,
) (erased int, err error) {
	tenants, err := s.queriesFor(classRead, everyTenant).RemovedTenantsToErase(ctx, before)
	if err != nil {
		return 0, wrap(err, "look for removed tenants")
	}
	var failures []error
	for _, tenant := range tenants {
		if err := forget(ctx, tenant); err != nil {
			failures = append(failures, fmt.Errorf("forget removed tenant %d: %w", tenant, err))
		}
		var err error
		for isDone := false; err == nil && !isDone; {
			err = s.upkeepAs(ctx, "erase a removed tenant", func(ctx context.Context, q *dbsqlc.Queries) (err error) {
				isDone, err = q.EraseRemovedTenant(ctx, int64(tenant), erasedAtOnce)
				return err
			})
		}
		switch {
		case err == nil:
			erased++
		case ctx.Err() != nil:
			return erased, err
		default:
			failures = append(failures, wrap(err, "erase removed tenant %d", tenant))
		}
	}
	return erased, errors.Join(failures...)
}
