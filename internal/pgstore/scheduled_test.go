package pgstore_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

var (
	monday = time.Now().Add(24 * time.Hour).UTC().Truncate(time.Microsecond)
	friday = monday.Add(4 * 24 * time.Hour)
)

func scheduled(until time.Time, all ...rules.Rule) rules.ScheduledChange {
	change := rules.ScheduledChange{TenantID: all[0].TenantID, StartsAt: monday, EndsAt: until}
	for i := range all {
		change.Rules = append(change.Rules, rules.ScheduledRule{RuleID: all[i].ID, Patch: []byte(`{}`)})
	}
	return change
}

func (w *world) schedule(t *testing.T, burst int64, until time.Time, all ...rules.Rule) rules.ScheduledChange {
	t.Helper()
	return must(w.Schedule(t.Context(), scheduled(until, all...), withBurst(burst, all...)))(t)
}

func withBurst(burst int64, all ...rules.Rule) []rules.Rule {
	after := slices.Clone(all)
	for i := range after {
		after[i].Burst = burst
	}
	return after
}

func (w *world) runScheduled(t *testing.T, now time.Time) (steps int) {
	t.Helper()
	for {
		var due int
		err := connect(t, w.url).QueryRow(t.Context(), "SELECT count(*) FROM scheduled_change WHERE due_at <= $1",
			now).Scan(&due)
		if err != nil || due == 0 {
			return steps
		}
		steps += due
		for _, tenant := range []rules.TenantID{w.ours.ID, w.theirs.ID} {
			if _, err := w.StepScheduledOf(t.Context(), tenant, 0, now); err != nil {
				t.Error(err)
			}
		}
	}
}

func (w *world) scheduledIs(t *testing.T, change rules.ScheduledChange, burst int64, state rules.ScheduledState) {
	t.Helper()
	rule := must(w.Rule(t.Context(), change.TenantID, change.Rules[0].RuleID))(t)
	now := must(w.ScheduledChange(t.Context(), change.TenantID, change.ID))(t)
	if rule.Burst != burst || now.State != state {
		t.Errorf("the burst is %d and the change %s (%s), want %d and %s", rule.Burst, now.State, now.Failure, burst,
			state)
	}
}

func TestAScheduledChangeIsMadeAndTakenBackInTheNameOfWhoScheduledIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, rule := t.Context(), w.ours.user
	change := w.schedule(t, 20, friday, rule)
	if steps := w.runScheduled(t, monday.Add(-time.Second)); steps != 0 {
		t.Errorf("%d steps were made before their time", steps)
	}
	edited := must(w.Rule(ctx, rule.TenantID, rule.ID))(t)
	edited.Description, edited.ExpiresAt = "edited before monday", friday.Add(24*time.Hour)
	must(w.UpdateRule(ctx, edited))(t)

	w.runScheduled(t, monday)
	w.scheduledIs(t, change, 20, rules.ScheduledInForce)
	w.runScheduled(t, friday.Add(-time.Second))
	w.scheduledIs(t, change, 20, rules.ScheduledInForce)
	w.runScheduled(t, friday.Add(time.Hour)) // a process that is late
	w.scheduledIs(t, change, rule.Burst, rules.ScheduledDone)
	if got := must(w.Rule(ctx, rule.TenantID, rule.ID))(t); got.Description != "edited before monday" ||
		!got.ExpiresAt.Equal(edited.ExpiresAt) || got.RatePerSecond != rule.RatePerSecond {
		t.Errorf("what the change does not name became %+v", got)
	}
	stays := w.schedule(t, 30, time.Time{}, must(w.Rule(ctx, rule.TenantID, rule.ID))(t))
	w.runScheduled(t, monday)
	w.scheduledIs(t, stays, 30, rules.ScheduledDone)

	got := lines(t, connect(t, w.url), `SELECT concat_ws(' ', actor_name, act, action, after->>'state') FROM audit_event
		WHERE tenant_id = $1 AND (object_kind = 'scheduled_change' AND object_id = $2 OR act = $3) ORDER BY audit_id`,
		rule.TenantID, fmt.Sprint(change.ID), fmt.Sprint("scheduled change ", change.ID))
	by, act := tester.Name+" ", fmt.Sprintf(" scheduled change %d update", change.ID)
	want := []string{
		by + " create waiting", tester.Name + act, tester.Name + act + " in_force", tester.Name + act,
		tester.Name + act + " done",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the audit log has %q, want %q", got, want)
	}
}

func TestAScheduledChangeDoesNotOverwriteWhatWasEditedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, rule := t.Context(), w.ours.user
	change := w.schedule(t, 20, friday, rule)
	w.runScheduled(t, monday)
	edited := must(w.Rule(ctx, rule.TenantID, rule.ID))(t)
	edited.Burst = 25
	must(w.UpdateRule(ctx, edited))(t)
	w.runScheduled(t, friday)
	w.scheduledIs(t, change, 25, rules.ScheduledEdited)

	daily := w.schedule(t, 21, friday, w.ours.daily)
	w.runScheduled(t, monday)
	after := must(w.CancelScheduled(ctx, w.ours.ID, daily.ID))(t)
	if after.State != rules.ScheduledDone {
		t.Errorf("a canceled change is %s", after.State)
	}
	w.scheduledIs(t, daily, w.ours.daily.Burst, rules.ScheduledDone)
	if _, err := w.CancelScheduled(ctx, w.theirs.ID, daily.ID); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("another tenant cancels ours: %v", err)
	}
}

func TestChangesOneAfterTheOtherLeaveWhatWasBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rule, tuesday := w.ours.user, monday.Add(24*time.Hour)
	later := scheduled(friday, rule)
	later.StartsAt = tuesday
	second := must(w.Schedule(t.Context(), later, withBurst(20, rule)))(t)
	first := w.schedule(t, 60, tuesday, rule)
	w.runScheduled(t, monday)
	w.scheduledIs(t, first, 60, rules.ScheduledInForce)
	w.runScheduled(t, tuesday)
	w.scheduledIs(t, first, 20, rules.ScheduledDone)
	w.scheduledIs(t, second, 20, rules.ScheduledInForce)
	w.runScheduled(t, friday)
	w.scheduledIs(t, second, rule.Burst, rules.ScheduledDone)
}

func TestAChangeMadeAtOnceWaitsForTheEndOfTheOneBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rule := w.ours.user
	past := scheduled(time.Now().Add(-time.Hour), rule)
	past.StartsAt = past.EndsAt.Add(-time.Hour)
	must(w.Schedule(t.Context(), past, withBurst(60, rule)))(t)
	w.runScheduled(t, past.StartsAt)
	now := must(w.Rule(t.Context(), rule.TenantID, rule.ID))(t)
	atOnce := scheduled(time.Now().Add(time.Hour), now)
	atOnce.StartsAt = time.Time{}
	var refused ruleset.RuleChangeErrors
	_, err := w.Schedule(t.Context(), atOnce, withBurst(20, now))
	if !errors.As(err, &refused) || !errors.Is(refused[0], rules.ErrScheduledOverlap) {
		t.Errorf("the error is %v", err)
	}
	w.runScheduled(t, time.Now())
	now = must(w.Rule(t.Context(), rule.TenantID, rule.ID))(t)
	must(w.Schedule(t.Context(), atOnce, withBurst(20, now)))(t)
}

func TestTwoProcessesMakeAScheduledChangeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, rule := t.Context(), w.ours.user
	change := w.schedule(t, 20, friday, rule)
	// The first process is slow, so another one claims the change after the lease, and both make it.
	due := must(w.ScheduledChange(ctx, w.ours.ID, change.ID))(t)
	for range 2 {
		if err := w.StepScheduled(ctx, &due, monday.Add(2*time.Minute)); err != nil {
			t.Error(err)
		}
	}
	w.scheduledIs(t, change, 20, rules.ScheduledInForce)
	if got := must(w.Rule(ctx, rule.TenantID, rule.ID))(t); got.Version != rule.Version+1 {
		t.Errorf("the rule has version %d, and had %d", got.Version, rule.Version)
	}
}

func TestAScheduledChangeThatCannotBeMadeSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, rule := t.Context(), w.ours.user
	late := w.schedule(t, 20, friday, rule)
	w.runScheduled(t, friday)
	w.scheduledIs(t, late, rule.Burst, rules.ScheduledFailed)

	slower := rule
	slower.RatePerSecond = 0.5
	change := must(w.Schedule(ctx, scheduled(time.Time{}, rule), []rules.Rule{slower}))(t)
	block := must(w.Rule(ctx, rule.TenantID, rule.ID))(t)
	block.Algorithm, block.RatePerSecond, block.Window = rules.FixedWindow, 0, rules.Window{Length: time.Hour}
	must(w.UpdateRule(ctx, block))(t)
	w.runScheduled(t, monday)
	w.scheduledIs(t, change, rule.Burst, rules.ScheduledFailed)
	if got := must(w.ScheduledChange(ctx, w.ours.ID, change.ID))(t); !strings.HasPrefix(got.Failure,
		"The rule would not be valid: rate") {
		t.Errorf("a window with a rate fails by %q", got.Failure)
	}

	gone := w.schedule(t, 20, friday, w.ours.daily)
	if err := w.RemoveRule(ctx, w.ours.ID, w.ours.daily.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	w.runScheduled(t, monday)
	if got := must(w.ScheduledChange(ctx, w.ours.ID, gone.ID))(t); got.State != rules.ScheduledFailed {
		t.Errorf("the change of a removed rule is %s", got.State)
	}
}

func TestManyDueChangesDelayNoOtherTenants(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	ctx, greedy := t.Context(), w.ours
	for i := range rules.MaxScheduled {
		rule := must(w.CreateRule(ctx, limit(t, greedy.ID, fmt.Sprintf("endpoint:/%d", i), "", "")))(t)
		w.schedule(t, 20, friday, rule)
	}
	_, err := w.Schedule(ctx, scheduled(time.Time{}, greedy.user), withBurst(20, greedy.user))
	wantError(t, err, rules.ErrTooManyScheduled)
	small := w.schedule(t, 20, friday, w.theirs.user)
	exec(t, w.url, "UPDATE job SET next_run_at = now() WHERE about <> ''")
	kind := w.ScheduledWork()
	claim := jobs.Claim{Kind: kind.Name, Room: kind.MaxConcurrent, PerTenant: kind.PerTenant}
	due, _, err := w.ClaimJobs(ctx, []jobs.Claim{claim})
	if err != nil || len(due) != 2 || !slices.ContainsFunc(due, func(j jobs.Job) bool {
		return j.About == strconv.FormatInt(small.ID, 10) && j.Tenant == int64(w.theirs.ID)
	}) {
		t.Errorf("the first claim has %+v (%v), want one of each tenant", due, err)
	}
	if steps := w.runScheduled(t, monday); steps != rules.MaxScheduled+1 {
		t.Errorf("%d steps follow, want %d", steps, rules.MaxScheduled+1)
	}
	w.scheduledIs(t, small, 20, rules.ScheduledInForce)
}

func TestWorkThatSomebodyWaitsForIsNeverParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, kind := range []jobs.Kind{w.ScheduledWork(), w.ErasureWork(threeBuckets)} {
		w.queueJobs(t, w.ours.ID, kind.Name, 1)
		exec(t, w.url, "UPDATE job SET attempts = 1000, about = 'no number' WHERE kind = $1", kind.Name)
		round(t, runner(w, slog.New(slog.DiscardHandler), kind))
		if w.jobsLike(t, fmt.Sprintf("kind = '%s' AND state = 'waiting' AND attempts = 1001 AND error <> '' AND "+
			"next_run_at < now() + interval '5 hours'", kind.Name)) != 1 {
			t.Errorf("after 1001 failures %s is not tried again", kind.Name)
		}
	}
}

func TestChangesThatOverlap(t *testing.T) {
	t.Parallel()
	at := func(hour int) time.Time { return monday.Add(time.Duration(hour) * time.Hour) }
	change := func(from, until int) *rules.ScheduledChange {
		c := &rules.ScheduledChange{StartsAt: at(from)}
		if until > 0 {
			c.EndsAt = at(until)
		}
		return c
	}
	for name, test := range map[string]struct {
		a, b *rules.ScheduledChange
		want bool
	}{
		"one after the other":        {change(1, 2), change(2, 3), false},
		"one within the other":       {change(1, 4), change(2, 3), true},
		"one over the other's end":   {change(1, 3), change(2, 4), true},
		"one that stays, within":     {change(1, 3), change(2, 0), true},
		"one that stays, before":     {change(1, 0), change(2, 3), false},
		"two that stay, at one time": {change(1, 0), change(1, 0), true},
	} {
		if test.a.Overlaps(test.b) != test.want || test.b.Overlaps(test.a) != test.want {
			t.Errorf("%s: want %v", name, test.want)
		}
	}
}

func TestAScheduledChangeIsReplacedWhileItWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rule := w.ours.user
	first := w.schedule(t, 60, friday, rule)
	later := scheduled(friday.Add(time.Hour), rule) // of the same time, which only the first would forbid
	later.Replaces = first.ID
	second := must(w.Schedule(t.Context(), later, withBurst(70, rule)))(t)
	if got := must(w.Writer.ScheduledChange(t.Context(), w.ours.ID,
		first.ID))(t); got.State != rules.ScheduledCanceled {
		t.Errorf("the replaced change is %s", got.State)
	}
	if n := w.jobsLike(t, "about = '"+strconv.FormatInt(first.ID, 10)+"'"); n != 0 {
		t.Errorf("the replaced change has left %d jobs", n)
	}
	w.runScheduled(t, monday)
	if got := must(w.Rule(t.Context(), w.ours.ID, rule.ID))(t); got.Burst != 70 {
		t.Errorf("the burst is %d", got.Burst)
	}
	for _, id := range []int64{first.ID, second.ID, 1 << 40} { // canceled, in force, unknown
		again := scheduled(friday.Add(2*time.Hour), rule)
		again.StartsAt, again.Replaces = friday.Add(90*time.Minute), id
		now := must(w.Rule(t.Context(), w.ours.ID, rule.ID))(t)
		_, err := w.Schedule(t.Context(), again, withBurst(80, now))
		wantError(t, err, rules.ErrChanged)
	}
}
