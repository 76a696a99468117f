package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// Keys returns up to limit API keys of a tenant, or service keys for tenant 0, revoked ones included, the latest first,
// before an id.
func (s *Store) Keys(ctx context.Context, tenant rules.TenantID, before string, limit int) ([]auth.NamedKey, error) {
	keys, err := ask(ctx, s, keysOf(tenant), func(ctx context.Context, q *dbsqlc.Queries) ([]auth.NamedKey, error) {
		var createdAt *time.Time
		if before != "" {
			key, err := readKey(ctx, q, tenant, before)
			if err != nil {
				return nil, err
			}
			createdAt = &key.CreatedAt
		}
		if tenant == 0 {
			rows, err := q.ServiceKeys(ctx, createdAt, before, rowLimit(limit))
			return each(rows, serviceKeyFromRow), err
		}
		rows, err := q.Keys(ctx, dbsqlc.KeysParams{
			TenantID: tenant, BeforeCreatedAt: createdAt, BeforeKeyID: before, PageSize: rowLimit(limit),
		})
		return each(rows, usedKeyFromRow), err
	})
	if err != nil {
		return nil, fmt.Errorf("read API keys: %w", err)
	}
	return keys, nil
}

// Key returns one API key of a tenant, or a service key for tenant 0, even if it is revoked.
func (s *Store) Key(ctx context.Context, tenant rules.TenantID, keyID string) (auth.NamedKey, error) {
	key, err := ask(ctx, s, keysOf(tenant), func(ctx context.Context, q *dbsqlc.Queries) (auth.NamedKey, error) {
		return readKey(ctx, q, tenant, keyID)
	})
	if err != nil {
		return auth.NamedKey{}, fmt.Errorf("read API key %q: %w", keyID, err)
	}
	return key, nil
}

func keysOf(tenant rules.TenantID) scope {
	if tenant == 0 {
		return everyTenant
	}
	return only(tenant)
}

func readKey(ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID, keyID string) (auth.NamedKey, error) {
	if tenant == 0 {
		row, err := q.ServiceKey(ctx, keyID)
		if err != nil {
			return auth.NamedKey{}, err
		}
		return serviceKeyFromRow(dbsqlc.ServiceKeysRow(row)), nil
	}
	row, err := q.Key(ctx, tenant, keyID)
	if err != nil {
		return auth.NamedKey{}, err
	}
	return usedKeyFromRow(dbsqlc.KeysRow(row)), nil
}

// keyTable is a write of a tenant's API keys, or of service keys, which have no tenant. An interface would make the
// linker keep every query.
type keyTable struct {
	q        *dbsqlc.Queries
	tenant   rules.TenantID
	revision int64
}

// inKeys runs a function in a write of a tenant's API keys, or of service keys for tenant 0.
func (s Writer) inKeys(ctx context.Context, tenant rules.TenantID, do func(context.Context, keyTable) error) error {
	if tenant == 0 {
		return s.inTransactionAs(ctx, s.by, func(ctx context.Context, q *dbsqlc.Queries) error {
			return do(ctx, keyTable{q: q})
		})
	}
	return s.inTenant(ctx, classWrite, tenant, func(ctx context.Context, w write) error { return do(ctx, w.keys()) })
}

// CreateKey stores an API key with the digest of its secret; a service key if it has no tenant.
func (s Writer) CreateKey(ctx context.Context, key auth.NamedKey) (created auth.NamedKey, err error) {
	err = s.inKeys(ctx, key.TenantID, func(ctx context.Context, keys keyTable) error {
		key.CreatedBy = s.by
		created, err = keys.createKey(ctx, key)
		return err
	})
	if err != nil {
		return auth.NamedKey{}, fmt.Errorf("create API key %q: %w", key.ID, err)
	}
	return created, nil
}

// RotateKey creates a key with the old one's name, permissions, networks and, unless next has one, expiry. The old one
// expires after the grace period, or at its own expiry if that is earlier. A revoked or expired key is FieldErrors on
// key_id.
func (s Writer) RotateKey(
	ctx context.Context, tenant rules.TenantID, keyID string, expected rules.Expected, next auth.NamedKey,
	grace time.Duration,
) (old, created auth.NamedKey, err error) {
	err = s.acting("rotate").inKeys(ctx, tenant, func(ctx context.Context, keys keyTable) error {
		if old, err = keys.keyAt(ctx, keyID, expected); err != nil {
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
		if created, err = keys.createKey(ctx, next); err != nil {
			return err
		}
		if end := now.Add(grace); old.ExpiresAt.IsZero() || end.Before(old.ExpiresAt) {
			old, err = keys.expireKey(ctx, keyID, end)
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
	err := s.inKeys(ctx, tenant, func(ctx context.Context, keys keyTable) error {
		key, err := keys.keyAt(ctx, keyID, rules.AnyVersion)
		if err != nil {
			return err
		}
		if !key.RevokedAt.IsZero() {
			return rules.ErrNotFound
		}
		if err := expect(expected, key.Revision); err != nil {
			return err
		}
		return keys.revokeKey(ctx, keyID)
	})
	if err != nil {
		return fmt.Errorf("revoke API key %q: %w", keyID, err)
	}
	return nil
}

// KeepKey notes that a key stays although its creator has left. Returns rules.ErrFinal for a revoked key, and
// auth.ErrCreatorStays if the creator has not left.
func (s Writer) KeepKey(ctx context.Context, tenant rules.TenantID, keyID string,
	expected rules.Expected,
) (kept auth.NamedKey, err error) {
	err = s.acting("keep").inKeys(ctx, tenant, func(ctx context.Context, keys keyTable) error {
		key, err := keys.keyAt(ctx, keyID, expected)
		switch {
		case err != nil:
			return err
		case !key.RevokedAt.IsZero():
			return rules.ErrFinal
		case !key.CreatorLeft:
			return auth.ErrCreatorStays
		}
		if err := keys.keepKey(ctx, keyID, time.Now()); err != nil {
			return err
		}
		kept, err = keys.keyAt(ctx, keyID, rules.AnyVersion)
		return err
	})
	if err != nil {
		return auth.NamedKey{}, fmt.Errorf("keep API key %q: %w", keyID, err)
	}
	return kept, nil
}

func (w write) keys() keyTable { return keyTable{w.Queries, w.tenant, w.revision} }

// keyAt locks and returns a key if its revision is the expected one.
func (k keyTable) keyAt(ctx context.Context, keyID string, expected rules.Expected) (auth.NamedKey, error) {
	if k.tenant == 0 {
		if _, err := k.q.LockServiceKey(ctx, keyID); err != nil {
			return auth.NamedKey{}, err
		}
	}
	key, err := readKey(ctx, k.q, k.tenant, keyID)
	if err != nil {
		return auth.NamedKey{}, err
	}
	return key, expect(expected, key.Revision)
}

func (k keyTable) createKey(ctx context.Context, key auth.NamedKey) (auth.NamedKey, error) {
	if k.tenant == 0 {
		row, err := k.q.CreateServiceKey(ctx, dbsqlc.CreateServiceKeyParams{
			KeyID: key.ID, Name: key.Name, Digest: key.Digest[:], Permissions: key.Permissions,
			Networks: listOf(key.Networks), ExpiresAt: orNull(key.ExpiresAt),
			CreatedByKind: string(key.CreatedBy.Kind), CreatedByID: key.CreatedBy.ID, CreatedByName: key.CreatedBy.Name,
		})
		if err != nil {
			return auth.NamedKey{}, err
		}
		return serviceKeyFromRow(dbsqlc.ServiceKeysRow{ServiceKey: row}), nil
	}
	row, err := k.q.CreateKey(ctx, dbsqlc.CreateKeyParams{
		TenantID: k.tenant, KeyID: key.ID, Name: key.Name, Digest: key.Digest[:], Permissions: key.Permissions,
		ExpiresAt: orNull(key.ExpiresAt), Revision: k.revision, Networks: listOf(key.Networks),
		CreatedByKind: string(key.CreatedBy.Kind), CreatedByID: key.CreatedBy.ID, CreatedByName: key.CreatedBy.Name,
	})
	if err != nil {
		return auth.NamedKey{}, err
	}
	return namedKeyFromRow(row), nil
}

// expireKey sets when a key expires; zero is never.
func (k keyTable) expireKey(ctx context.Context, keyID string, at time.Time) (auth.NamedKey, error) {
	if k.tenant == 0 {
		row, err := k.q.EndServiceKey(ctx, &at, nil, keyID)
		if err != nil {
			return auth.NamedKey{}, err
		}
		return serviceKeyFromRow(dbsqlc.ServiceKeysRow{ServiceKey: row}), nil
	}
	row, err := k.q.ExpireKey(ctx, dbsqlc.ExpireKeyParams{
		ExpiresAt: orNull(at), Revision: k.revision, TenantID: k.tenant, KeyID: keyID,
	})
	if err != nil {
		return auth.NamedKey{}, err
	}
	return namedKeyFromRow(row), nil
}

func (k keyTable) revokeKey(ctx context.Context, keyID string) error {
	if k.tenant == 0 {
		now := time.Now()
		_, err := k.q.EndServiceKey(ctx, nil, &now, keyID)
		return err
	}
	return foundOne(k.q.RevokeKey(ctx, k.revision, k.tenant, keyID))
}

// keepKey sets since when a key is kept; zero: it is not.
func (k keyTable) keepKey(ctx context.Context, keyID string, at time.Time) error {
	if k.tenant == 0 {
		return k.q.KeepServiceKey(ctx, keyID)
	}
	_, err := k.q.KeepKey(ctx, dbsqlc.KeepKeyParams{
		KeptAt: orNull(at), Revision: k.revision, TenantID: k.tenant, KeyID: keyID,
	})
	return err
}

// listOf makes nil an empty list, because columns of lists are not null.
func listOf[T any](list []T) []T { return append([]T{}, list...) }

// ServiceKeyUsed notes that a service key was used, at most once a minute.
func (s *Store) ServiceKeyUsed(ctx context.Context, keyID string) error {
	_, err := ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) (struct{}, error) {
		return struct{}{}, q.ServiceKeyUsed(ctx, keyID)
	})
	if err != nil {
		return fmt.Errorf("record the use of service key %q: %w", keyID, err)
	}
	return nil
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
