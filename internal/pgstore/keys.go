package pgstore

import (
	"context"
	"fmt"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// Keys returns a tenant's API keys, revoked ones too, by creation.
func (s *Store) Keys(ctx context.Context, tenant rules.TenantID) ([]rules.NamedKey, error) {
	rows, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.ApiKey, error) {
		return q.Keys(ctx, tenant)
	})
	if err != nil {
		return nil, fmt.Errorf("read API keys: %w", err)
	}
	return each(rows, namedKeyFromRow), nil
}

// CreateKey stores an API key, of whose secret only the digest is known.
func (s *Store) CreateKey(ctx context.Context, key rules.NamedKey) (created rules.NamedKey, err error) {
	err = s.inTenant(ctx, statementTimeout, key.TenantID, func(ctx context.Context, w write) error {
		row, err := w.CreateKey(ctx, dbsqlc.CreateKeyParams{
			TenantID:    w.tenant,
			KeyID:       key.ID,
			Name:        key.Name,
			Digest:      key.Digest[:],
			Permissions: key.Permissions,
			ExpiresAt:   orNull(key.ExpiresAt),
			Revision:    w.revision,
		})
		if err != nil {
			return err
		}
		created = namedKeyFromRow(row)
		return nil
	})
	if err != nil {
		return rules.NamedKey{}, fmt.Errorf("create API key %q: %w", key.ID, err)
	}
	return created, nil
}

// RevokeKey ends an API key for good. One that is revoked already is rules.ErrNotFound.
func (s *Store) RevokeKey(ctx context.Context, tenant rules.TenantID, keyID string) error {
	err := s.inTenant(ctx, statementTimeout, tenant, func(ctx context.Context, w write) error {
		return foundOne(w.RevokeKey(ctx, w.revision, w.tenant, keyID))
	})
	if err != nil {
		return fmt.Errorf("revoke API key %q: %w", keyID, err)
	}
	return nil
}
