package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

const scheduledKind = "scheduled changes"

// ScheduledWork returns the kind of job that makes a tenant's due changes and takes them back, the earliest first, so
// that changes of one rule keep their order. Due times are compared with the database's clock, which also set the start
// of changes that begin at once. The job is never parked: a change would wait for ever.
func (s *Store) ScheduledWork() jobs.Kind {
	const atOnce, longest = 4, 5 * time.Minute
	return jobs.Kind{
		Name: scheduledKind, MaxConcurrent: atOnce, PerTenant: 1, Timeout: longest, Attempts: jobs.Endless,
		Do: func(ctx context.Context, job *jobs.Job) (time.Time, error) {
			change, err := strconv.ParseInt(job.About, 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("read the id of a scheduled change: %w", err)
			}
			now, err := s.DatabaseTime(ctx)
			if err != nil {
				return time.Time{}, err
			}
			return s.StepScheduledOf(ctx, rules.TenantID(job.Tenant), change, now)
		},
	}
}

// StepScheduledOf makes a tenant's due changes or takes them back, and returns when one of them is due again.
func (s *Store) StepScheduledOf(ctx context.Context, tenant rules.TenantID, id int64, now time.Time) (again time.Time,
	err error,
) {
	for failed := int64(0); ; {
		first, err := s.queriesFor(classRead, only(tenant)).FirstOpenScheduledChange(ctx, tenant)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && first.DueAt.After(now) {
			break
		}
		if err == nil {
			due := scheduledFromRow(first, nil)
			err = s.StepScheduled(ctx, &due, now)
		}
		if err != nil && (ctx.Err() != nil || failed == first.ChangeID) {
			return time.Time{}, domainError(err)
		}
		if err != nil { // it has failed for good, unless it is the first again
			failed = first.ChangeID
			s.log.WarnContext(ctx, "a scheduled change was not made or taken back", "tenant", int64(tenant), "change",
				first.ChangeID, "error", err)
		}
	}
	row, err := s.queriesFor(classRead, only(tenant)).ScheduledChange(ctx, tenant, id)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && row.DueAt == nil {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, domainError(err)
	}
	return *row.DueAt, nil
}

// StepScheduled makes a due change or takes it back, as the account that scheduled it, even if that account has left
// the tenant. Any error except an outage of the database fails the change for good.
func (s *Store) StepScheduled(ctx context.Context, due *rules.ScheduledChange, now time.Time) error {
	writer := s.As(due.By).acting(scheduledAct(due.ID))
	err := panics.Do(s.log, "a scheduled change", func() error {
		return writer.inTenant(ctx, classBulk, due.TenantID, func(ctx context.Context, w write) error {
			row, parts, err := scheduledAt(ctx, w.Queries, due.TenantID, due.ID)
			switch {
			case err != nil:
				return err
			case row.State != string(due.State) || row.DueAt == nil || row.DueAt.After(now):
				return errUnchanged
			case due.State == rules.ScheduledInForce:
				_, err = w.takeBack(ctx, row, parts, now)
			default:
				_, err = w.makeScheduled(ctx, row, parts, now)
			}
			return err
		})
	})
	if err == nil || isAway(err) || errors.Is(err, rules.ErrAway) || errors.Is(err, rules.ErrBeingWritten) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	failure := "It could not be made; the log says why."
	if reason := refusalOf(err); reason != "" {
		failure = reason
	}
	return errors.Join(err, writer.failScheduled(ctx, due, failure, now))
}

const removedBefore = "The rule was removed before."

func scheduledAct(id int64) string { return fmt.Sprintf("scheduled change %d", id) }

func refusalOf(err error) string {
	var wrong rules.FieldErrors
	var unknown rules.UnknownToProcessError
	switch {
	case errors.As(err, &wrong):
		return "The rule would not be valid: " + wrong.Error() + "."
	case errors.As(err, &unknown):
		return "It could not be made: " + unknown.Error() + "."
	}
	return ""
}

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

func (w write) makeNow(
	ctx context.Context, by rules.Actor, row dbsqlc.ScheduledChange, parts []dbsqlc.ScheduledChangeRule, now time.Time,
) (dbsqlc.ScheduledChange, error) {
	if _, err := w.LockTenant(ctx, w.tenant, actorSetting(by)); err != nil {
		return row, err
	}
	changed, err := w.setParts(ctx, parts, removedBefore, madeFields)
	if err != nil {
		return row, err
	}
	wrong := ruleset.RuleChangeErrors{}
	for i := range parts {
		if parts[i].Failure != "" {
			wrong[i] = rules.FieldErrors{{Field: "change", Message: "cannot be made: " + parts[i].Failure}}
		}
	}
	if len(wrong) > 0 {
		return row, wrong
	}
	return w.stepMade(ctx, row, parts, changed, now)
}

func (w write) makeScheduled(
	ctx context.Context, row dbsqlc.ScheduledChange, parts []dbsqlc.ScheduledChangeRule, now time.Time,
) (dbsqlc.ScheduledChange, error) {
	if row.EndsAt != nil && !row.EndsAt.After(now) {
		row.DueAt, row.EndedAt = nil, &now
		row.State, row.Failure = string(rules.ScheduledFailed), "Nothing ran that could have made it before its end."
		return w.stepScheduled(ctx, row)
	}
	changed, err := w.setParts(ctx, parts, removedBefore, madeFields)
	if err != nil {
		return row, err
	}
	return w.stepMade(ctx, row, parts, changed, now)
}

func madeFields(part *dbsqlc.ScheduledChangeRule, live *rules.Rule) (fields []byte, refusal string, err error) {
	part.Before, err = fieldsLike(live, part.Fields)
	return part.Fields, "", err
}

func (w write) stepMade(
	ctx context.Context, row dbsqlc.ScheduledChange, parts []dbsqlc.ScheduledChangeRule, changed int, now time.Time,
) (dbsqlc.ScheduledChange, error) {
	row.DueAt, row.EndedAt, row.Failure = nil, &now, leftOut(parts, len(parts)-changed, "changed")
	switch {
	case changed == 0:
		row.State = string(rules.ScheduledFailed)
	case row.EndsAt != nil:
		row.State, row.DueAt, row.EndedAt, row.AppliedAt = string(rules.ScheduledInForce), row.EndsAt, nil, &now
	default:
		row.State, row.AppliedAt = string(rules.ScheduledDone), &now
	}
	return w.stepScheduled(ctx, row)
}

// takeBack leaves out a rule if one of the fields that the change set was edited meanwhile.
func (w write) takeBack(
	ctx context.Context, row dbsqlc.ScheduledChange, parts []dbsqlc.ScheduledChangeRule, now time.Time,
) (dbsqlc.ScheduledChange, error) {
	made := 0
	for i := range parts {
		if parts[i].Failure == "" {
			made++
		}
	}
	back, err := w.setParts(ctx, parts, "The rule was removed, so nothing was taken back.",
		func(part *dbsqlc.ScheduledChangeRule, live *rules.Rule) (fields []byte, refusal string, err error) {
			asLeft, err := withFields(live, part.Fields)
			if err == nil && !live.HasSameFields(&asLeft) {
				refusal = "Somebody edited the rule meanwhile, so nothing was taken back."
			}
			return part.Before, refusal, err
		})
	if err != nil {
		return row, err
	}
	row.DueAt, row.EndedAt, row.State = nil, &now, string(rules.ScheduledDone)
	if back < made {
		row.State, row.Failure = string(rules.ScheduledEdited), leftOut(parts, made-back, "taken back")
	}
	return w.stepScheduled(ctx, row)
}

// setParts returns how many rules were set. Rules that fieldsOf refuses, or that would not be valid, are left out with
// a Failure.
func (w write) setParts(
	ctx context.Context, parts []dbsqlc.ScheduledChangeRule, removed string,
	fieldsOf func(part *dbsqlc.ScheduledChangeRule, live *rules.Rule) (fields []byte, refusal string, err error),
) (set int, err error) {
	live, err := w.liveRules(ctx, each(parts,
		func(part dbsqlc.ScheduledChangeRule) rules.RuleID { return part.RuleID }))
	if err != nil {
		return 0, err
	}
	var changed []ruleset.Change[rules.Rule]
	var partsOf []*dbsqlc.ScheduledChangeRule // of changed
	for i := range parts {
		part := &parts[i]
		if part.Failure != "" {
			continue
		}
		rule, found := live[part.RuleID]
		if !found {
			part.Failure = removed
			continue
		}
		fields, refusal, err := fieldsOf(part, &rule)
		if err != nil {
			return 0, err
		}
		if part.Failure = refusal; refusal != "" {
			continue
		}
		after, err := withFields(&rule, fields)
		if err != nil {
			return 0, err
		}
		if err := w.requireValid(ctx, &rule, &after); err != nil {
			if part.Failure = refusalOf(err); part.Failure == "" {
				return 0, err
			}
			continue
		}
		set++
		if !rule.HasSameFields(&after) {
			changed = append(changed, ruleset.Change[rules.Rule]{Before: &rule, After: &after})
			partsOf = append(partsOf, part)
		}
	}
	fitting, err := w.leaveOutAdapting(ctx, changed, partsOf)
	if err != nil {
		return 0, err
	}
	set -= len(changed) - len(fitting)
	if err := w.updateMany(ctx, fitting); err != nil {
		return 0, err
	}
	return set, w.StepScheduledRules(ctx, dbsqlc.StepScheduledRulesParams{
		TenantID: w.tenant, ChangeID: parts[0].ChangeID,
		RuleIds:  each(parts, func(part dbsqlc.ScheduledChangeRule) int64 { return int64(part.RuleID) }),
		Befores:  each(parts, func(part dbsqlc.ScheduledChangeRule) string { return string(part.Before) }),
		Failures: each(parts, func(part dbsqlc.ScheduledChangeRule) string { return part.Failure }),
	})
}

func (w write) requireValid(ctx context.Context, before, after *rules.Rule) error {
	if err := wrongRule(after); err != nil {
		return err
	}
	if wrong := after.WrongMeterChange(before); len(wrong) > 0 {
		return wrong
	}
	return w.requireKnown(ctx, *after)
}

func (w write) leaveOutAdapting(
	ctx context.Context, changed []ruleset.Change[rules.Rule], parts []*dbsqlc.ScheduledChangeRule,
) (fitting []ruleset.Change[rules.Rule], err error) {
	fitting = slices.Clone(changed)
	for {
		err := w.requireAdaptRoom(ctx,
			each(fitting, func(change ruleset.Change[rules.Rule]) rules.Rule { return *change.After }))
		last := len(fitting) - 1
		for last >= 0 && (fitting[last].Before.Adapt.Backend != "" || fitting[last].After.Adapt.Backend == "") {
			last--
		}
		refusal := refusalOf(err)
		if refusal == "" || last < 0 {
			return fitting, err
		}
		parts[last].Failure = refusal
		fitting, parts = slices.Delete(fitting, last, last+1), slices.Delete(parts, last, last+1)
	}
}

func (w write) updateMany(ctx context.Context, changed []ruleset.Change[rules.Rule]) error {
	if len(changed) == 0 {
		return nil
	}
	if err := w.countLater(ctx); err != nil {
		return err
	}
	if _, _, err := w.updateRules(ctx, changed); err != nil {
		return err
	}
	return errors.Join(w.CountRules(ctx, int64(w.tenant)), w.CountHeldNow(ctx, int64(w.tenant)))
}

func (w write) stepScheduled(ctx context.Context, row dbsqlc.ScheduledChange) (dbsqlc.ScheduledChange, error) {
	if row.DueAt == nil { // nothing is left to do, perhaps long before its job is due
		if err := w.DropJobAbout(ctx, w.tenant, scheduledKind, strconv.FormatInt(row.ChangeID, 10)); err != nil {
			return row, err
		}
	}
	return w.StepScheduledChange(ctx, dbsqlc.StepScheduledChangeParams{
		State: row.State, DueAt: row.DueAt, AppliedAt: row.AppliedAt, EndedAt: row.EndedAt, Failure: row.Failure,
		TenantID: row.TenantID, ChangeID: row.ChangeID,
	})
}

func leftOut(parts []dbsqlc.ScheduledChangeRule, number int, done string) string {
	switch {
	case number == 0:
		return ""
	case len(parts) == 1:
		return parts[0].Failure
	case number == len(parts):
		return fmt.Sprintf("None of the %d rules was %s.", len(parts), done)
	case number == 1:
		return fmt.Sprintf("1 of %d rules was not %s.", len(parts), done)
	}
	return fmt.Sprintf("%d of %d rules were not %s.", number, len(parts), done)
}
