package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// CreateTenant creates a tenant, and its default plan if it names one. Settings are judged here and in
// UpdateTenant, unlike elsewhere, because a number that the column's type cannot hold would wrap around.
func (s *Store) CreateTenant(ctx context.Context, tenant rules.Tenant) (created rules.Tenant, err error) {
	if wrong := tenant.Settings.Validate(); len(wrong) > 0 {
		return rules.Tenant{}, fmt.Errorf("create tenant %s: %w", tenant.Slug, wrong)
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		queries := s.queries.WithTx(tx)
		row, err := queries.CreateTenant(ctx, dbsqlc.CreateTenantParams{
			Slug:               tenant.Slug,
			Name:               tenant.Name,
			RetryJitterPercent: int16(tenant.Settings.RetryJitterPercent),
			Ipv4Prefix:         int16(tenant.Settings.IPv4Prefix),
			Ipv6Prefix:         int16(tenant.Settings.IPv6Prefix),
			FailureMode:        tenant.Settings.FailureMode,
		})
		if err != nil {
			return err
		}
		tenant.ID = row.TenantID
		w := write{queries, row.TenantID, row.Revision}
		if tenant.DefaultPlan != "" {
			if _, err := w.createPlan(ctx, rules.Plan{Name: tenant.DefaultPlan}); err != nil {
				return err
			}
		}
		created, err = w.updateTenant(ctx, tenant)
		return err
	})
	if err != nil {
		return rules.Tenant{}, fmt.Errorf("create tenant %s: %w", tenant.Slug, writeError(err))
	}
	return created, nil
}

// UpdateTenant changes all of a tenant but its slug.
func (s *Store) UpdateTenant(ctx context.Context, tenant rules.Tenant) (updated rules.Tenant, err error) {
	if wrong := tenant.Settings.Validate(); len(wrong) > 0 {
		return rules.Tenant{}, fmt.Errorf("update tenant %d: %w", tenant.ID, wrong)
	}
	err = s.inTenant(ctx, statementTimeout, tenant.ID, func(ctx context.Context, w write) error {
		if err := w.requirePlan(ctx, "default_plan", tenant.DefaultPlan); err != nil {
			return err
		}
		updated, err = w.updateTenant(ctx, tenant)
		return err
	})
	if err != nil {
		return rules.Tenant{}, fmt.Errorf("update tenant %d: %w", tenant.ID, err)
	}
	return updated, nil
}

func (w write) updateTenant(ctx context.Context, tenant rules.Tenant) (rules.Tenant, error) {
	row, err := w.UpdateTenant(ctx, dbsqlc.UpdateTenantParams{
		Name:               tenant.Name,
		DefaultPlan:        tenant.DefaultPlan,
		Suspended:          tenant.Suspended,
		RetryJitterPercent: int16(tenant.Settings.RetryJitterPercent),
		Ipv4Prefix:         int16(tenant.Settings.IPv4Prefix),
		Ipv6Prefix:         int16(tenant.Settings.IPv6Prefix),
		FailureMode:        tenant.Settings.FailureMode,
		TenantID:           w.tenant,
	})
	return tenantFromRow(row), err
}

// Tenant returns the tenant with an id.
func (s *Store) Tenant(ctx context.Context, id rules.TenantID) (rules.Tenant, error) {
	row, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.Tenant, error) {
		return q.Tenant(ctx, id)
	})
	if err != nil {
		return rules.Tenant{}, fmt.Errorf("read tenant %d: %w", id, err)
	}
	return tenantFromRow(row), nil
}

// TenantBySlug returns the tenant with a slug.
func (s *Store) TenantBySlug(ctx context.Context, slug string) (rules.Tenant, error) {
	row, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.Tenant, error) {
		return q.TenantBySlug(ctx, slug)
	})
	if err != nil {
		return rules.Tenant{}, fmt.Errorf("read tenant %q: %w", slug, err)
	}
	return tenantFromRow(row), nil
}

// Tenants returns all tenants by slug.
func (s *Store) Tenants(ctx context.Context) ([]rules.Tenant, error) {
	rows, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.Tenant, error) {
		return q.Tenants(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("read tenants: %w", err)
	}
	return each(rows, tenantFromRow), nil
}
