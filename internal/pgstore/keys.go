package pgstore

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// Keys returns API keys of a tenant, or service keys for tenant 0, the latest first, before an id.
func (s *Store) Keys(ctx context.Context, tenant rules.TenantID, before string, limit int) ([]auth.NamedKey, error) {
	const attempted = "read API keys"
	q := s.queriesFor(classRead, keysOf(tenant))
	var createdAt *time.Time
	if before != "" {
		key, err := readKey(ctx, q, tenant, before)
		if err != nil {
			return nil, wrap(err, attempted)
		}
		createdAt = &key.CreatedAt
	}
	if tenant == 0 {
		rows, err := q.ServiceKeys(ctx, createdAt, before, rowLimit(limit))
		return each(rows, serviceKeyFromRow), wrap(err, attempted)
	}
	rows, err := q.Keys(ctx, dbsqlc.KeysParams{
		TenantID: tenant, BeforeCreatedAt: createdAt, BeforeKeyID: before, PageSize: rowLimit(limit),
	})
	return each(rows, usedKeyFromRow), wrap(err, attempted)
}

// Key returns one API key of a tenant, or a service key for tenant 0.
func (s *Store) Key(ctx context.Context, tenant rules.TenantID, keyID string) (auth.NamedKey, error) {
	key, err := readKey(ctx, s.queriesFor(classRead, keysOf(tenant)), tenant, keyID)
	return key, wrap(err, "read API key %q", keyID)
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
		return serviceKeyFromRow(dbsqlc.ServiceKeysRow(row)), err
	}
	row, err := q.Key(ctx, tenant, keyID)
	return usedKeyFromRow(dbsqlc.KeysRow(row)), err
}

// keyTable is not an interface, which would make the linker keep every query. Without a tenant it is about service
// keys.
type keyTable struct {
	q        *dbsqlc.Queries
	tenant   rules.TenantID
	revision int64
}

func (s Writer) inKeys(ctx context.Context, tenant rules.TenantID, do func(context.Context, keyTable) error) error {
	if tenant == 0 {
		return s.inTransactionAs(ctx, s.by, func(ctx context.Context, q *dbsqlc.Queries) error {
			return do(ctx, keyTable{q: q})
		})
	}
	return s.inTenant(ctx, classWrite, tenant, func(ctx context.Context, w write) error { return do(ctx, w.keys()) })
}

// CreateKey stores a key; a service key if it has no tenant.
func (s Writer) CreateKey(ctx context.Context, key auth.NamedKey) (created auth.NamedKey, err error) {
	err = s.inKeys(ctx, key.TenantID, func(ctx context.Context, keys keyTable) error {
		key.CreatedBy = s.by
		created, err = keys.createKey(ctx, key)
		return err
	})
	return created, wrap(err, "create API key %q", key.ID)
}

// RotateKey creates a key like the old one, which expires after the grace period or at its own expiry. A key that is
// not in force is FieldErrors on key_id.
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
	return old, created, wrap(err, "rotate API key %q", keyID)
}

// RevokeKey ends an API key for good; a revoked one is rules.ErrNotFound.
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
	return wrap(err, "revoke API key %q", keyID)
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
	return kept, wrap(err, "keep API key %q", keyID)
}

func (w write) keys() keyTable { return keyTable{w.Queries, w.tenant, w.revision} }

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
		return serviceKeyFromRow(dbsqlc.ServiceKeysRow{ServiceKey: row}), err
	}
	row, err := k.q.CreateKey(ctx, dbsqlc.CreateKeyParams{
		TenantID: k.tenant, KeyID: key.ID, Name: key.Name, Digest: key.Digest[:], Permissions: key.Permissions,
		ExpiresAt: orNull(key.ExpiresAt), Revision: k.revision, Networks: listOf(key.Networks),
		CreatedByKind: string(key.CreatedBy.Kind), CreatedByID: key.CreatedBy.ID, CreatedByName: key.CreatedBy.Name,
	})
	return namedKeyFromRow(row), err
}

func (k keyTable) expireKey(ctx context.Context, keyID string, at time.Time) (auth.NamedKey, error) {
	if k.tenant == 0 {
		row, err := k.q.EndServiceKey(ctx, &at, nil, keyID)
		return serviceKeyFromRow(dbsqlc.ServiceKeysRow{ServiceKey: row}), err
	}
	row, err := k.q.ExpireKey(ctx, dbsqlc.ExpireKeyParams{
		ExpiresAt: orNull(at), Revision: k.revision, TenantID: k.tenant, KeyID: keyID,
	})
	return namedKeyFromRow(row), err
}

func (k keyTable) revokeKey(ctx context.Context, keyID string) error {
	if k.tenant == 0 {
		now := time.Now()
		_, err := k.q.EndServiceKey(ctx, nil, &now, keyID)
		return err
	}
	return foundOne(k.q.RevokeKey(ctx, k.revision, k.tenant, keyID))
}

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
	err := s.queriesFor(classWrite, everyTenant).ServiceKeyUsed(ctx, keyID)
	return wrap(err, "record the use of service key %q", keyID)
}

// RecordKeyUses stores when API keys were last used; see snapshot.KeyUses.
func (s *Store) RecordKeyUses(ctx context.Context, uses []snapshot.KeyUse) error {
	ids, at := make([]string, len(uses)), make([]time.Time, len(uses))
	for i := range uses {
		ids[i], at[i] = uses[i].KeyID, uses[i].At
	}
	err := s.queriesFor(classWrite, everyTenant).RecordKeyUses(ctx, ids, at)
	return wrap(err, "record the use of %d API keys", len(uses))
}
