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
		return q.OverridesAfter(ctx, dbsqlc.OverridesAfterParams{TenantID: tenant, RuleID: rule, After: after, PageSize: rowLimit(limit)})
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
	stored, _, err := w.putOverrides(ctx, []rules.Override{override})
	return first(stored), err
}

func (w write) removeOverride(ctx context.Context, rule rules.RuleID, userID string) error {
	_, err := w.removeOverrides(ctx, []rules.Override{{RuleID: rule, UserID: userID}})
	return err
}

// putOverrides returns which row the error is about.
func (w write) putOverrides(ctx context.Context, all []rules.Override) (stored []rules.Override, failed int, err error) {
	params := each(all, func(override rules.Override) dbsqlc.PutOverrideParams {
		return dbsqlc.PutOverrideParams{
			UserID:        override.UserID,
			RatePerSecond: override.RatePerSecond,
			RateUnit:      override.RateUnit,
			BurstCapacity: override.Burst,
			Reason:        override.Reason,
			ExpiresAt:     orNull(override.ExpiresAt),
			Revision:      w.revision,
			TenantID:      w.tenant,
			RuleID:        override.RuleID,
		}
	})
	rows, failed, err := inTrips(params, func(trip []dbsqlc.PutOverrideParams, each func(int, dbsqlc.RateLimitOverride, error)) {
		w.PutOverride(ctx, trip).QueryRow(each)
	})
	return each(rows, overrideFromRow), failed, err
}

// removeOverrides needs only the rule and the user of each, and returns which row the error is about.
func (w write) removeOverrides(ctx context.Context, all []rules.Override) (failed int, err error) {
	params := each(all, func(override rules.Override) dbsqlc.RemoveOverrideParams {
		return dbsqlc.RemoveOverrideParams{
			Revision: w.revision, TenantID: w.tenant, RuleID: override.RuleID, UserID: override.UserID,
		}
	})
	_, failed, err = inTrips(params, func(trip []dbsqlc.RemoveOverrideParams, each func(int, rules.RuleID, error)) {
		w.RemoveOverride(ctx, trip).QueryRow(each)
	})
	return failed, err
}
