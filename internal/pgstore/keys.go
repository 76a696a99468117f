package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// Keys returns up to limit API keys of a tenant, revoked ones included, the latest first, before an id.
func (s *Store) Keys(ctx context.Context, tenant rules.TenantID, before string, limit int) ([]auth.NamedKey, error) {
	rows, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.KeysRow, error) {
		var createdAt *time.Time
		if before != "" {
			key, err := q.Key(ctx, tenant, before)
			if err != nil {
				return nil, err
			}
			createdAt = &key.ApiKey.CreatedAt
		}
		return q.Keys(ctx, dbsqlc.KeysParams{
			TenantID: tenant, BeforeCreatedAt: createdAt, BeforeKeyID: before, PageSize: rowLimit(limit),
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read API keys: %w", err)
	}
	return each(rows, usedKeyFromRow), nil
}

// Key returns one API key, even if it is revoked.
func (s *Store) Key(ctx context.Context, tenant rules.TenantID, keyID string) (auth.NamedKey, error) {
	row, err := lookUp(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.KeyRow, error) {
		return q.Key(ctx, tenant, keyID)
	})
	if err != nil {
		return auth.NamedKey{}, fmt.Errorf("read API key %q: %w", keyID, err)
	}
	return usedKeyFromRow(dbsqlc.KeysRow(row)), nil
}

// CreateKey stores an API key with the digest of its secret.
func (s Writer) CreateKey(ctx context.Context, key auth.NamedKey) (created auth.NamedKey, err error) {
	err = s.inTenant(ctx, classWrite, key.TenantID, func(ctx context.Context, w write) error {
		key.CreatedBy = s.by
		created, err = w.createKey(ctx, key)
		return err
	})
	if err != nil {
		return auth.NamedKey{}, fmt.Errorf("create API key %q: %w", key.ID, err)
	}
	return created, nil
}

// RotateKey creates a key that replaces an old one, and lets the old one expire.
func (s Writer) RotateKey(
	ctx context.Context, tenant rules.TenantID, keyID string, expected rules.Expected, next auth.NamedKey, grace time.Duration,
) (old, created auth.NamedKey, err error) {
	err = s.acting("rotate").inTenant(ctx, classWrite, tenant, func(ctx context.Context, w write) error {
		if old, err = w.keyAt(ctx, keyID, expected); err != nil {
			return err
		}
		now := time.Now()
		if !old.RevokedAt.IsZero() || !old.ExpiresAt.IsZero() && !old.ExpiresAt.After(now) {
			return rules.FieldErrors{{Field: "key_id", Message: "must be a key in force; create a new one"}}
		}
		next.Name, next.Permissions, next.Networks, next.CreatedBy = old.Name, old.Permissions, old.Networks, s.by
		if next.ExpiresAt.IsZero() {
			next.ExpiresAt = old.ExpiresAt
		}
		if created, err = w.createKey(ctx, next); err != nil {
			return err
		}
		if end := now.Add(grace); old.ExpiresAt.IsZero() || end.Before(old.ExpiresAt) {
			old, err = w.expireKey(ctx, keyID, end)
		}
		return err
	})
	if err != nil {
		return auth.NamedKey{}, auth.NamedKey{}, fmt.Errorf("rotate API key %q: %w", keyID, err)
	}
	return old, created, nil
}

// RevokeKey ends an API key for good. A revoked key is rules.ErrNotFound.
func (s Writer) RevokeKey(ctx context.Context, tenant rules.TenantID, keyID string, expected rules.Expected) error {
	err := s.inTenant(ctx, classWrite, tenant, func(ctx context.Context, w write) error {
		key, err := w.keyAt(ctx, keyID, rules.AnyVersion)
		if err != nil {
			return err
		}
		if !key.RevokedAt.IsZero() {
			return rules.ErrNotFound
		}
		if err := expect(expected, key.Revision); err != nil {
			return err
		}
		return foundOne(w.RevokeKey(ctx, w.revision, w.tenant, keyID))
	})
	if err != nil {
		return fmt.Errorf("revoke API key %q: %w", keyID, err)
	}
	return nil
}

// KeepKey notes that a key stays although its creator has left.
func (s Writer) KeepKey(ctx context.Context, tenant rules.TenantID, keyID string, expected rules.Expected) (kept auth.NamedKey, err error) {
	err = s.acting("keep").inTenant(ctx, classWrite, tenant, func(ctx context.Context, w write) error {
		key, err := w.keyAt(ctx, keyID, expected)
		switch {
		case err != nil:
			return err
		case !key.RevokedAt.IsZero():
			return rules.ErrFinal
		case !key.CreatorLeft:
			return auth.ErrCreatorStays
		}
		if err := w.keepKey(ctx, keyID, time.Now()); err != nil {
			return err
		}
		kept, err = w.keyAt(ctx, keyID, rules.AnyVersion)
		return err
	})
	if err != nil {
		return auth.NamedKey{}, fmt.Errorf("keep API key %q: %w", keyID, err)
	}
	return kept, nil
}

// keepKey sets since when a key is kept; zero: it is not.
func (w write) keepKey(ctx context.Context, keyID string, at time.Time) error {
	_, err := w.Queries.KeepKey(ctx, dbsqlc.KeepKeyParams{KeptAt: orNull(at), Revision: w.revision, TenantID: w.tenant, KeyID: keyID})
	return err
}

// keyAt returns a key if its revision is the expected one.
func (w write) keyAt(ctx context.Context, keyID string, expected rules.Expected) (auth.NamedKey, error) {
	row, err := w.Key(ctx, w.tenant, keyID)
	if err != nil {
		return auth.NamedKey{}, err
	}
	return usedKeyFromRow(dbsqlc.KeysRow(row)), expect(expected, row.ApiKey.Revision)
}

func (w write) createKey(ctx context.Context, key auth.NamedKey) (auth.NamedKey, error) {
	row, err := w.CreateKey(ctx, dbsqlc.CreateKeyParams{
		TenantID:    w.tenant,
		KeyID:       key.ID,
		Name:        key.Name,
		Digest:      key.Digest[:],
		Permissions: key.Permissions,
		ExpiresAt:   orNull(key.ExpiresAt),
		Revision:    w.revision,
		Networks:    listOf(key.Networks),

		CreatedByKind: string(key.CreatedBy.Kind), CreatedByID: key.CreatedBy.ID, CreatedByName: key.CreatedBy.Name,
	})
	if err != nil {
		return auth.NamedKey{}, err
	}
	return namedKeyFromRow(row), nil
}

// listOf makes nil an empty list, because columns of lists are not null.
func listOf[T any](list []T) []T { return append([]T{}, list...) }

// expireKey sets when a key expires; zero is never.
func (w write) expireKey(ctx context.Context, keyID string, at time.Time) (auth.NamedKey, error) {
	row, err := w.ExpireKey(ctx, dbsqlc.ExpireKeyParams{
		ExpiresAt: orNull(at), Revision: w.revision, TenantID: w.tenant, KeyID: keyID,
	})
	if err != nil {
		return auth.NamedKey{}, err
	}
	return namedKeyFromRow(row), nil
}

// RecordKeyUses stores when API keys were last used; see snapshot.KeyUses. Key ids are unique among all tenants.
func (s *Store) RecordKeyUses(ctx context.Context, uses []snapshot.KeyUse) error {
	ids, at := make([]string, len(uses)), make([]time.Time, len(uses))
	for i := range uses {
		ids[i], at[i] = uses[i].KeyID, uses[i].At
	}
	_, err := ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) (struct{}, error) {
		return struct{}{}, q.RecordKeyUses(ctx, ids, at)
	})
	if err != nil {
		return fmt.Errorf("record the use of %d API keys: %w", len(uses), err)
	}
	return nil
}
