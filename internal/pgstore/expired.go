package pgstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// expiredOfEach bounds the rules of one tenant in a round, so that other tenants are not kept waiting.
	expiredOfEach   = 100
	expiredPerRound = 5000
	expiredFailures = 10
)

// RemoveExpiredRules removes the rules that ended, and were last edited, before a time. Each is a transaction of its
// own, which people can undo; rules with a candidate or a scheduled change stay.
func (s *Store) RemoveExpiredRules(ctx context.Context, before time.Time) (removed int, err error) {
	ended, err := s.queriesFor(classBackground, everyTenant).ExpiredRules(ctx, before, expiredOfEach, expiredPerRound)
	if err != nil {
		return 0, wrap(err, "look for expired rules")
	}
	writer := s.As(system("remove an expired rule"))
	var failed []error
	for _, row := range ended {
		isRemoved, err := writer.removeExpired(ctx, row.TenantID, row.RuleID, before)
		switch {
		case isRemoved:
			removed++
		case ctx.Err() != nil:
			return removed, err
		case err != nil && !errors.Is(err, rules.ErrNotFound):
			failed = append(failed, wrap(err, "remove the expired rule %d of tenant %d", row.RuleID, row.TenantID))
		}
		if len(failed) == expiredFailures {
			break
		}
	}
	return removed, errors.Join(failed...)
}

// removeExpired checks anew, since the rule can have been edited, tried or scheduled since it was found.
func (s Writer) removeExpired(ctx context.Context, tenant rules.TenantID, id rules.RuleID,
	before time.Time,
) (isRemoved bool, err error) {
	err = s.inTenant(ctx, classBulk, tenant, func(ctx context.Context, w write) error {
		rule, err := w.ruleAt(ctx, id, rules.AnyVersion)
		if err != nil {
			return err
		}
		if rule.ExpiresAt.IsZero() || !rule.ExpiresAt.Before(before) || !rule.UpdatedAt.Before(before) {
			return errUnchanged
		}
		if with, err := w.withCandidates(ctx, []rules.RuleID{id}); err != nil || len(with) > 1 {
			return cmp.Or(err, errUnchanged)
		}
		if open, err := w.OpenScheduledOfRules(ctx, tenant, []int64{int64(id)}); err != nil || len(open) > 0 {
			return cmp.Or(err, errUnchanged)
		}
		isRemoved = true
		return w.removeRule(ctx, id)
	})
	return isRemoved && err == nil, err
}
