package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// expiredOfEach is how many expired rules of a tenant one round removes, so that other tenants are not kept
	// waiting.
	expiredOfEach   = 100
	expiredPerRound = 5000
	// expiredFailures end a round: perhaps the database is away.
	expiredFailures = 10
)

// RemoveExpiredRules removes the rules that ended, and were last edited, before a time, in the name of the system. Each
// is a transaction of its own, which can be undone from the audit log. Rules with a candidate or a scheduled change
// stay.
func (s *Store) RemoveExpiredRules(ctx context.Context, before time.Time) (removed int, err error) {
	ended, err := askFor(ctx, s, classBackground, everyTenant,
		func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.ExpiredRulesRow, error) {
			return q.ExpiredRules(ctx, before, expiredOfEach, expiredPerRound)
		})
	if err != nil {
		return 0, fmt.Errorf("look for expired rules: %w", err)
	}
	writer := s.As(rules.Actor{Kind: rules.ActorSystem, Name: "sluice", Act: "remove an expired rule"})
	var failed []error
	for _, row := range ended {
		isRemoved, err := writer.removeExpired(ctx, row.TenantID, row.RuleID, before)
		switch {
		case isRemoved:
			removed++
		case ctx.Err() != nil:
			return removed, err
		case err != nil && !errors.Is(err, rules.ErrNotFound):
			failed = append(failed, fmt.Errorf("remove the expired rule %d of tenant %d: %w", row.RuleID, row.TenantID,
				err))
		}
		if len(failed) == expiredFailures {
			break
		}
	}
	return removed, errors.Join(failed...)
}

// removeExpired removes a rule if it may still be removed: somebody can have edited it, made a candidate of it or
// scheduled a change of it since it was found.
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
