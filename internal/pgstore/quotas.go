package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

var _ rules.QuotaStore = (*Store)(nil)

// Quotas returns how many of each thing a tenant has, and its quotas.
func (s *Store) Quotas(ctx context.Context, tenant rules.TenantID) (rules.Quotas, error) {
	quotas, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) (rules.Quotas, error) {
		return quotasOf(ctx, q, tenant)
	})
	if err != nil {
		return rules.Quotas{}, fmt.Errorf("read the quotas of tenant %d: %w", tenant, err)
	}
	return quotas, nil
}

// QuotaUses counts, for each thing, the tenants that hold 90 % of their quota or more.
func (s *Store) QuotaUses(ctx context.Context) (map[rules.Thing]rules.QuotaUse, error) {
	rows, err := s.queriesFor(classBackground, everyTenant).QuotaUses(ctx)
	if err != nil {
		return nil, fmt.Errorf("count the tenants near their quotas: %w", domainError(err))
	}
	uses := map[rules.Thing]rules.QuotaUse{}
	for _, row := range rows {
		uses[rules.Thing(row.Thing)] = rules.QuotaUse{Near: int(row.Near), Full: int(row.Full)}
	}
	return uses, nil
}

// countsPerPage is how many numbers of what tenants hold are compared by one statement. Each counts up to a million
// rows.
const countsPerPage = 100

// recountHeld corrects the stored numbers of what tenants have, which manual SQL can make wrong. A tenant whose row
// stays locked is left to the next round.
func (s *Store) recountHeld(ctx context.Context) error {
	var failed []error
	for after := (dbsqlc.HeldCountsRow{}); ; {
		var page []dbsqlc.HeldCountsRow
		err := s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) (err error) {
			page, err = q.HeldCounts(ctx, int64(after.TenantID), after.Thing, s.countsPerPage)
			return err
		})
		if err != nil {
			return errors.Join(append(failed, fmt.Errorf("compare what tenants hold: %w", err))...)
		}
		for _, after = range page {
			if !after.IsWrong {
				continue
			}
			err := s.upkeep(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
				return q.RecountHeld(ctx, int64(after.TenantID), after.Thing)
			})
			if err != nil {
				failed = append(failed, fmt.Errorf("count anew what tenant %d holds: %w", after.TenantID, err))
			}
			if len(failed) == recountFailures {
				return errors.Join(failed...)
			}
		}
		if len(page) < int(s.countsPerPage) {
			return errors.Join(failed...)
		}
	}
}

// recountFailures is how many failures end a round, since the database may be away.
const recountFailures = 10

// PutQuotas replaces a tenant's exceptions. The tenant role may not write them, so this runs in the scope of all
// tenants.
func (s *Store) PutQuotas(
	ctx context.Context, by rules.Actor, tenant rules.TenantID, exceptions rules.Exceptions, expected rules.Expected,
) (rules.Quotas, error) {
	of := func(thing rules.Thing) *int64 {
		if n, ok := exceptions[thing]; ok {
			return &n
		}
		return nil
	}
	err := s.inTenantReaching(ctx, everyTenant, by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		_, err := q.PutQuotas(ctx, dbsqlc.PutQuotasParams{
			TenantID: int64(tenant), Expected: int64(expected),
			Plans: of(rules.ThingPlans), Rules: of(rules.ThingRules), Overrides: of(rules.ThingOverrides),
			Users:   of(rules.ThingUsers),
			ApiKeys: of(rules.ThingKeys), Alerts: of(rules.ThingAlerts), Members: of(rules.ThingMembers),
		})
		if errors.Is(err, pgx.ErrNoRows) {
			err = rules.ErrChanged
		}
		return err
	})
	if err != nil {
		return rules.Quotas{}, fmt.Errorf("set the quotas of tenant %d: %w", tenant, err)
	}
	return s.Quotas(ctx, tenant)
}

func quotasOf(ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID) (rules.Quotas, error) {
	version, err := q.QuotaVersion(ctx, tenant)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return rules.Quotas{}, err
	}
	rows, err := q.Quotas(ctx, tenant, each(rules.Things, func(t rules.Thing) string { return string(t) }))
	return rules.Quotas{Version: version, Of: each(rows, quotaFromRow)}, err
}

func quotaOf(ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID, thing rules.Thing) (rules.Quota, error) {
	rows, err := q.Quotas(ctx, tenant, []string{string(thing)})
	if err != nil {
		return rules.Quota{}, err
	}
	return quotaFromRow(first(rows)), nil
}

func quotaFromRow(row dbsqlc.QuotasRow) rules.Quota {
	return rules.Quota{
		Thing: rules.Thing(row.Thing), Held: row.Held, Allowed: row.Allowed, Default: row.DefaultQuota,
		IsDefault: row.IsDefault,
	}
}

// requireUserRoom refuses assignments that are too many together. The database refuses them too, but only once it has
// written some of them, and then it does not know how many would follow.
func (w write) requireUserRoom(ctx context.Context, assignments []rules.Assignment) error {
	quota, err := quotaOf(ctx, w.Queries, w.tenant, rules.ThingUsers)
	if err != nil || quota.Room(int64(len(assignments))) == nil {
		return err
	}
	var assigned, unassigned []string
	for _, a := range assignments {
		if a.Plan == "" {
			unassigned = append(unassigned, a.UserID)
		} else {
			assigned = append(assigned, a.UserID)
		}
	}
	known, err := w.CountAssigned(ctx, w.tenant, assigned)
	if err != nil {
		return err
	}
	gone, err := w.CountAssigned(ctx, w.tenant, unassigned)
	if err != nil {
		return err
	}
	return quota.Room(int64(len(assigned)) - known - gone)
}

func quotaError(refusal *pgconn.PgError) error {
	var detail struct {
		Thing     rules.Thing `json:"thing"`
		Held      int64       `json:"held"`
		WouldHold int64       `json:"would_hold"`
		Allowed   int64       `json:"allowed"`
	}
	if err := json.Unmarshal([]byte(refusal.Detail), &detail); err != nil {
		return fmt.Errorf("%w: %s", refusal, refusal.Detail)
	}
	return rules.QuotaError(detail)
}
