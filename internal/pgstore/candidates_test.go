package pgstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/violations"
)

func (w *world) try(t *testing.T, live rules.Rule, burst int64) rules.Rule {
	t.Helper()
	live.CandidateFor, live.Burst = live.ID, burst
	return must(w.CreateCandidate(t.Context(), live))(t)
}

func TestARuleHasOneCandidateWhichGoesWithIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours
	must(w.CreateRule(ctx, limit(t, ours.ID, "user:{user_id}", "free", "daily-candidate")))(t)
	candidate := w.try(t, ours.daily, 5)
	if candidate.Mode != rules.ModeShadow || candidate.Name != "daily-candidate-2" || candidate.Plan != "free" ||
		candidate.CandidateFor != ours.daily.ID || candidate.Burst != 5 {
		t.Errorf("the candidate is %+v", candidate)
	}
	again := ours.daily
	again.CandidateFor = again.ID
	_, err := w.CreateCandidate(ctx, again)
	wantError(t, err, rules.ErrExists)
	again.CandidateFor = candidate.ID
	_, err = w.CreateCandidate(ctx, again)
	wantError(t, err, rules.ErrInUse)
	again.CandidateFor = w.theirs.daily.ID
	_, err = w.CreateCandidate(ctx, again)
	wantError(t, err, rules.ErrNotFound)

	promoted := must(w.PromoteRule(ctx, ours.ID, candidate.ID, 1, ours.daily.ID, rules.Expected(ours.daily.Version)))(t)
	if promoted.ID != ours.daily.ID || promoted.Burst != 5 || promoted.CandidateFor != 0 {
		t.Errorf("the promoted rule is %+v", promoted)
	}
	_, err = w.Rule(ctx, ours.ID, candidate.ID)
	wantError(t, err, rules.ErrNotFound)

	second := w.try(t, promoted, 6)
	if err := w.RemoveRule(ctx, ours.ID, promoted.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	_, err = w.Rule(ctx, ours.ID, second.ID)
	wantError(t, err, rules.ErrNotFound)

	third := w.try(t, ours.user, 7)
	must(w.ChangeRules(ctx, ours.ID,
		[]ruleset.RuleChange{{Rule: rules.Rule{ID: ours.user.ID}, Expected: rules.AnyVersion, Remove: true}}, false))(t)
	_, err = w.Rule(ctx, ours.ID, third.ID)
	wantError(t, err, rules.ErrNotFound)
}

func TestACandidateThatIsEnforcedIsNoCandidateAnyMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	candidate := w.try(t, w.ours.user, 5)
	candidate.Description = "half"
	candidate = must(w.UpdateRule(ctx, candidate))(t)
	if candidate.CandidateFor != w.ours.user.ID {
		t.Errorf("an edited candidate is for %d", candidate.CandidateFor)
	}
	candidate.Mode = rules.ModeEnforce
	candidate = must(w.UpdateRule(ctx, candidate))(t)
	if candidate.CandidateFor != 0 {
		t.Errorf("an enforced rule is a candidate for %d", candidate.CandidateFor)
	}
	w.try(t, w.ours.user, 6)
}

func TestAComparisonShowsWhatTheCandidateWouldDenyInAddition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, live := t.Context(), w.ours.user
	candidate := w.try(t, live, 5)
	minute := time.Now().UTC().Truncate(time.Minute).Add(-time.Hour)
	began := minute.Add(-30 * time.Second)
	const insert = `INSERT INTO violation_minute VALUES ($1, $2, $3, $4, $5, $6, 0)`
	for _, row := range []struct {
		at      time.Time
		rule    rules.RuleID
		subject string
		other   bool
		denied  int64
	}{
		{minute, live.ID, "both", false, 3},
		{minute.Add(time.Minute), live.ID, "both", false, 4},
		{minute, live.ID, "denied", false, 5},
		{minute, live.ID, "", true, 100},
		{minute, candidate.ID, "both", false, 9},
		{minute, candidate.ID, "new", false, 1},
		{minute.Add(-time.Minute), candidate.ID, "earlier", false, 7}, // in part before the candidate began
	} {
		exec(t, w.url, insert, w.ours.ID, row.at, row.rule, row.subject, row.other, row.denied)
	}
	exec(t, w.url,
		`INSERT INTO decision_minute VALUES ($1, $2, $4, 90, 10, 0, 0, 0, 0), ($1, $3, $4, 60, 30, 0, 0, 0, 0),
		($1, $2, $5, 500, 500, 0, 0, 0, 0)`,
		w.ours.ID, live.ID, candidate.ID, minute, minute.Add(-time.Minute))
	c := must(violations.Compare(ctx, w, w.ours.ID, live.ID, candidate.ID, began, minute.Add(10*time.Minute), 1))(t)
	if c.Points[0] != (violations.ComparedPoint{At: minute, Checks: 100, LiveDenied: 10, CandidateDenied: 30}) ||
		len(c.Points) != 10 {
		t.Errorf("the points are %+v", c.Points)
	}
	if c.Live.Checks() != 100 || c.Live.Denied != 10 || c.Candidate.Checks() != 90 || c.Candidate.Denied != 30 {
		t.Errorf("in all %+v and %+v", c.Live, c.Candidate)
	}
	if a := c.Additional; a.Subjects != 2 ||
		!slices.Equal(a.Most, []violations.ComparedSubject{{Subject: "both", LiveDenied: 7, CandidateDenied: 9}}) ||
		!a.LookedBackTo.IsZero() {
		t.Errorf("those who are denied in addition are %+v", a)
	}
	c = must(violations.Compare(ctx, w, w.ours.ID, live.ID, candidate.ID, began, minute.Add(-time.Second), 1))(t)
	if !c.Since.Equal(minute) || len(c.Points) != 0 || c.Live != (violations.Verdicts{}) || c.Additional.Subjects != 0 {
		t.Errorf("before the first whole minute the comparison is %+v", c)
	}
	c = must(violations.Compare(ctx, w, w.ours.ID, live.ID, candidate.ID, minute.Add(-time.Second),
		minute.Add(10*time.Minute), 1))(t)
	if !c.Since.Equal(minute.Add(time.Minute)) {
		t.Errorf("a candidate of the last second of a minute, which not every process knows at its end, is compared "+
			"since %v", c.Since)
	}
}
