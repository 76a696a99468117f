package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// ServiceKeys returns up to limit service keys, revoked ones included, the latest first, before an id.
func (s *Store) ServiceKeys(ctx context.Context, before string, limit int) ([]auth.NamedKey, error) {
	rows, err := ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.ServiceKeysRow, error) {
		var createdAt *time.Time
		if before != "" {
			key, err := q.ServiceKey(ctx, before)
			if err != nil {
				return nil, err
			}
			createdAt = &key.ServiceKey.CreatedAt
		}
		return q.ServiceKeys(ctx, createdAt, before, rowLimit(limit))
	})
	if err != nil {
		return nil, fmt.Errorf("read service keys: %w", err)
	}
	return each(rows, usedServiceKeyFromRow), nil
}

// ServiceKey returns one service key, even if it is revoked.
func (s *Store) ServiceKey(ctx context.Context, keyID string) (auth.NamedKey, error) {
	row, err := lookUp(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.ServiceKeyRow, error) {
		return q.ServiceKey(ctx, keyID)
	})
	if err != nil {
		return auth.NamedKey{}, fmt.Errorf("read service key %q: %w", keyID, err)
	}
	return usedServiceKeyFromRow(dbsqlc.ServiceKeysRow(row)), nil
}

// ServiceKeyUsed notes that a service key was used, at most once a minute.
func (s *Store) ServiceKeyUsed(ctx context.Context, keyID string) error {
	_, err := note(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) (struct{}, error) {
		return struct{}{}, q.ServiceKeyUsed(ctx, keyID)
	})
	if err != nil {
		return fmt.Errorf("record the use of service key %q: %w", keyID, err)
	}
	return nil
}

// CreateServiceKey stores a service key with the digest of its secret.
func (s *Store) CreateServiceKey(ctx context.Context, by rules.Actor, key auth.NamedKey) (created auth.NamedKey, err error) {
	err = s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		created, err = createServiceKey(ctx, q, by, key)
		return err
	})
	if err != nil {
		return auth.NamedKey{}, fmt.Errorf("create service key %q: %w", key.ID, err)
	}
	return created, nil
}

// RotateServiceKey creates a key that replaces an old one, and lets the old one expire.
func (s *Store) RotateServiceKey(
	ctx context.Context, by rules.Actor, keyID string, expected rules.Expected, next auth.NamedKey, grace time.Duration,
) (created auth.NamedKey, err error) {
	by.Act = "rotate"
	err = s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		row, err := q.LockServiceKey(ctx, keyID)
		if err != nil {
			return err
		}
		if err := expect(expected, row.Version); err != nil {
			return err
		}
		now := time.Now()
		if row.RevokedAt != nil || row.ExpiresAt != nil && !row.ExpiresAt.After(now) {
			return rules.FieldErrors{{Field: "key_id", Message: "must be a key in force; create a new one"}}
		}
		old := serviceKeyFromRow(row)
		next.Name, next.Permissions, next.Networks = old.Name, old.Permissions, old.Networks
		if next.ExpiresAt.IsZero() {
			next.ExpiresAt = old.ExpiresAt
		}
		if created, err = createServiceKey(ctx, q, by, next); err != nil {
			return err
		}
		if end := now.Add(grace); old.ExpiresAt.IsZero() || end.Before(old.ExpiresAt) {
			_, err = q.EndServiceKey(ctx, &end, nil, keyID)
		}
		return err
	})
	if err != nil {
		return auth.NamedKey{}, fmt.Errorf("rotate service key %q: %w", keyID, err)
	}
	return created, nil
}

// RevokeServiceKey ends a service key for good. A revoked key is rules.ErrNotFound.
func (s *Store) RevokeServiceKey(ctx context.Context, by rules.Actor, keyID string, expected rules.Expected) (revoked auth.NamedKey, err error) {
	err = s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		row, err := q.LockServiceKey(ctx, keyID)
		switch {
		case err != nil:
			return err
		case row.RevokedAt != nil:
			return rules.ErrNotFound
		}
		if err := expect(expected, row.Version); err != nil {
			return err
		}
		now := time.Now()
		row, err = q.EndServiceKey(ctx, nil, &now, keyID)
		revoked = serviceKeyFromRow(row)
		return err
	})
	if err != nil {
		return auth.NamedKey{}, fmt.Errorf("revoke service key %q: %w", keyID, err)
	}
	return revoked, nil
}

// KeepServiceKey notes that a service key stays although its creator has left.
func (s *Store) KeepServiceKey(ctx context.Context, by rules.Actor, keyID string, expected rules.Expected) (kept auth.NamedKey, err error) {
	by.Act = "keep"
	err = s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		locked, err := q.LockServiceKey(ctx, keyID)
		if err != nil {
			return err
		}
		if err := expect(expected, locked.Version); err != nil {
			return err
		}
		row, err := q.ServiceKey(ctx, keyID)
		switch {
		case err != nil:
			return err
		case locked.RevokedAt != nil:
			return rules.ErrFinal
		case !row.CreatorLeft:
			return auth.ErrCreatorStays
		}
		if err := q.KeepServiceKey(ctx, keyID); err != nil {
			return err
		}
		row, err = q.ServiceKey(ctx, keyID)
		kept = usedServiceKeyFromRow(dbsqlc.ServiceKeysRow(row))
		return err
	})
	if err != nil {
		return auth.NamedKey{}, fmt.Errorf("keep service key %q: %w", keyID, err)
	}
	return kept, nil
}

func createServiceKey(ctx context.Context, q *dbsqlc.Queries, by rules.Actor, key auth.NamedKey) (auth.NamedKey, error) {
	row, err := q.CreateServiceKey(ctx, dbsqlc.CreateServiceKeyParams{
		KeyID: key.ID, Name: key.Name, Digest: key.Digest[:], Permissions: key.Permissions, Networks: listOf(key.Networks),
		ExpiresAt: orNull(key.ExpiresAt), CreatedByKind: string(by.Kind), CreatedByID: by.ID, CreatedByName: by.Name,
	})
	if err != nil {
		return auth.NamedKey{}, err
	}
	return serviceKeyFromRow(row), nil
}

func usedServiceKeyFromRow(row dbsqlc.ServiceKeysRow) auth.NamedKey {
	key := serviceKeyFromRow(row.ServiceKey)
	key.CreatorLeft = row.CreatorLeft
	return key
}

func serviceKeyFromRow(row dbsqlc.ServiceKey) auth.NamedKey {
	key := auth.NamedKey{
		Key: auth.Key{
			ID: row.KeyID, Permissions: row.Permissions, Networks: row.Networks, ExpiresAt: orZero(row.ExpiresAt),
			Revoked: row.RevokedAt != nil, Revision: row.Version,
		},
		Name: row.Name, CreatedAt: row.CreatedAt.UTC(), RevokedAt: orZero(row.RevokedAt), KeptAt: orZero(row.KeptAt), LastUsedAt: orZero(row.LastUsedAt),
		CreatedBy: rules.Actor{Kind: rules.ActorKind(row.CreatedByKind), ID: row.CreatedByID, Name: row.CreatedByName},
	}
	for i := range key.Permissions {
		key.Permissions[i] = oneOf(key.Permissions[i], auth.Permissions...)
	}
	copy(key.Digest[:], row.Digest)
	return key
}
