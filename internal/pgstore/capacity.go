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

var _ rules.CapacityStore = (*Store)(nil)

// Capacity returns how many of each thing a tenant has and may have.
func (s *Store) Capacity(ctx context.Context, tenant rules.TenantID) (rules.Capacity, error) {
	q := s.queriesFor(classRead, only(tenant))
	version, err := q.CapacityVersion(ctx, tenant)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return rules.Capacity{}, wrap(err, "read the capacity of tenant %d", tenant)
	}
	rows, err := q.Capacity(ctx, tenant, each(rules.Things, func(t rules.Thing) string { return string(t) }))
	return rules.Capacity{Version: version, Of: each(rows, capacityFromRow)},
		wrap(err, "read the capacity of tenant %d", tenant)
}

// CapacityUses counts, for each thing, the tenants that hold 90 % of their capacity or more.
func (s *Store) CapacityUses(ctx context.Context) (map[rules.Thing]rules.CapacityUse, error) {
	rows, err := s.queriesFor(classBackground, everyTenant).CapacityUses(ctx)
	if err != nil {
		return nil, wrap(err, "count the tenants near their capacity")
	}
	uses := map[rules.Thing]rules.CapacityUse{}
	for _, row := range rows {
		uses[rules.Thing(row.Thing)] = rules.CapacityUse{Near: int(row.Near), Full: int(row.Full)}
	}
	return uses, nil
}

// countsPerPage bounds the counts of one statement, each of up to a million rows.
const countsPerPage = 100

// recountHeld corrects the numbers of what tenants have, which manual SQL can make wrong.
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

const recountFailures = 10

// PutCapacity replaces a tenant's exceptions, in the scope of all tenants because the tenant role may not write them.
func (s *Store) PutCapacity(
	ctx context.Context, by rules.Actor, tenant rules.TenantID, exceptions rules.Exceptions, expected rules.Expected,
) (rules.Capacity, error) {
	of := func(thing rules.Thing) *int64 {
		if n, ok := exceptions[thing]; ok {
			return &n
		}
		return nil
	}
	err := s.inTenantReaching(ctx, everyTenant, by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		_, err := q.PutCapacity(ctx, dbsqlc.PutCapacityParams{
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
		return rules.Capacity{}, fmt.Errorf("set the capacity of tenant %d: %w", tenant, err)
	}
	return s.Capacity(ctx, tenant)
}

func capacityOfThing(ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID,
	thing rules.Thing,
) (rules.ThingCapacity, error) {
	rows, err := q.Capacity(ctx, tenant, []string{string(thing)})
	return capacityFromRow(first(rows)), err
}

func capacityFromRow(row dbsqlc.CapacityRow) rules.ThingCapacity {
	return rules.ThingCapacity{
		Thing: rules.Thing(row.Thing), Held: row.Held, Allowed: row.Allowed, Default: row.DefaultCapacity,
		IsDefault: row.IsDefault,
	}
}

// requireUserRoom refuses too many assignments before any is written.
func (w write) requireUserRoom(ctx context.Context, assignments []rules.Assignment) error {
	capacity, err := capacityOfThing(ctx, w.Queries, w.tenant, rules.ThingUsers)
	if err != nil || capacity.Room(int64(len(assignments))) == nil {
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
	return capacity.Room(int64(len(assigned)) - known - gone)
}

func capacityError(refusal *pgconn.PgError) error {
	var detail struct {
		Thing     rules.Thing `json:"thing"`
		Held      int64       `json:"held"`
		WouldHold int64       `json:"would_hold"`
		Allowed   int64       `json:"allowed"`
	}
	if err := json.Unmarshal([]byte(refusal.Detail), &detail); err != nil {
		return fmt.Errorf("%w: %s", refusal, refusal.Detail)
	}
	return rules.CapacityError(detail)
}
