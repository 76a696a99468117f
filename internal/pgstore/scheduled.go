package pgstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

// Schedule stores a change of after, the rules as it would leave them now, for StartsAt, or makes it at once if that is
// zero. The waiting change that it replaces is canceled, or is rules.ErrChanged. Errors are rules.ErrTooManyScheduled,
// or by rule index: rules.FieldErrors, rules.ErrChanged, rules.ErrNotFound or rules.ErrScheduledOverlap.
func (s Writer) Schedule(ctx context.Context, change rules.ScheduledChange,
	after []rules.Rule,
) (scheduled rules.ScheduledChange, err error) {
	waits := !change.StartsAt.IsZero()
	create := func(ctx context.Context, w write) error {
		change := change // a transaction may be tried again
		if !waits {
			if change.StartsAt, err = w.DatabaseTime(ctx); err != nil {
				return err
			}
		}
		if change.Lasts != 0 {
			change.EndsAt = change.StartsAt.Add(change.Lasts)
		}
		if change.Replaces != 0 {
			if err := w.cancelReplaced(ctx, change.Replaces); err != nil {
				return err
			}
		}
		row, parts, err := w.createScheduled(ctx, s.by, &change, waits, after)
		if err == nil && !waits {
			row, err = w.makeNow(ctx, s.acting(scheduledAct(row.ChangeID)).by, row, parts, change.StartsAt)
		}
		scheduled = scheduledFromRow(row, parts)
		return err
	}
	if waits { // no check depends on it yet
		err = s.inTenantAs(ctx, s.by, change.TenantID, func(ctx context.Context, q *dbsqlc.Queries) error {
			return create(ctx, write{Queries: q, tenant: change.TenantID})
		})
	} else {
		err = s.inTenant(ctx, classBulk, change.TenantID, create)
	}
	return scheduled, wrap(err, "schedule a change of %d rules", len(after))
}

func (w write) createScheduled(
	ctx context.Context, by rules.Actor, change *rules.ScheduledChange, waits bool, after []rules.Rule,
) (row dbsqlc.ScheduledChange, parts []dbsqlc.ScheduledChangeRule, err error) {
	fields, err := w.fieldsToSchedule(ctx, change, waits, after)
	if err != nil {
		return row, nil, err
	}
	switch open, err := w.CountOpenScheduledChanges(ctx, w.tenant); {
	case err != nil:
		return row, nil, err
	case open >= rules.MaxScheduled:
		return row, nil, rules.ErrTooManyScheduled
	}
	if err := w.DropEndedScheduledChanges(ctx, w.tenant, rules.MaxScheduledKept); err != nil {
		return row, nil, err
	}
	asked, err := json.Marshal(each(change.Rules, func(one rules.ScheduledRule) any {
		return map[string]any{"rule_id": one.RuleID, "change": json.RawMessage(one.Patch)}
	}))
	if err != nil {
		return row, nil, fmt.Errorf("encode a scheduled change: %w", err)
	}
	if row, err = w.CreateScheduledChange(ctx, dbsqlc.CreateScheduledChangeParams{
		TenantID: w.tenant, ByKind: string(by.Kind), ByID: by.ID, ByName: by.Name, Title: titleOf(after, fields),
		Patch:    asked,
		StartsAt: change.StartsAt, EndsAt: orNull(change.EndsAt),
	}); err != nil {
		return row, nil, err
	}
	if err := enqueue(ctx, w.Queries, w.tenant, scheduledKind, row.ChangeID, change.StartsAt); err != nil {
		return row, nil, err
	}
	parts, err = w.CreateScheduledRules(ctx, dbsqlc.CreateScheduledRulesParams{
		TenantID: w.tenant, ChangeID: row.ChangeID,
		AllFields: each(fields, func(one []byte) string { return string(one) }),
		RuleIds:   each(change.Rules, func(one rules.ScheduledRule) int64 { return int64(one.RuleID) }),
		Patches:   each(change.Rules, func(one rules.ScheduledRule) string { return string(one.Patch) }),
	})
	return row, parts, err
}

func (w write) fieldsToSchedule(ctx context.Context, change *rules.ScheduledChange, waits bool,
	after []rules.Rule,
) (fields [][]byte, err error) {
	ids := each(after, func(rule rules.Rule) rules.RuleID { return rule.ID })
	live, err := w.liveRules(ctx, ids)
	if err != nil {
		return nil, err
	}
	open, err := w.OpenScheduledOfRules(ctx, w.tenant, ruleNumbers(ids))
	if err != nil {
		return nil, err
	}
	overlapping := map[rules.RuleID]bool{}
	for _, row := range open {
		if !waits && row.IsInForce ||
			change.Overlaps(&rules.ScheduledChange{StartsAt: row.StartsAt, EndsAt: orZero(row.EndsAt)}) {
			overlapping[row.RuleID] = true
		}
	}
	fields = make([][]byte, len(after))
	wrong := ruleset.RuleChangeErrors{}
	for i := range after {
		id := after[i].ID
		rule, found := live[id]
		switch {
		case !found:
			err = rules.ErrNotFound
		case slices.Contains(ids[:i], id):
			err = rules.FieldErrors{{Field: "rule_id", Message: "must be named once"}}
		case overlapping[id]:
			err = rules.ErrScheduledOverlap
		default:
			if err = expect(rules.Expected(after[i].Version), rule.Version); err == nil {
				fields[i], err = changedFields(&rule, &after[i])
			}
		}
		if err != nil {
			wrong[i] = fmt.Errorf("rule %d: %w", id, err)
		}
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return fields, nil
}

func (w write) liveRules(ctx context.Context, ids []rules.RuleID) (map[rules.RuleID]rules.Rule, error) {
	rows, err := w.RulesByID(ctx, w.tenant, ruleNumbers(ids))
	if err != nil {
		return nil, err
	}
	stored, _, err := rulesAsStored(rows)
	if err != nil {
		return nil, err
	}
	live := make(map[rules.RuleID]rules.Rule, len(stored))
	for i := range stored {
		live[stored[i].ID] = stored[i]
	}
	return live, nil
}

// CancelScheduled cancels a waiting change, and takes back one that is in force.
func (s Writer) CancelScheduled(ctx context.Context, tenant rules.TenantID, id int64) (after rules.ScheduledChange,
	err error,
) {
	err = s.acting(scheduledAct(id)).inTenant(ctx, classBulk, tenant, func(ctx context.Context, w write) error {
		row, parts, err := scheduledAt(ctx, w.Queries, tenant, id)
		if err != nil {
			return err
		}
		switch rules.ScheduledState(row.State) {
		case rules.ScheduledWaiting:
			row, err = w.cancelWaiting(ctx, row)
		case rules.ScheduledInForce:
			row, err = w.takeBack(ctx, row, parts, time.Now())
		default:
			after = scheduledFromRow(row, parts)
			return errUnchanged
		}
		after = scheduledFromRow(row, parts)
		return err
	})
	return after, wrap(err, "cancel the scheduled change %d", id)
}

func (w write) cancelReplaced(ctx context.Context, id int64) error {
	row, err := w.ScheduledChange(ctx, w.tenant, id)
	switch {
	case errors.Is(err, pgx.ErrNoRows), err == nil && row.State != string(rules.ScheduledWaiting):
		return fmt.Errorf("change %d no longer waits: %w", id, rules.ErrChanged)
	case err != nil:
		return err
	}
	_, err = w.cancelWaiting(ctx, row)
	return err
}

func (w write) cancelWaiting(ctx context.Context, row dbsqlc.ScheduledChange) (dbsqlc.ScheduledChange, error) {
	now := time.Now()
	row.State, row.DueAt, row.EndedAt = string(rules.ScheduledCanceled), nil, &now
	return w.stepScheduled(ctx, row)
}

func scheduledAt(ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID, id int64) (dbsqlc.ScheduledChange,
	[]dbsqlc.ScheduledChangeRule, error,
) {
	row, err := q.ScheduledChange(ctx, tenant, id)
	if err != nil {
		return row, nil, err
	}
	parts, err := q.ScheduledRules(ctx, tenant, []int64{id})
	return row, parts, err
}

// ScheduledChange returns one change.
func (s *Store) ScheduledChange(ctx context.Context, tenant rules.TenantID, id int64) (rules.ScheduledChange, error) {
	row, parts, err := scheduledAt(ctx, s.queriesFor(classRead, only(tenant)), tenant, id)
	return scheduledFromRow(row, parts), wrap(err, "read the scheduled change %d", id)
}

// ScheduledChanges returns changes with ids below before, latest first; 0 begins at the latest.
func (s *Store) ScheduledChanges(
	ctx context.Context, tenant rules.TenantID, rule rules.RuleID, isOpen bool, before int64, limit int,
) ([]rules.ScheduledChange, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	q := s.queriesFor(classRead, only(tenant))
	rows, err := q.ScheduledChanges(ctx, dbsqlc.ScheduledChangesParams{
		TenantID: tenant, Before: before, RuleID: int64(rule), IsOpen: isOpen, PageSize: rowLimit(limit),
	})
	if err != nil {
		return nil, wrap(err, "list scheduled changes")
	}
	parts, err := q.ScheduledRules(ctx, tenant,
		each(rows, func(row dbsqlc.ScheduledChange) int64 { return row.ChangeID }))
	of := map[int64][]dbsqlc.ScheduledChangeRule{}
	for _, part := range parts {
		of[part.ChangeID] = append(of[part.ChangeID], part)
	}
	return each(rows, func(row dbsqlc.ScheduledChange) rules.ScheduledChange {
		return scheduledFromRow(row, of[row.ChangeID])
	}), wrap(err, "list scheduled changes")
}

// DatabaseTime returns the time by the database's clock.
func (s *Store) DatabaseTime(ctx context.Context) (time.Time, error) {
	now, err := s.queriesFor(classRead, everyTenant).DatabaseTime(ctx)
	return now, wrap(err, "read the database's time")
}

func scheduledFromRow(row dbsqlc.ScheduledChange, parts []dbsqlc.ScheduledChangeRule) rules.ScheduledChange {
	change := rules.ScheduledChange{
		ID: row.ChangeID, TenantID: row.TenantID, Title: cmp.Or(row.Title, "1 rule"),
		RequestedAt: row.RequestedAt.UTC(),
		By: rules.Actor{
			Kind: rules.ActorKind(row.RequestedByKind), ID: row.RequestedByID,
			Name: row.RequestedByName,
		},
		StartsAt: row.StartsAt.UTC(), EndsAt: orZero(row.EndsAt), State: rules.ScheduledState(row.State),
		AppliedAt: orZero(row.AppliedAt), EndedAt: orZero(row.EndedAt), Failure: row.Failure,
	}
	for i := range parts {
		change.Rules = append(change.Rules,
			rules.ScheduledRule{RuleID: parts[i].RuleID, Patch: parts[i].Patch, Failure: parts[i].Failure})
	}
	return change
}
