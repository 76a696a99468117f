package pgstore

import (
	"context"
	"fmt"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// CreateTenant creates a tenant and its default plan. Settings are validated here and in UpdateTenant, because a number
// too large for its column would wrap around.
func (s Writer) CreateTenant(ctx context.Context, tenant rules.Tenant) (created rules.Tenant, err error) {
	if wrong := tenant.Settings.Validate(); len(wrong) > 0 {
		return rules.Tenant{}, fmt.Errorf("create tenant %s: %w", tenant.Slug, wrong)
	}
	err = s.transaction(ctx, classWrite, everyTenant, func(ctx context.Context, queries *dbsqlc.Queries) error {
		if err := queries.SetActor(ctx, actorSetting(s.by)); err != nil {
			return err
		}
		row, err := queries.CreateTenant(ctx, dbsqlc.CreateTenantParams{
			Slug:               tenant.Slug,
			Name:               tenant.Name,
			DefaultPlan:        tenant.DefaultPlan,
			Suspended:          tenant.Suspended,
			Enforcement:        tenant.Enforcement(),
			RetryJitterPercent: int16(tenant.Settings.RetryJitterPercent),
			Ipv4Prefix:         int16(tenant.Settings.IPv4Prefix),
			Ipv6Prefix:         int16(tenant.Settings.IPv6Prefix),
			FailureMode:        tenant.Settings.FailureMode,
			FixedRates:         tenant.Settings.FixedRates,
			RecordDays:         int16(tenant.Settings.RecordDays),

			RequireSecondFactor: tenant.Settings.RequireSecondFactor,
		})
		if err != nil {
			return err
		}
		created = tenantFromRow(row)
		if tenant.DefaultPlan != "" {
			if _, err = (write{queries, row.TenantID, row.Revision}).createPlan(ctx,
				rules.Plan{Name: tenant.DefaultPlan}); err != nil {
				return err
			}
		}
		return commitIdempotent(ctx, queries)
	})
	return created, wrap(writeError(err), "create tenant %s", tenant.Slug)
}

// UpdateTenant changes all of a tenant except its slug.
func (s Writer) UpdateTenant(ctx context.Context, tenant rules.Tenant) (updated rules.Tenant, err error) {
	if wrong := tenant.Settings.Validate(); len(wrong) > 0 {
		return rules.Tenant{}, fmt.Errorf("update tenant %d: %w", tenant.ID, wrong)
	}
	err = s.inTenant(ctx, classWrite, tenant.ID, func(ctx context.Context, w write) error {
		stored, err := w.Tenant(ctx, w.tenant)
		if err != nil {
			return err
		}
		if err := expect(rules.Expected(tenant.Version), stored.Version); err != nil {
			return err
		}
		updated = tenantFromRow(stored)
		if sameTenant(updated, tenant) {
			updated.Revision-- // the rollback undoes the raise
			return errUnchanged
		}
		updated, err = w.updateTenant(ctx, tenant)
		return err
	})
	return updated, wrap(err, "update tenant %d", tenant.ID)
}

// RemoveTenant returns rules.ErrInUse for a tenant that is not suspended. The rows are erased after a grace period,
// during which RestoreTenant undoes it.
func (s Writer) RemoveTenant(ctx context.Context, id rules.TenantID, expected rules.Expected) error {
	err := s.inTenant(ctx, classWrite, id, func(ctx context.Context, w write) error {
		stored, err := w.Tenant(ctx, w.tenant)
		if err != nil {
			return err
		}
		if err := expect(expected, stored.Version); err != nil {
			return err
		}
		if stored.SuspendedAt == nil {
			return fmt.Errorf("it is not suspended: %w", rules.ErrInUse)
		}
		return w.RemoveTenant(ctx, w.tenant)
	})
	return wrap(err, "remove tenant %d", id)
}

func (w write) updateTenant(ctx context.Context, tenant rules.Tenant) (rules.Tenant, error) {
	if err := w.requirePlan(ctx, "default_plan", tenant.DefaultPlan); err != nil {
		return rules.Tenant{}, err
	}
	if tenant.Settings.FixedRates {
		if err := w.EndSteps(ctx, w.revision, w.tenant); err != nil {
			return rules.Tenant{}, err
		}
	}
	row, err := w.UpdateTenant(ctx, dbsqlc.UpdateTenantParams{
		Name:               tenant.Name,
		DefaultPlan:        tenant.DefaultPlan,
		Suspended:          tenant.Suspended,
		Enforcement:        tenant.Enforcement(),
		RetryJitterPercent: int16(tenant.Settings.RetryJitterPercent),
		Ipv4Prefix:         int16(tenant.Settings.IPv4Prefix),
		Ipv6Prefix:         int16(tenant.Settings.IPv6Prefix),
		FailureMode:        tenant.Settings.FailureMode,
		FixedRates:         tenant.Settings.FixedRates,
		RecordDays:         int16(tenant.Settings.RecordDays),

		RequireSecondFactor: tenant.Settings.RequireSecondFactor,
		TenantID:            w.tenant,
	})
	return tenantFromRow(row), err
}

func sameTenant(a, b rules.Tenant) bool {
	return a.Name == b.Name && a.DefaultPlan == b.DefaultPlan && a.Suspended == b.Suspended &&
		a.InShadow == b.InShadow && a.Settings == b.Settings
}

// Tenant returns the tenant with an id.
func (s *Store) Tenant(ctx context.Context, id rules.TenantID) (rules.Tenant, error) {
	row, err := s.queriesFor(classRead, only(id)).Tenant(ctx, id)
	return tenantFromRow(row), wrap(err, "read tenant %d", id)
}

// TenantBySlug returns the tenant with a slug.
func (s *Store) TenantBySlug(ctx context.Context, slug string) (rules.Tenant, error) {
	row, err := s.queriesFor(classRead, everyTenant).TenantBySlug(ctx, slug)
	return tenantFromRow(row), wrap(err, "read tenant %q", slug)
}

// Tenants returns tenants whose slug or name contains a text, by slug, beginning after one.
func (s *Store) Tenants(ctx context.Context, text, after string, limit int) ([]rules.Tenant, error) {
	rows, err := s.queriesFor(classRead, everyTenant).Tenants(ctx, after, text, rowLimit(limit))
	return each(rows, tenantFromRow), wrap(err, "read tenants")
}
