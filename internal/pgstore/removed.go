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

// RestoreTenant undoes RemoveTenant; the tenant stays suspended. Returns rules.ErrNotFound for a slug of no removed
// tenant, and rules.ErrFinal once the erasure has begun.
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
	if err != nil {
		return rules.Tenant{}, fmt.Errorf("restore tenant %s: %w", slug, err)
	}
	return restored, nil
}

// RemovedTenants returns up to limit removed tenants by slug, beginning after one.
func (s *Store) RemovedTenants(ctx context.Context, after string, limit int) ([]rules.RemovedTenant, error) {
	rows, err := ask(ctx, s, everyTenant,
		func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.RemovedTenantsRow, error) {
			return q.RemovedTenants(ctx, after, rowLimit(limit))
		})
	if err != nil {
		return nil, fmt.Errorf("read removed tenants: %w", err)
	}
	return each(rows, func(row dbsqlc.RemovedTenantsRow) rules.RemovedTenant {
		removed := rules.RemovedTenant{
			Slug: row.Slug, Name: row.Name, RemovedAt: row.RemovedAt.UTC(), BeganAt: orZero(row.BeganAt),
			ErasedAt: orZero(row.DoneAt),
		}
		if json.Unmarshal(row.Erased, &removed.Rows) != nil {
			removed.Rows = nil // cannot happen: the database's function counts them
		}
		return removed
	}), nil
}

// EraseRemovedTenants erases the rows of tenants that were removed before a time, in short transactions. A tenant that
// fails does not keep later ones from being erased. forget removes what is elsewhere, before the rows; where it fails,
// nothing personal is left. Returns the number of tenants whose rows are erased.
func (s *Store) EraseRemovedTenants(ctx context.Context, before time.Time,
	forget func(context.Context, rules.TenantID) error,
) (erased int, err error) {
	tenants, err := ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) ([]rules.TenantID, error) {
		return q.RemovedTenantsToErase(ctx, before)
	})
	if err != nil {
		return 0, fmt.Errorf("look for removed tenants: %w", err)
	}
	var failures []error
	for _, tenant := range tenants {
		if err := forget(ctx, tenant); err != nil {
			failures = append(failures, fmt.Errorf("forget removed tenant %d: %w", tenant, err))
		}
		var err error
		for isDone := false; err == nil && !isDone; {
			err = s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) (err error) {
				if err := q.SetActor(ctx, actorSetting(rules.Actor{
					Kind: rules.ActorSystem, Name: "sluice",
					Act: "erase a removed tenant",
				})); err != nil {
					return err
				}
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
			failures = append(failures, fmt.Errorf("erase removed tenant %d: %w", tenant, err))
		}
	}
	return erased, errors.Join(failures...)
}
