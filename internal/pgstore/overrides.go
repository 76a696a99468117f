package pgstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// Overrides returns overrides of a rule by user, expired ones included, beginning after one user.
func (s *Store) Overrides(ctx context.Context, tenant rules.TenantID, rule rules.RuleID, after string,
	limit int,
) ([]rules.Override, error) {
	rows, err := s.queriesFor(classRead, only(tenant)).OverridesAfter(ctx, dbsqlc.OverridesAfterParams{
		TenantID: tenant, RuleID: rule, After: after,
		PageSize: rowLimit(limit),
	})
	return each(rows, overrideFromRow), wrap(err, "read overrides of rule %d", rule)
}

// FindOverrides returns overrides that a filter selects, from a position. A page looks at 2,000 overrides for a filter
// that no index serves.
func (s *Store) FindOverrides(
	ctx context.Context, tenant rules.TenantID, filter rules.OverrideFilter, after rules.OverridePlace, limit int,
) (page rules.OverridePage, err error) {
	if limit <= 0 {
		return page, nil
	}
	most := limit + 1 // one more shows whether a page follows
	if !isIndexed(filter) {
		most = max(most, int(s.lookedAt))
	}
	rows, err := overridesAfter(ctx, s.queriesFor(classRead, only(tenant)), tenant, &filter, after, rowLimit(most))
	if err != nil {
		return page, wrap(err, "find overrides")
	}
	for i := range rows {
		override := overrideFromRow(rows[i])
		switch {
		case !filter.ByEnd && !strings.HasPrefix(override.UserID, cmp.Or(filter.User, filter.UserPrefix)):
			return page, nil // users are in order, so no later one has the prefix
		case !filter.Selects(&override):
		case len(page.Overrides) == limit:
			page.Next = filter.Place(&page.Overrides[limit-1])
			return page, nil
		default:
			page.Overrides = append(page.Overrides, override)
		}
		if i == most-1 {
			page.Next = filter.Place(&override)
		}
	}
	return page, nil
}

func overridesAfter(
	ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID, filter *rules.OverrideFilter,
	after rules.OverridePlace, most int32,
) ([]dbsqlc.RateLimitOverride, error) {
	if !filter.ByEnd {
		first := cmp.Or(filter.User, filter.UserPrefix)
		if filter.Rule != 0 {
			return q.OverridesAfter(ctx, dbsqlc.OverridesAfterParams{
				TenantID: tenant, RuleID: filter.Rule, After: after.User, First: first, PageSize: most,
			})
		}
		if after.User < first {
			after = rules.OverridePlace{User: first} // no rule has id 0, so the user's first override follows
		}
		return q.OverridesByUser(ctx, dbsqlc.OverridesByUserParams{
			TenantID: tenant, AfterUserID: after.User, AfterRuleID: int64(after.Rule), PageSize: most,
		})
	}
	if after.End.Before(filter.EndsAfter) {
		after = rules.OverridePlace{End: filter.EndsAfter}
	}
	before := filter.EndsBefore
	if before.IsZero() {
		before = endOfTime
	}
	return q.OverridesByEnd(ctx, dbsqlc.OverridesByEndParams{
		TenantID: tenant, AfterEnd: after.End, AfterRuleID: int64(after.Rule), AfterUserID: after.User,
		EndsBefore: &before, PageSize: most,
	})
}

func isIndexed(filter rules.OverrideFilter) bool {
	if filter.ByEnd {
		return filter == rules.OverrideFilter{ByEnd: true, EndsAfter: filter.EndsAfter, EndsBefore: filter.EndsBefore}
	}
	return filter == rules.OverrideFilter{Rule: filter.Rule, User: filter.User, UserPrefix: filter.UserPrefix}
}

var endOfTime = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// OverridesOfUser returns overrides of a user by rule, expired ones included, beginning after one rule.
func (s *Store) OverridesOfUser(
	ctx context.Context, tenant rules.TenantID, userID string, after rules.RuleID, limit int,
) ([]rules.Override, error) {
	rows, err := s.queriesFor(classRead, only(tenant)).OverridesOfUser(ctx, dbsqlc.OverridesOfUserParams{
		TenantID: tenant, UserID: userID, After: after,
		PageSize: rowLimit(limit),
	})
	return each(rows, overrideFromRow), wrap(err, "read overrides of user %q", userID)
}

// Override returns a user's override for a rule, even if it expired.
func (s *Store) Override(ctx context.Context, tenant rules.TenantID, rule rules.RuleID, userID string) (rules.Override,
	error,
) {
	row, err := s.queriesFor(classRead, only(tenant)).Override(ctx, tenant, rule, userID)
	return overrideFromRow(row), wrap(err, "read the override of rule %d for user %q", rule, userID)
}

// PutOverride creates the override (rules.NoneStored) or replaces it (its Revision, or rules.AnyStored).
func (s Writer) PutOverride(ctx context.Context, override rules.Override,
	expected rules.Expected,
) (stored rules.Override, err error) {
	err = s.inTenant(ctx, classWrite, override.TenantID, func(ctx context.Context, w write) error {
		if stored, err = w.overrideAt(ctx, override.RuleID, override.UserID, expected); err != nil {
			return err
		}
		if stored.Revision != 0 && sameOverride(&stored, &override) {
			return errUnchanged
		}
		stored, err = w.putOverride(ctx, override)
		return err
	})
	return stored, wrap(err, "override rule %d for user %q", override.RuleID, override.UserID)
}

// RemoveOverride lets the rule's own limit hold again for a user.
func (s Writer) RemoveOverride(
	ctx context.Context, tenant rules.TenantID, rule rules.RuleID, userID string, expected rules.Expected,
) error {
	err := s.inTenant(ctx, classWrite, tenant, func(ctx context.Context, w write) error {
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
	return wrap(err, "remove the override of rule %d for user %q", rule, userID)
}

func (w write) overrideAt(ctx context.Context, rule rules.RuleID, userID string,
	expected rules.Expected,
) (rules.Override, error) {
	row, err := w.Override(ctx, w.tenant, rule, userID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return rules.Override{}, expect(expected, int64(rules.NoneStored))
	case err != nil:
		return rules.Override{}, err
	}
	return overrideFromRow(row), expect(expected, row.Revision)
}

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

// putOverrides blames the first row of a refused statement, since the database does not say which row it was.
func (w write) putOverrides(ctx context.Context, all []rules.Override) (stored []rules.Override, failed int,
	err error,
) {
	type key struct {
		rule rules.RuleID
		user string
	}
	stored = make([]rules.Override, len(all))
	for begin := 0; begin < len(all); {
		params := dbsqlc.PutOverridesParams{TenantID: w.tenant, Revision: w.revision}
		places := map[key]int{}
		end := begin
		for ; end < min(len(all), begin+rowsPerTrip); end++ {
			override := &all[end]
			named := key{override.RuleID, override.UserID}
			if _, twice := places[named]; twice {
				break // the later one wins, by another statement
			}
			places[named] = end
			params.RuleIds = append(params.RuleIds, int64(override.RuleID))
			params.UserIds = append(params.UserIds, override.UserID)
			params.Rates = append(params.Rates, override.RatePerSecond)
			params.RateUnits = append(params.RateUnits, string(override.RateUnit))
			params.Bursts = append(params.Bursts, override.Burst)
			params.Reasons = append(params.Reasons, override.Reason)
			params.ExpireAt = append(params.ExpireAt, override.ExpiresAt)
		}
		rows, err := w.PutOverrides(ctx, params)
		if err != nil {
			return nil, begin, writeError(err)
		}
		for _, row := range rows {
			named := key{row.RuleID, row.UserID}
			stored[places[named]] = overrideFromRow(row)
			delete(places, named)
		}
		if len(places) > 0 {
			return nil, slices.Min(slices.Collect(maps.Values(places))), rules.ErrNotFound
		}
		begin = end
	}
	return stored, 0, nil
}

func (w write) removeOverrides(ctx context.Context, all []rules.Override) (failed int, err error) {
	for begin := 0; begin < len(all); begin += rowsPerTrip {
		params := dbsqlc.RemoveOverridesParams{TenantID: w.tenant, Revision: w.revision}
		for _, override := range all[begin:min(len(all), begin+rowsPerTrip)] {
			params.RuleIds = append(params.RuleIds, int64(override.RuleID))
			params.UserIds = append(params.UserIds, override.UserID)
		}
		removed, err := w.RemoveOverrides(ctx, params)
		if err != nil {
			return begin, writeError(err)
		}
		if len(removed) == len(params.UserIds) {
			continue
		}
		for i := range params.UserIds {
			named := dbsqlc.RemoveOverridesRow{RuleID: all[begin+i].RuleID, UserID: all[begin+i].UserID}
			if !slices.Contains(removed, named) {
				return begin + i, rules.ErrNotFound
			}
		}
	}
	return 0, nil
}
