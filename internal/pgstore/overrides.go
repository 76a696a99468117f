package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

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

// OverridesOfUser returns a user's overrides by rule, expired ones too, those after one rule, at most
// limit of them.
func (s *Store) OverridesOfUser(
	ctx context.Context, tenant rules.TenantID, userID string, after rules.RuleID, limit int,
) ([]rules.Override, error) {
	rows, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.RateLimitOverride, error) {
		return q.OverridesOfUser(ctx, dbsqlc.OverridesOfUserParams{TenantID: tenant, UserID: userID, After: after, PageSize: rowLimit(limit)})
	})
	if err != nil {
		return nil, fmt.Errorf("read overrides of user %q: %w", userID, err)
	}
	return each(rows, overrideFromRow), nil
}

// Override returns a user's override for a rule, an expired one too.
func (s *Store) Override(ctx context.Context, tenant rules.TenantID, rule rules.RuleID, userID string) (rules.Override, error) {
	row, err := ask(ctx, s, func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.RateLimitOverride, error) {
		return q.Override(ctx, tenant, rule, userID)
	})
	if err != nil {
		return rules.Override{}, fmt.Errorf("read the override of rule %d for user %q: %w", rule, userID, err)
	}
	return overrideFromRow(row), nil
}

// PutOverride creates a user's override for a rule or takes the place of the one there is.
func (s Writer) PutOverride(ctx context.Context, override rules.Override, expected rules.Expected) (stored rules.Override, err error) {
	err = s.inTenant(ctx, statementTimeout, override.TenantID, func(ctx context.Context, w write) error {
		if stored, err = w.overrideAt(ctx, override.RuleID, override.UserID, expected); err != nil {
			return err
		}
		if stored.Revision != 0 && sameOverride(&stored, &override) {
			return errUnchanged
		}
		stored, err = w.putOverride(ctx, override)
		return err
	})
	if err != nil {
		return rules.Override{}, fmt.Errorf("override rule %d for user %q: %w", override.RuleID, override.UserID, err)
	}
	return stored, nil
}

// RemoveOverride brings the rule's own limit back into force for a user.
func (s Writer) RemoveOverride(
	ctx context.Context, tenant rules.TenantID, rule rules.RuleID, userID string, expected rules.Expected,
) error {
	err := s.inTenant(ctx, statementTimeout, tenant, func(ctx context.Context, w write) error {
		stored, err := w.overrideAt(ctx, rule, userID, rules.AnyVersion)
		if err != nil {
			return err
		}
		if stored.Revision == 0 {
			return rules.ErrNotFound
		}
		if err := expect(expected, stored.Revision); err != nil {
			return err
		}
		return w.removeOverride(ctx, rule, userID)
	})
	if err != nil {
		return fmt.Errorf("remove the override of rule %d for user %q: %w", rule, userID, err)
	}
	return nil
}

// overrideAt returns the override that is stored at an expected revision, or the zero value if none is.
func (w write) overrideAt(ctx context.Context, rule rules.RuleID, userID string, expected rules.Expected) (rules.Override, error) {
	row, err := w.Override(ctx, w.tenant, rule, userID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return rules.Override{}, expect(expected, int64(rules.NoneStored))
	case err != nil:
		return rules.Override{}, err
	}
	return overrideFromRow(row), expect(expected, row.Revision)
}

// sameOverride compares what can be changed of an override.
func sameOverride(a, b *rules.Override) bool {
	return a.RatePerSecond == b.RatePerSecond && a.RateUnit == b.RateUnit && a.Burst == b.Burst &&
		a.Reason == b.Reason && a.ExpiresAt.Equal(b.ExpiresAt)
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
