package pgstore

import (
	"context"
	"fmt"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// Overrides returns a rule's overrides by user, expired ones too, those after one user id, at most
// limit of them.
func (s *Store) Overrides(ctx context.Context, tenant rules.TenantID, rule rules.RuleID, after string, limit int) ([]rules.Override, error) {
	rows, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.RateLimitOverride, error) {
		return q.OverridesAfter(ctx, dbsqlc.OverridesAfterParams{TenantID: tenant, RuleID: rule, After: after, PageSize: int32(limit)})
	})
	if err != nil {
		return nil, fmt.Errorf("read overrides of rule %d: %w", rule, err)
	}
	return each(rows, overrideFromRow), nil
}

// PutOverride creates a user's override for a rule or takes the place of the one there is.
func (s *Store) PutOverride(ctx context.Context, override rules.Override) (stored rules.Override, err error) {
	err = s.inTenant(ctx, statementTimeout, override.TenantID, func(ctx context.Context, w write) error {
		stored, err = w.putOverride(ctx, override)
		return err
	})
	if err != nil {
		return rules.Override{}, fmt.Errorf("override rule %d for user %q: %w", override.RuleID, override.UserID, err)
	}
	return stored, nil
}

// RemoveOverride brings the rule's own limit back into force for a user.
func (s *Store) RemoveOverride(ctx context.Context, tenant rules.TenantID, rule rules.RuleID, userID string) error {
	err := s.inTenant(ctx, statementTimeout, tenant, func(ctx context.Context, w write) error {
		return w.removeOverride(ctx, rule, userID)
	})
	if err != nil {
		return fmt.Errorf("remove the override of rule %d for user %q: %w", rule, userID, err)
	}
	return nil
}

func (w write) putOverride(ctx context.Context, override rules.Override) (rules.Override, error) {
	row, err := w.PutOverride(ctx, dbsqlc.PutOverrideParams{
		UserID:        override.UserID,
		RatePerSecond: override.RatePerSecond,
		RateUnit:      override.RateUnit,
		BurstCapacity: override.Burst,
		Reason:        override.Reason,
		ExpiresAt:     orNull(override.ExpiresAt),
		Revision:      w.revision,
		TenantID:      w.tenant,
		RuleID:        override.RuleID,
	})
	return overrideFromRow(row), err
}

func (w write) removeOverride(ctx context.Context, rule rules.RuleID, userID string) error {
	return foundOne(w.RemoveOverride(ctx, dbsqlc.RemoveOverrideParams{
		Revision: w.revision, TenantID: w.tenant, RuleID: rule, UserID: userID,
	}))
}
