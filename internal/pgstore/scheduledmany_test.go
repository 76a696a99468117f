package pgstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

func (w *world) column(t *testing.T, number int) (all []rules.Rule) {
	t.Helper()
	plan := must(w.CreatePlan(t.Context(), rules.Plan{TenantID: w.ours.ID, Name: "column"}))(t).Name
	for i := range number {
		all = append(all, must(w.CreateRule(t.Context(),
			limit(t, w.ours.ID, fmt.Sprintf("endpoint:/%d", i), plan, "")))(t))
	}
	return all
}

func (w *world) burstsAre(t *testing.T, all []rules.Rule, want ...int64) {
	t.Helper()
	got := make([]int64, len(all))
	for i := range all {
		rule, err := w.Rule(t.Context(), all[i].TenantID, all[i].ID)
		if err != nil && !errors.Is(err, rules.ErrNotFound) {
			t.Fatal(err)
		}
		got[i] = rule.Burst
	}
	if !slices.Equal(got, want) {
		t.Errorf("the bursts are %v, want %v", got, want)
	}
}

func (w *world) endedAs(t *testing.T, change rules.ScheduledChange, state rules.ScheduledState, failure string,
	ofRules ...string,
) {
	t.Helper()
	now := must(w.ScheduledChange(t.Context(), change.TenantID, change.ID))(t)
	var got []string
	for _, rule := range now.Rules {
		got = append(got, rule.Failure)
	}
	if now.State != state || now.Failure != failure || !slices.Equal(got, ofRules) {
		t.Errorf("the change is %s, %q and %q, want %s, %q and %q", now.State, now.Failure, got, state, failure,
			ofRules)
	}
}

func (w *world) edit(t *testing.T, rule rules.Rule, burst int64) {
	t.Helper()
	now := must(w.Rule(t.Context(), rule.TenantID, rule.ID))(t)
	now.Burst = burst
	must(w.UpdateRule(t.Context(), now))(t)
}

const (
	wasRemoved = "The rule was removed before."
	wasEdited  = "Somebody edited the rule meanwhile, so nothing was taken back."
	isGone     = "The rule was removed, so nothing was taken back."
)

func TestAChangeOfAColumnIsMadeAndTakenBackAsOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, all := t.Context(), w.column(t, 3)
	was := all[0].Burst
	change := w.schedule(t, 20, friday, all...)
	if change.Title != "3 limits of column" || len(change.Rules) != 3 {
		t.Errorf("%q is of %d rules", change.Title, len(change.Rules))
	}
	if steps := w.runScheduled(t, monday); steps != 1 {
		t.Errorf("it takes %d steps to make it", steps)
	}
	w.burstsAre(t, all, 20, 20, 20)
	w.endedAs(t, change, rules.ScheduledInForce, "", "", "", "")
	if steps := w.runScheduled(t, friday); steps != 1 {
		t.Errorf("it takes %d steps to take it back", steps)
	}
	w.burstsAre(t, all, was, was, was)
	w.endedAs(t, change, rules.ScheduledDone, "", "", "", "")
	if listed := must(w.ScheduledChanges(ctx, w.ours.ID, all[1].ID, false, 0, 10))(t); len(listed) != 1 ||
		len(listed[0].Rules) != 3 {
		t.Errorf("the second rule has the changes %+v", listed)
	}

	got := lines(t, connect(t, w.url),
		`SELECT concat_ws(' ', count(*), count(*) FILTER (WHERE object_kind = 'rule'), min(actor_name))
		FROM audit_event WHERE tenant_id = $1 AND act = $2 GROUP BY change_id ORDER BY change_id`, w.ours.ID,
		fmt.Sprint("scheduled change ", change.ID))
	if want := slices.Repeat([]string{"4 3 " + tester.Name}, 2); !slices.Equal(got, want) {
		t.Errorf("the audit log has %q, want %q", got, want)
	}
}

func TestAChangeOfAColumnLeavesOutWhatWasRemovedOrCannotBeChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, all := t.Context(), w.column(t, 3)
	was := all[0].Burst
	after := withBurst(20, all...)
	after[2].RatePerSecond = 0.5
	change := must(w.Schedule(ctx, scheduled(friday, all...), after))(t)
	if err := w.RemoveRule(ctx, w.ours.ID, all[1].ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	window := must(w.Rule(ctx, w.ours.ID, all[2].ID))(t)
	window.Algorithm, window.RatePerSecond, window.Window = rules.FixedWindow, 0, rules.Window{Length: time.Hour}
	must(w.UpdateRule(ctx, window))(t)

	w.runScheduled(t, monday)
	w.burstsAre(t, all, 20, 0, was)
	invalid := "The rule would not be valid: " + func() string {
		window.RatePerSecond = 0.5
		return window.Validate(map[string]bool{window.Plan: true}).Error()
	}() + "."
	w.endedAs(t, change, rules.ScheduledInForce, "2 of 3 rules were not changed.", "", wasRemoved, invalid)
	w.runScheduled(t, friday)
	w.burstsAre(t, all, was, 0, was)
	w.endedAs(t, change, rules.ScheduledDone, "2 of 3 rules were not changed.", "", wasRemoved, invalid)

	now := func(rule rules.Rule) rules.Rule { return must(w.Rule(ctx, w.ours.ID, rule.ID))(t) }
	none := w.schedule(t, 20, friday, now(all[0]), now(window))
	for _, rule := range []rules.Rule{all[0], window} {
		if err := w.RemoveRule(ctx, w.ours.ID, rule.ID, rules.AnyVersion); err != nil {
			t.Fatal(err)
		}
	}
	w.runScheduled(t, monday)
	w.endedAs(t, none, rules.ScheduledFailed, "None of the 2 rules was changed.", wasRemoved, wasRemoved)
}

func TestAChangeOfAColumnLeavesOutWhatTheWriteWouldRefuse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := w.column(t, 4)
	was := all[0].Burst
	w.adaptTo(t, rules.MaxAdapting-1)
	after := withBurst(20, all...)
	after[0].Meter = "tokens"
	after[1].Adapt, after[2].Adapt = toSearch, toSearch
	change := must(w.Schedule(t.Context(), scheduled(friday, all...), after))(t)
	const (
		otherMeter = "The rule would not be valid: meter: must stay requests: the buckets of a rule count one thing. " +
			"Make another rule for tokens."
		noRoom = "The rule would not be valid: adapt: must be left out: at most 100 rules of a tenant can adapt."
	)
	w.runScheduled(t, monday)
	w.burstsAre(t, all, was, 20, was, 20)
	w.endedAs(t, change, rules.ScheduledInForce, "2 of 4 rules were not changed.", otherMeter, "", noRoom, "")
	w.runScheduled(t, friday)
	w.burstsAre(t, all, was, was, was, was)
}

func TestAChangeOfAColumnIsNotTakenBackWhereSomebodyEditedIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, all := t.Context(), w.column(t, 4)
	was := all[0].Burst
	change := w.schedule(t, 20, friday, all...)
	w.edit(t, all[3], 30) // before it begins: the change sets it all the same, and gives it back
	w.runScheduled(t, monday)
	w.edit(t, all[0], 25)
	if err := w.RemoveRule(ctx, w.ours.ID, all[1].ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	w.runScheduled(t, friday)
	w.burstsAre(t, all, 25, 0, was, 30)
	w.endedAs(t, change, rules.ScheduledEdited, "2 of 4 rules were not taken back.", wasEdited, isGone, "", "")

	left := []rules.Rule{must(w.Rule(ctx, w.ours.ID, all[2].ID))(t), must(w.Rule(ctx, w.ours.ID, all[3].ID))(t)}
	early := w.schedule(t, 40, friday, left...)
	w.runScheduled(t, monday)
	w.burstsAre(t, left, 40, 40)
	must(w.CancelScheduled(ctx, w.ours.ID, early.ID))(t)
	w.burstsAre(t, left, was, 30)
	w.endedAs(t, early, rules.ScheduledDone, "", "", "")
}

func TestAChangeOfManyRulesIsScheduledAsAWholeOrNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, all := t.Context(), w.column(t, 5)
	w.schedule(t, 20, friday, all[0])
	w.edit(t, all[1], 11)
	if err := w.RemoveRule(ctx, w.ours.ID, all[2].ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	asked := []rules.Rule{all[0], all[1], all[2], all[3], all[3], all[4], w.theirs.user}
	after := withBurst(21, asked...)
	after[5].Burst = all[4].Burst
	change := scheduled(friday, asked...)
	change.TenantID = w.ours.ID
	_, err := w.Schedule(ctx, change, after)
	var wrong ruleset.RuleChangeErrors
	if !errors.As(err, &wrong) {
		t.Fatalf("scheduling answers %v", err)
	}
	var fields rules.FieldErrors
	for i, want := range map[int]error{
		0: rules.ErrScheduledOverlap, 1: rules.ErrChanged, 2: rules.ErrNotFound,
		6: rules.ErrNotFound,
	} {
		if !errors.Is(wrong[i], want) {
			t.Errorf("change %d: %v, want %v", i, wrong[i], want)
		}
	}
	for i, want := range map[int]string{4: "rule_id", 5: "change"} {
		if !errors.As(wrong[i], &fields) || fields[0].Field != want {
			t.Errorf("change %d: %v, want %s", i, wrong[i], want)
		}
	}
	if len(wrong) != 6 {
		t.Errorf("wrong are %v", wrong)
	}
	if open := must(w.ScheduledChanges(ctx, w.ours.ID, 0, true, 0, 10))(t); len(open) != 1 {
		t.Errorf("%d changes are scheduled", len(open))
	}
}

func TestAChangeWithoutAStartIsMadeAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, all := t.Context(), w.column(t, 2)
	was := all[0].Burst
	now := scheduled(time.Now().Add(time.Hour), all...)
	now.StartsAt = time.Time{}
	change := must(w.Schedule(ctx, now, withBurst(20, all...)))(t)
	w.burstsAre(t, all, 20, 20)
	if change.State != rules.ScheduledInForce || change.AppliedAt.IsZero() {
		t.Errorf("the change is %+v", change)
	}
	filter := auth.AuditFilter{ObjectKind: "rule", ObjectID: fmt.Sprint(all[0].ID)}
	entries, _, err := w.Audit(ctx, w.ours.ID, filter, auth.LogCursor{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if entries[0].Actor.Act != fmt.Sprint("scheduled change ", change.ID) {
		t.Errorf("the audit log has %+v", entries[0])
	}
	w.runScheduled(t, now.EndsAt)
	w.burstsAre(t, all, was, was)
	w.endedAs(t, change, rules.ScheduledDone, "", "", "")
}

func TestAScheduledChangeIsMadeAlsoIfWhoScheduledItHasLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	leaver := must(w.CreateAccount(ctx, tester, auth.Account{Email: "leaver@example.com", Name: "Leaver"}, "hash"))(t)
	must(w.AddMember(ctx, tester, w.ours.ID, leaver.ID, auth.Owner))(t)
	stays := must(w.CreateAccount(ctx, tester, auth.Account{Email: "stays@example.com", Name: "Stays"}, "hash"))(t)
	must(w.AddMember(ctx, tester, w.ours.ID, stays.ID, auth.Owner))(t) // somebody must
	by := rules.Actor{Kind: rules.ActorAccount, ID: fmt.Sprint(leaver.ID), Name: leaver.Email}
	change := must(w.As(by).Schedule(ctx, scheduled(friday, w.ours.user), withBurst(20, w.ours.user)))(t)
	if err := w.RemoveMember(ctx, tester, w.ours.ID, leaver.ID, rules.AnyVersion, false); err != nil {
		t.Fatal(err)
	}
	w.runScheduled(t, monday)
	w.scheduledIs(t, change, 20, rules.ScheduledInForce)
	filter := auth.AuditFilter{ObjectKind: "rule", ObjectID: fmt.Sprint(w.ours.user.ID)}
	entries, _, err := w.Audit(ctx, w.ours.ID, filter, auth.LogCursor{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if entries[0].Actor.Name != leaver.Email {
		t.Errorf("it was made by %+v", entries[0].Actor)
	}
}
