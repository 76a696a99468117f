package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// Schedule lets a change wait for its time. after is the rule as the change would leave it now, at its Version.
func (s Writer) Schedule(ctx context.Context, change rules.ScheduledChange, after rules.Rule) (scheduled rules.ScheduledChange, err error) {
	err = s.inTenantAs(ctx, s.by, change.TenantID, func(ctx context.Context, q *dbsqlc.Queries) error {
		w := write{Queries: q, tenant: change.TenantID}
		live, err := w.ruleAt(ctx, change.RuleID, rules.Expected(after.Version))
		if err != nil {
			return err
		}
		fields, err := changedFields(&live, &after)
		if err != nil {
			return err
		}
		open, err := q.OpenScheduledChanges(ctx, change.TenantID)
		if err != nil {
			return err
		}
		if len(open) >= rules.MaxScheduled {
			return rules.ErrTooManyScheduled
		}
		for i := range open {
			if other := scheduledFromRow(open[i]); other.Overlaps(&change) {
				return rules.ErrScheduledOverlap
			}
		}
		if err := q.DropEndedScheduledChanges(ctx, change.TenantID, rules.MaxScheduledKept); err != nil {
			return err
		}
		row, err := q.CreateScheduledChange(ctx, dbsqlc.CreateScheduledChangeParams{
			TenantID: change.TenantID, RuleID: change.RuleID, ByKind: string(s.by.Kind), ByID: s.by.ID, ByName: s.by.Name,
			Patch: change.Patch, Fields: fields, StartsAt: change.StartsAt, EndsAt: orNull(change.EndsAt),
		})
		scheduled = scheduledFromRow(row)
		return err
	})
	if err != nil {
		return rules.ScheduledChange{}, fmt.Errorf("schedule a change of rule %d: %w", change.RuleID, err)
	}
	return scheduled, nil
}

// CancelScheduled cancels a change that waits, and takes back one that is in force. Others stay as they are.
func (s Writer) CancelScheduled(ctx context.Context, tenant rules.TenantID, id int64) (after rules.ScheduledChange, err error) {
	err = s.acting(scheduledAct(id)).inTenant(ctx, classWrite, tenant, func(ctx context.Context, w write) error {
		row, err := w.ScheduledChange(ctx, tenant, id)
		if err != nil {
			return err
		}
		switch rules.ScheduledState(row.State) {
		case rules.ScheduledWaiting:
			now := time.Now()
			row.State, row.DueAt, row.EndedAt = string(rules.ScheduledCanceled), nil, &now
			row, err = w.stepScheduled(ctx, row)
		case rules.ScheduledInForce:
			row, err = w.takeBack(ctx, row, time.Now())
		default:
			after = scheduledFromRow(row)
			return errUnchanged
		}
		after = scheduledFromRow(row)
		return err
	})
	if err != nil {
		return rules.ScheduledChange{}, fmt.Errorf("cancel the scheduled change %d: %w", id, err)
	}
	return after, nil
}

// ScheduledChange returns one.
func (s *Store) ScheduledChange(ctx context.Context, tenant rules.TenantID, id int64) (rules.ScheduledChange, error) {
	row, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) (dbsqlc.ScheduledChange, error) {
		return q.ScheduledChange(ctx, tenant, id)
	})
	if err != nil {
		return rules.ScheduledChange{}, fmt.Errorf("read the scheduled change %d: %w", id, err)
	}
	return scheduledFromRow(row), nil
}

// ScheduledChanges returns a page, the latest first, before an id; 0 begins at the latest.
func (s *Store) ScheduledChanges(
	ctx context.Context, tenant rules.TenantID, rule rules.RuleID, isOpen bool, before int64, limit int,
) ([]rules.ScheduledChange, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	rows, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.ScheduledChange, error) {
		return q.ScheduledChanges(ctx, dbsqlc.ScheduledChangesParams{
			TenantID: tenant, Before: before, RuleID: int64(rule), IsOpen: isOpen, PageSize: rowLimit(limit),
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list scheduled changes: %w", err)
	}
	return each(rows, scheduledFromRow), nil
}

// ClaimScheduled leases due changes, at most one of a tenant.
func (s *Store) ClaimScheduled(ctx context.Context, now, leaseEnds time.Time, limit int) ([]rules.ScheduledChange, error) {
	rows, err := ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.ScheduledChange, error) {
		return q.ClaimScheduledChanges(ctx, leaseEnds, now, rowLimit(limit))
	})
	if err != nil {
		return nil, fmt.Errorf("claim scheduled changes: %w", err)
	}
	return each(rows, scheduledFromRow), nil
}

// StepScheduled makes a due change, or takes it back, in the name of who scheduled it. It does nothing if another process
// did, or if the change was canceled. What cannot be done fails for good, unless the database is away.
func (s *Store) StepScheduled(ctx context.Context, due *rules.ScheduledChange, now time.Time) error {
	writer := s.As(due.By).acting(scheduledAct(due.ID))
	err := writer.inTenant(ctx, classBackground, due.TenantID, func(ctx context.Context, w write) error {
		row, err := w.ScheduledChange(ctx, due.TenantID, due.ID)
		switch {
		case err != nil:
			return err
		case row.State != string(due.State) || row.DueAt == nil || row.DueAt.After(now):
			return errUnchanged
		case due.State == rules.ScheduledInForce:
			_, err = w.takeBack(ctx, row, now)
		default:
			_, err = w.makeScheduled(ctx, row, now)
		}
		return err
	})
	if err == nil || isAway(err) || errors.Is(err, rules.ErrAway) || errors.Is(err, rules.ErrBeingWritten) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	failure := "It could not be made; the log says why."
	var wrong rules.FieldErrors
	var unknown rules.UnknownToProcessError
	switch {
	case errors.As(err, &wrong):
		failure = "The rule would not be valid: " + wrong.Error() + "."
	case errors.As(err, &unknown):
		failure = "It could not be made: " + unknown.Error() + "."
	}
	return errors.Join(err, writer.failScheduled(ctx, due, failure, now))
}

func scheduledAct(id int64) string { return fmt.Sprintf("scheduled change %d", id) }

// failScheduled notes that a change could not be made or taken back.
func (s Writer) failScheduled(ctx context.Context, due *rules.ScheduledChange, failure string, now time.Time) error {
	return s.inTenantAs(ctx, s.by, due.TenantID, func(ctx context.Context, q *dbsqlc.Queries) error {
		row, err := q.ScheduledChange(ctx, due.TenantID, due.ID)
		if err != nil || row.State != string(due.State) {
			return err
		}
		row.State, row.DueAt, row.EndedAt, row.Failure = string(rules.ScheduledFailed), nil, &now, failure
		_, err = write{Queries: q, tenant: due.TenantID}.stepScheduled(ctx, row)
		return err
	})
}

// makeScheduled makes a change whose time has come.
func (w write) makeScheduled(ctx context.Context, row dbsqlc.ScheduledChange, now time.Time) (dbsqlc.ScheduledChange, error) {
	live, err := w.ruleAt(ctx, row.RuleID, rules.AnyVersion)
	row.DueAt, row.EndedAt = nil, &now
	switch {
	case errors.Is(err, pgx.ErrNoRows), errors.Is(err, rules.ErrNotFound):
		row.State, row.Failure = string(rules.ScheduledFailed), "The rule was removed before."
		return w.stepScheduled(ctx, row)
	case err != nil:
		return row, err
	case row.EndsAt != nil && !row.EndsAt.After(now):
		row.State, row.Failure = string(rules.ScheduledFailed), "Nothing ran that could have made it before its end."
		return w.stepScheduled(ctx, row)
	}
	if row.Before, err = fieldsLike(&live, row.Fields); err != nil {
		return row, err
	}
	if err := w.setFields(ctx, &live, row.Fields); err != nil {
		return row, err
	}
	row.State, row.AppliedAt = string(rules.ScheduledDone), &now
	if row.EndsAt != nil {
		row.State, row.DueAt, row.EndedAt = string(rules.ScheduledInForce), row.EndsAt, nil
	}
	return w.stepScheduled(ctx, row)
}

// takeBack sets the fields of a change to what they were, unless somebody edited one of them.
func (w write) takeBack(ctx context.Context, row dbsqlc.ScheduledChange, now time.Time) (dbsqlc.ScheduledChange, error) {
	row.DueAt, row.EndedAt = nil, &now
	live, err := w.ruleAt(ctx, row.RuleID, rules.AnyVersion)
	if errors.Is(err, pgx.ErrNoRows) || errors.Is(err, rules.ErrNotFound) {
		row.State, row.Failure = string(rules.ScheduledEdited), "The rule was removed, so nothing was taken back."
		return w.stepScheduled(ctx, row)
	}
	if err != nil {
		return row, err
	}
	asLeft, err := withFields(&live, row.Fields)
	if err != nil {
		return row, err
	}
	if !sameRule(&live, &asLeft) {
		row.State, row.Failure = string(rules.ScheduledEdited), "Somebody edited the rule meanwhile, so nothing was taken back."
		return w.stepScheduled(ctx, row)
	}
	if err := w.setFields(ctx, &live, row.Before); err != nil {
		return row, err
	}
	row.State = string(rules.ScheduledDone)
	return w.stepScheduled(ctx, row)
}

func (w write) stepScheduled(ctx context.Context, row dbsqlc.ScheduledChange) (dbsqlc.ScheduledChange, error) {
	return w.StepScheduledChange(ctx, dbsqlc.StepScheduledChangeParams{
		State: row.State, DueAt: row.DueAt, Before: row.Before, AppliedAt: row.AppliedAt, EndedAt: row.EndedAt, Failure: row.Failure,
		TenantID: row.TenantID, ChangeID: row.ChangeID,
	})
}

// setFields updates a rule by some columns, if it is valid then.
func (w write) setFields(ctx context.Context, live *rules.Rule, fields []byte) error {
	after, err := withFields(live, fields)
	if err != nil {
		return err
	}
	if wrong := after.Validate(map[string]bool{after.Plan: true}); len(wrong) > 0 {
		return wrong
	}
	if sameRule(live, &after) {
		return nil
	}
	_, err = w.updateRule(ctx, after)
	return err
}

// columnsOf returns what can be changed of a rule, by column.
func columnsOf(rule *rules.Rule) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(imageOf(rule))
	if err != nil {
		return nil, fmt.Errorf("encode rule %d: %w", rule.ID, err)
	}
	columns := map[string]json.RawMessage{}
	err = json.Unmarshal(text, &columns)
	return columns, err
}

// changedFields returns the columns that differ, as they are after. It is rules.FieldErrors if there are none.
func changedFields(before, after *rules.Rule) ([]byte, error) {
	was, err := columnsOf(before)
	if err != nil {
		return nil, err
	}
	becomes, err := columnsOf(after)
	if err != nil {
		return nil, err
	}
	for name, value := range was {
		if string(value) == string(becomes[name]) {
			delete(becomes, name)
		}
	}
	if len(becomes) == 0 {
		return nil, rules.FieldErrors{{Field: "change", Message: "must change something of the rule"}}
	}
	return json.Marshal(becomes)
}

// fieldsLike returns the rule's values of the columns that fields names.
func fieldsLike(rule *rules.Rule, fields []byte) ([]byte, error) {
	values, err := columnsOf(rule)
	if err != nil {
		return nil, err
	}
	named := map[string]json.RawMessage{}
	if err := json.Unmarshal(fields, &named); err != nil {
		return nil, fmt.Errorf("read the fields of a scheduled change: %w", err)
	}
	for name := range named {
		named[name] = values[name]
	}
	return json.Marshal(named)
}

// withFields returns the rule with some columns set.
func withFields(rule *rules.Rule, fields []byte) (rules.Rule, error) {
	image := imageOf(rule)
	if err := json.Unmarshal(fields, &image); err != nil {
		return rules.Rule{}, fmt.Errorf("read the fields of a scheduled change: %w", err)
	}
	after := image.rule()
	after.TenantID, after.Pattern, after.Plan, after.Name, after.Version = rule.TenantID, rule.Pattern, rule.Plan, rule.Name, rule.Version
	return after, nil
}

// imageOf is the inverse of ruleImage.rule.
func imageOf(rule *rules.Rule) ruleImage {
	shape := shapeOf(rule)
	return ruleImage{
		RuleID: rule.ID, RatePerSecond: rule.RatePerSecond, RateUnit: rule.RateUnit, BurstCapacity: rule.Burst, Algorithm: rule.Algorithm,
		Mode: rule.Mode, Action: rule.Action, FailureMode: unlessZero(string(rule.FailureMode)), IsActive: rule.Active, Description: rule.Description,
		WindowSeconds: shape.WindowSeconds, WindowCalendar: shape.WindowCalendar, WindowZone: shape.WindowZone, WindowStartDay: shape.WindowStartDay,
		RefillIntervalSeconds: shape.RefillIntervalSeconds, MaxHoldSeconds: shape.MaxHoldSeconds, NotifyAt: shape.NotifyAt,
		AdaptBackend: shape.AdaptBackend, AdaptFloorPercent: shape.AdaptFloorPercent, AdaptP99Ms: shape.AdaptP99Ms,
		AdaptErrorPercent: shape.AdaptErrorPercent, NeverLeased: rule.NeverLeased, ExpiresAt: orNull(rule.ExpiresAt),
	}
}

func scheduledFromRow(row dbsqlc.ScheduledChange) rules.ScheduledChange {
	return rules.ScheduledChange{
		ID: row.ChangeID, TenantID: row.TenantID, RuleID: row.RuleID, RequestedAt: row.RequestedAt.UTC(),
		By:    rules.Actor{Kind: rules.ActorKind(row.RequestedByKind), ID: row.RequestedByID, Name: row.RequestedByName},
		Patch: row.Patch, StartsAt: row.StartsAt.UTC(), EndsAt: orZero(row.EndsAt), State: rules.ScheduledState(row.State),
		AppliedAt: orZero(row.AppliedAt), EndedAt: orZero(row.EndedAt), Failure: row.Failure,
	}
}
