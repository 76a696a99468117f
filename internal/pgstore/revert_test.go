package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

func (w *world) content(t *testing.T) (text string) {
	t.Helper()
	query := `SELECT coalesce(string_agg(line, E'\n' ORDER BY line), '') FROM (
		SELECT 'tenant ' || (to_jsonb(t) - $2::text[])::text AS line FROM tenant t WHERE tenant_id = $1
		UNION ALL SELECT 'plan ' || (to_jsonb(t) - $2::text[])::text FROM plan t WHERE tenant_id = $1
			AND removed_at IS NULL
		UNION ALL SELECT 'use ' || to_jsonb(t)::text FROM plan_use t WHERE tenant_id = $1 AND rules + users > 0
		UNION ALL SELECT 'rule ' || (to_jsonb(t) - $2::text[])::text FROM rate_limit_rule t WHERE tenant_id = $1
			AND removed_at IS NULL
		UNION ALL SELECT 'override ' || (to_jsonb(t) - $2::text[])::text FROM rate_limit_override t
			WHERE tenant_id = $1 AND removed_at IS NULL
		UNION ALL SELECT 'user ' || (to_jsonb(t) - $2::text[])::text FROM plan_assignment t WHERE tenant_id = $1
			AND removed_at IS NULL
		UNION ALL SELECT 'key ' || (to_jsonb(t) - $2::text[])::text FROM api_key t WHERE tenant_id = $1
			AND revoked_at IS NULL
		UNION ALL SELECT 'alert ' || (to_jsonb(t) - $2::text[])::text FROM alert t WHERE tenant_id = $1
	) AS lines`
	raised := []string{"revision", "version", "updated_at", "created_at", "in_force_since"}
	if err := connect(t, w.url).QueryRow(t.Context(), query, w.ours.ID, raised).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

// Reverts go entry by entry or each change as a whole, the latest first; then the reverts are reverted.
func TestEveryWriteCanBeReverted(t *testing.T) {
	t.Parallel()
	final := []string{
		"RemoveTenant", "RestoreTenant", "RevokeKey", "RecordChange", "RecordChange that fails",
		"RecordKeyUses",
	}
	for name, test := range writes(t) {
		if slices.Contains(final, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, whole := range []bool{false, true} {
				w := newWorld(t)
				before, since := w.content(t), w.latest(t)
				if err := test.do(t.Context(), w); err != nil {
					t.Fatal(err)
				}
				written := w.content(t)
				reverts := w.revertSince(t, since, whole)
				if reverted := w.content(t); reverted != before {
					t.Errorf("whole %t: it was\n%s\nand is, reverted,\n%s", whole, before, reverted)
				}
				if name == "CreateKey" || name == "RotateKey" {
					continue // the revert revoked a key, which is final
				}
				for _, id := range slices.Backward(reverts) {
					if _, err := w.Revert(t.Context(), w.ours.ID, id, whole); err != nil {
						t.Fatalf("whole %t: revert the revert: %v", whole, err)
					}
				}
				if again := w.content(t); again != written {
					t.Errorf("whole %t: it was\n%s\nand is, with the revert reverted,\n%s", whole, written, again)
				}
			}
		})
	}
}

func (w *world) revertSince(t *testing.T, since auth.AuditID, whole bool) (reverts []auth.AuditID) {
	t.Helper()
	_, entries := w.written(t, w.ours.ID, since)
	var undone int64
	for _, entry := range slices.Backward(entries) {
		if whole && entry.Change == undone {
			continue
		}
		undone = entry.Change
		id, err := w.Revert(t.Context(), w.ours.ID, entry.ID, whole)
		if err != nil {
			t.Fatalf("revert %s %s %s: %v", entry.Action, entry.Object.Kind, entry.Object.ID, err)
		}
		reverts = append(reverts, id)
		if revert := must(w.AuditEntry(t.Context(), w.ours.ID, id))(t); revert.Object != entry.Object ||
			revert.ID <= entry.ID {
			t.Errorf("the entry of the revert is %+v", revert)
		}
	}
	return reverts
}

func TestAWholeChangeIsUndoneOrNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	w.try(t, w.ours.user, 5)
	alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	before, since := w.content(t), w.latest(t)
	if err := w.RemoveRule(ctx, ours, w.ours.user.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	w.revertSince(t, since, true)
	if after := w.content(t); after != before {
		t.Errorf("it was\n%s\nand is, with the removal undone,\n%s", before, after)
	}

	since = w.latest(t)
	if err := w.RemoveRule(ctx, ours, w.ours.user.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	_, entries := w.written(t, ours, since)
	changed := must(w.Alert(ctx, ours, alert.ID))(t)
	changed.Name = "renamed"
	must(w.UpdateAlert(ctx, tester, changed))(t)
	removed := w.content(t)
	_, err := w.Revert(ctx, ours, entries[0].ID, true)
	var clash *auth.UndoError
	if !errors.As(err, &clash) || len(clash.Clashes) != 1 || clash.Clashes[0].Entry.Object.Kind != "alert" ||
		!errors.Is(err, rules.ErrChanged) {
		t.Errorf("the alert was changed since, and undoing says %v", err)
	}
	if after := w.content(t); after != removed {
		t.Errorf("it was\n%s\nand is, with the undoing refused,\n%s", removed, after)
	}
}

func TestAReplacedPlanGivesItsUsersAndComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	var users []string
	for i := range 30 { // more than one entry of the audit log names each by itself
		users = append(users, fmt.Sprint("pro", i))
	}
	must(w.AssignAll(ctx, ours, onPlan("pro", users...)))(t)
	rule := must(w.CreateRule(ctx, limit(t, ours, "global", "pro", "")))(t)
	must(w.PutOverride(ctx, overrideOf(must(w.CreateRule(ctx, limit(t, ours, "user:{user_id}", "pro", "")))(t), "pro1"),
		rules.AnyVersion))(t)
	before, use, since := w.content(t), must(w.Plan(ctx, ours, "pro"))(t), w.latest(t)

	if err := w.ReplacePlan(ctx, ours, "pro", "free", rules.Expected(use.Revision-1)); err == nil {
		t.Error("a plan was removed at a version that is not the last")
	}
	for _, to := range []string{"pro", "only-theirs", ""} {
		var wrong rules.FieldErrors
		if err := w.ReplacePlan(ctx, ours, "pro", to, rules.AnyVersion); !asFieldErrors(err, &wrong) {
			t.Errorf("users who go to %q: %v", to, err)
		}
	}
	wantError(t, w.ReplacePlan(ctx, ours, "free", "pro", rules.AnyVersion), rules.ErrInUse)
	if after := w.content(t); after != before {
		t.Fatalf("it was\n%s\nand is, after refusals,\n%s", before, after)
	}

	if err := w.ReplacePlan(ctx, ours, "pro", "free", rules.Expected(use.Revision)); err != nil {
		t.Fatal(err)
	}
	if moved := must(w.Assignments(ctx, ours, "free", "pro", "", 100))(t); len(moved) != len(users) {
		t.Errorf("%d of %d users were moved", len(moved), len(users))
	}
	if _, err := w.Plan(ctx, ours, "pro"); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("the plan is still there: %v", err)
	}
	if _, err := w.Rule(ctx, ours, rule.ID); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("a rule of the plan is still there: %v", err)
	}
	w.revertSince(t, since, true)
	if after := w.content(t); after != before {
		t.Errorf("it was\n%s\nand is, with the removal undone,\n%s", before, after)
	}
}

func TestAPlanStandsWhereItWasPut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	first := must(w.CreatePlan(ctx, rules.Plan{TenantID: ours, Name: "z-first"}))(t)
	last := must(w.CreatePlan(ctx, rules.Plan{TenantID: ours, Name: "a-last"}))(t)
	if first.Position == 0 || last.Position != first.Position+1 {
		t.Errorf("new plans stand at %v and %v, want each after all others", first.Position, last.Position)
	}
	since := w.latest(t)
	last.Position = first.Position - 0.5
	if moved := must(w.UpdatePlan(ctx, last))(t); moved.Position != last.Position {
		t.Errorf("it stands at %v, want %v", moved.Position, last.Position)
	}
	w.revertSince(t, since, true)
	if back := must(w.Plan(ctx, ours, "a-last"))(t); back.Position != first.Position+1 {
		t.Errorf("with the move undone it stands at %v, want %v", back.Position, first.Position+1)
	}
}

func TestWhatCannotBeRevertedSaysWhy(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		do   func(ctx context.Context, w *world) error // the first entry it logs is reverted
		then func(ctx context.Context, w *world) error
		is   error
	}{
		"a revoked key": {func(ctx context.Context, w *world) error {
			return w.RevokeKey(ctx, w.ours.ID, "ours", rules.AnyVersion)
		}, nil, rules.ErrFinal},
		"a key that has expired since": {func(ctx context.Context, w *world) error {
			_, _, err := w.RotateKey(ctx, w.ours.ID, "ours", rules.AnyVersion, auth.NamedKey{Key: auth.Key{ID: "next"}},
				0)
			return errors.Join(err, w.RevokeKey(ctx, w.ours.ID, "next", rules.AnyVersion))
		}, nil, rules.ErrChanged},
		"a bucket": {func(ctx context.Context, w *world) error {
			return w.RecordChange(ctx, w.ours.ID, auth.AuditObject{Kind: "bucket", ID: "1"}, auth.AuditReset,
				func(context.Context) (any, any, error) { return nil, nil, nil })
		}, nil, rules.ErrFinal},
		"a rule that was changed since": {func(ctx context.Context, w *world) error {
			rule := w.ours.user
			rule.Burst = 60
			return second(w.UpdateRule(ctx, rule))
		}, func(ctx context.Context, w *world) error {
			rule, err := w.Rule(ctx, w.ours.ID, w.ours.user.ID)
			rule.Description = "mine"
			return errors.Join(err, second(w.UpdateRule(ctx, rule)))
		}, rules.ErrChanged},
		"a rule that was removed since": {func(ctx context.Context, w *world) error {
			rule := w.ours.user
			rule.Burst = 60
			return second(w.UpdateRule(ctx, rule))
		}, func(ctx context.Context, w *world) error {
			return w.RemoveRule(ctx, w.ours.ID, w.ours.user.ID, rules.AnyVersion)
		}, rules.ErrChanged},
		"a removed rule whose place was taken": {
			func(ctx context.Context, w *world) error {
				return w.RemoveRule(ctx, w.ours.ID, w.ours.daily.ID, rules.AnyVersion)
			}, func(ctx context.Context, w *world) error { return second(w.CreateRule(ctx, w.ours.daily)) },
			rules.ErrExists,
		},
		"a plan that is used since": {func(ctx context.Context, w *world) error {
			return second(w.CreatePlan(ctx, rules.Plan{TenantID: w.ours.ID, Name: "gold"}))
		}, func(ctx context.Context, w *world) error {
			return second(w.AssignAll(ctx, w.ours.ID, onPlan("gold", "1")))
		}, rules.ErrInUse},
		"a plan made anew": {func(ctx context.Context, w *world) error {
			return w.RemovePlan(ctx, w.ours.ID, "only-ours", rules.AnyVersion)
		}, func(ctx context.Context, w *world) error {
			return second(w.CreatePlan(ctx, rules.Plan{TenantID: w.ours.ID, Name: "only-ours"}))
		}, rules.ErrChanged},
		"an override of a rule that is gone": {func(ctx context.Context, w *world) error {
			return w.RemoveOverride(ctx, w.ours.ID, w.ours.user.ID, "42", rules.AnyVersion)
		}, func(ctx context.Context, w *world) error {
			return w.RemoveRule(ctx, w.ours.ID, w.ours.user.ID, rules.AnyVersion)
		}, rules.ErrChanged},
		"a user moved on": {func(ctx context.Context, w *world) error {
			return second(w.AssignAll(ctx, w.ours.ID, onPlan("free", "42")))
		}, func(ctx context.Context, w *world) error {
			return second(w.AssignAll(ctx, w.ours.ID, onPlan("only-ours", "42")))
		}, rules.ErrChanged},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			since := w.latest(t)
			if err := test.do(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			_, entries := w.written(t, w.ours.ID, since)
			if test.then != nil {
				if err := test.then(t.Context(), w); err != nil {
					t.Fatal(err)
				}
			}
			before := dump(t, connect(t, w.url), w.ours.ID)
			_, err := w.Revert(t.Context(), w.ours.ID, entries[0].ID, false)
			wantError(t, err, test.is)
			if after := dump(t, connect(t, w.url), w.ours.ID); after != before {
				t.Errorf("our rows were\n%s\nand are now\n%s", before, after)
			}
		})
	}
}

func TestAnOverrideThatHasEndedKeepsNothingFromComingBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	for user, end := range map[string]time.Time{"41": tomorrow(), "43": tomorrow(), "44": tomorrow(), "45": {}} {
		override := overrideOf(w.ours.user, user)
		override.ExpiresAt = end
		must(w.PutOverride(ctx, override, rules.AnyVersion))(t)
	}
	exec(t, w.url, `UPDATE rate_limit_override SET in_force_since = now() - interval '2 hours',
		expires_at = now() - interval '1 hour' WHERE tenant_id = $1 AND user_id IN ('41', '44')`, ours)
	since := w.latest(t)
	if err := w.RemoveRule(ctx, ours, w.ours.user.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	_, entries := w.written(t, ours, since)
	ended := slices.IndexFunc(entries, func(e auth.AuditEntry) bool { return strings.HasSuffix(e.Object.ID, ":44") })
	undone := must(w.Revert(ctx, ours, entries[ended].ID, true))(t)
	if entry := must(w.AuditEntry(ctx, ours, undone))(t); entry.ID <= entries[len(entries)-1].ID ||
		entry.Action != auth.AuditCreate {
		t.Errorf("the entry of the undoing is %+v", entry)
	}
	var back []string
	for _, override := range must(w.Overrides(ctx, ours, w.ours.user.ID, "", 10))(t) {
		back = append(back, override.UserID)
	}
	if want := []string{"42", "43", "45"}; !slices.Equal(back, want) {
		t.Errorf("the rule is back with overrides for %q, want %q", back, want)
	}

	before := w.content(t)
	var wrong rules.FieldErrors
	_, err := w.Revert(ctx, ours, entries[ended].ID, false)
	if !errors.As(err, new(*auth.UndoError)) || !asFieldErrors(err, &wrong) || wrong[0].Field != "expires_at" {
		t.Errorf("undoing the removal of an override that has ended says %v", err)
	}
	if after := w.content(t); after != before {
		t.Errorf("it was\n%s\nand is, with the undoing refused,\n%s", before, after)
	}
}

// Only the database knows that the override would end before the rule is in force again.
func TestAnOverrideThatTheDatabaseRefusesEndsTheUndoing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	for _, user := range []string{"41", "43"} {
		override := overrideOf(w.ours.user, user)
		override.ExpiresAt = time.Now().Add(30 * time.Minute)
		must(w.PutOverride(ctx, override, rules.AnyVersion))(t)
	}
	since := w.latest(t)
	if err := w.RemoveRule(ctx, ours, w.ours.user.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	exec(t, w.url, "UPDATE rate_limit_rule SET removed_at = removed_at + interval '1 hour' WHERE tenant_id = $1 AND "+
		"rule_id = $2", ours, w.ours.user.ID)
	_, entries := w.written(t, ours, since)
	var wrong rules.FieldErrors
	if _, err := w.Revert(ctx, ours, entries[0].ID, true); !errors.As(err, new(*auth.UndoError)) ||
		!asFieldErrors(err, &wrong) || wrong[0].Field != "expires_at" {
		t.Errorf("undoing says %v", err)
	}
}

func TestARevivedRuleIsLaterThanAllBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.setBack(t)
	override := must(w.Override(t.Context(), w.ours.ID, w.ours.user.ID, "42"))(t)
	since := w.latest(t)
	if err := w.RemoveRule(t.Context(), w.ours.ID, w.ours.user.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	_, entries := w.written(t, w.ours.ID, since)
	must(w.Revert(t.Context(), w.ours.ID, entries[len(entries)-1].ID, false))(t)
	revived := must(w.Rule(t.Context(), w.ours.ID, w.ours.user.ID))(t)
	if !revived.InForceSince.After(override.InForceSince) || time.Until(revived.InForceSince) < 0 {
		t.Errorf("it is in force since %s, and its override was since %s", revived.InForceSince, override.InForceSince)
	}
}

// The rule's row alone does not show the removal.
func TestARuleRemovedAndRevivedBetweenTwoPollsLosesItsOverrides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	known, since := w.revisions(t), w.latest(t)
	if err := w.RemoveRule(t.Context(), w.ours.ID, w.ours.user.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	_, entries := w.written(t, w.ours.ID, since)
	must(w.Revert(t.Context(), w.ours.ID, entries[len(entries)-1].ID, false))(t)
	rows := w.poll(t, known)
	if len(rows.Rules) != 1 || rows.Rules[0].Removed || len(rows.Overrides) != 1 ||
		!rows.Overrides[0].RemovedAt.Before(rows.Rules[0].InForceSince) {
		t.Errorf("the poll read the rules %+v and the overrides %+v, want the override removed before the rule is in "+
			"force", rows.Rules, rows.Overrides)
	}
}

func TestUndoingAPromotionBringsTheCandidateBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours
	shadow := limit(t, ours.ID, "user:{user_id}", "", "candidate")
	shadow.Mode, shadow.RatePerSecond, shadow.Burst = rules.ModeShadow, 20, 70
	candidate := must(w.CreateRule(ctx, shadow))(t)
	promote := func() auth.AuditID {
		t.Helper()
		since := w.latest(t)
		must(w.PromoteRule(ctx, ours.ID, candidate.ID, rules.AnyVersion, ours.user.ID, rules.AnyVersion))(t)
		_, entries := w.written(t, ours.ID, since)
		of := slices.IndexFunc(entries, func(e auth.AuditEntry) bool { return e.Object.ID == fmt.Sprint(ours.user.ID) })
		return entries[of].ID
	}
	before := w.content(t)
	promotion := promote()
	since := w.latest(t)
	undone := must(w.Revert(ctx, ours.ID, promotion, true))(t)
	if after := w.content(t); after != before {
		t.Errorf("it was\n%s\nand is, with the promotion undone,\n%s", before, after)
	}
	if back := must(w.Rule(ctx, ours.ID, candidate.ID))(t); back.Mode != rules.ModeShadow || back.RatePerSecond != 20 ||
		back.Burst != 70 {
		t.Errorf("the candidate is back as %+v", back)
	}
	_, entries := w.written(t, ours.ID, since)
	if len(entries) != 2 || entries[0].Change != entries[1].Change {
		t.Errorf("undoing is not one change: %+v", entries)
	}
	if entry := must(w.AuditEntry(ctx, ours.ID, undone))(t); entry.Object.ID != fmt.Sprint(ours.user.ID) {
		t.Errorf("the entry of the undoing is about %+v", entry.Object)
	}

	promotion = promote()
	must(w.CreateRule(ctx, shadow))(t)
	promoted := w.content(t)
	if _, err := w.Revert(ctx, ours.ID, promotion, true); !errors.Is(err, rules.ErrExists) {
		t.Errorf("the candidate's place is taken, and undoing says %v", err)
	}
	if after := w.content(t); after != promoted {
		t.Errorf("it was\n%s\nand is, with the undoing refused,\n%s", promoted, after)
	}
}

func TestUndoingAPromotionRestoresTheShadowRuleWithItsCandidate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours
	former := must(w.CreateRule(ctx, limit(t, ours.ID, "user:{user_id}", "", "former")))(t)
	candidate := w.try(t, former, 5)
	former.Mode, former.Burst = rules.ModeShadow, 70
	former = must(w.UpdateRule(ctx, former))(t)
	before, since := w.content(t), w.latest(t)
	must(w.PromoteRule(ctx, ours.ID, former.ID, rules.AnyVersion, ours.user.ID, rules.AnyVersion))(t)
	_, entries := w.written(t, ours.ID, since)
	promotion := slices.IndexFunc(entries,
		func(e auth.AuditEntry) bool { return e.Object.ID == fmt.Sprint(ours.user.ID) })
	must(w.Revert(ctx, ours.ID, entries[promotion].ID, true))(t)
	if after := w.content(t); after != before {
		t.Errorf("it was\n%s\nand is, with the promotion undone,\n%s", before, after)
	}
	if back := must(w.Rule(ctx, ours.ID, candidate.ID))(t); back.CandidateFor != former.ID {
		t.Errorf("the candidate is back as %+v", back)
	}
}
