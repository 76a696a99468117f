package pgstore_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

func TestManyRulesAreChangedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours
	updated := ours.user
	updated.Burst = 60
	made := must(w.ChangeRules(ctx, ours.ID, []ruleset.RuleChange{
		{Rule: limit(t, ours.ID, "user:{user_id}", "free", "daily")}, // takes the place of the one that is removed
		{Rule: updated, Expected: rules.Expected(updated.Version)},
		{Rule: rules.Rule{ID: ours.daily.ID}, Expected: rules.AnyVersion, Remove: true},
	}, false))(t)
	if created := made[0]; created.Before != nil || created.After.ID <= ours.daily.ID || created.After.Version != 1 {
		t.Errorf("the created rule is %+v", created)
	}
	if update := made[1]; update.Before.Burst != 50 || update.After.Burst != 60 || update.After.Version != 2 {
		t.Errorf("the updated rule was %+v and is %+v", update.Before, update.After)
	}
	if removal := made[2]; removal.Before.ID != ours.daily.ID || removal.After != nil {
		t.Errorf("the removed rule is %+v", removal)
	}
	known := w.revisions(t)
	before := dump(t, connect(t, w.url), ours.ID)
	planned := must(w.ChangeRules(ctx, ours.ID, []ruleset.RuleChange{{Rule: limit(t, ours.ID, "global", "pro", "")}},
		true))(t)
	if after := dump(t, connect(t, w.url), ours.ID); planned[0].After.ID != 0 || after != before {
		t.Errorf("a dry run made %+v; our rows were\n%s\nand are now\n%s", planned[0].After, before, after)
	}
	same := must(w.ChangeRules(ctx, ours.ID, []ruleset.RuleChange{{Rule: *made[1].After, Expected: 2}}, false))(t)
	if same[0].Before.Version != 2 || same[0].After.Version != 2 || w.revisions(t)[ours.ID] != known[ours.ID] {
		t.Errorf("a change of nothing is %+v, and the revision %d was %d", same[0], w.revisions(t)[ours.ID],
			known[ours.ID])
	}
}

// Two rules would take over the overrides of 2,501 users without an assigned plan.
func TestASplitMovesABoundedNumberOfOverrides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours
	must(w.PutOverride(ctx, overrideOf(ours.user, "0"), rules.NoneStored))(t)
	exec(t, w.url, `
		INSERT INTO rate_limit_override (tenant_id, rule_id, user_id, rate_per_second, rate_unit, burst_capacity,
			reason, in_force_since, revision)
		SELECT tenant_id, rule_id, 'n' || n, rate_per_second, rate_unit, burst_capacity, reason, in_force_since,
			revision
		FROM rate_limit_override, generate_series(1, 2500) AS n WHERE tenant_id = $1 AND user_id = '0'`, ours.ID)
	changes := []ruleset.RuleChange{
		{Rule: limit(t, ours.ID, "user:{user_id}", "free", "")},
		{Rule: rules.Rule{ID: ours.user.ID}, Expected: rules.AnyVersion, Remove: true},
		{Rule: limit(t, ours.ID, "user:{user_id}", "pro", "")},
	}
	before := dump(t, connect(t, w.url), ours.ID)
	_, err := w.ChangeRules(ctx, ours.ID, changes, false)
	var wrong ruleset.RuleChangeErrors
	var fields rules.FieldErrors
	if !errors.As(err, &wrong) || len(wrong) != 1 || !errors.As(wrong[1], &fields) || fields[0].Field != "rule_id" {
		t.Errorf("a save that would move 5,002 overrides answers %v", err)
	}
	if after := dump(t, connect(t, w.url), ours.ID); after != before {
		t.Error("the refused save changed something")
	}
	for name, parts := range map[string][]ruleset.RuleChange{
		"new rules": {changes[0], changes[2]},
		"removal":   {changes[1]},
	} {
		if _, err := w.ChangeRules(ctx, ours.ID, parts, true); err != nil {
			t.Errorf("only the %s: %v", name, err)
		}
	}
}

func TestASplitKeepsOverrides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours
	own := must(w.CreateRule(ctx, limit(t, ours.ID, "user:{user_id}", "only-ours", "")))(t)
	w.assign(t, ours.ID, "only-ours", "own") // whose plan has a rule already
	for _, user := range []string{"anyone", "own", "gone"} {
		must(w.PutOverride(ctx, overrideOf(ours.user, user), rules.NoneStored))(t)
	}
	exec(t, w.url, `UPDATE rate_limit_override SET expires_at = now() WHERE tenant_id = $1 AND user_id = 'gone'`,
		ours.ID)
	changes := []ruleset.RuleChange{
		{Rule: rules.Rule{ID: ours.user.ID}, Expected: rules.AnyVersion, Remove: true},
		{Rule: limit(t, ours.ID, "user:{user_id}", "free", "")},
		{Rule: limit(t, ours.ID, "user:{user_id}", "pro", "")},
		{Rule: limit(t, ours.ID, "user:{user_id}", "pro", "hourly")}, // of another row
	}
	planned := must(w.ChangeRules(ctx, ours.ID, changes, true))(t)
	made := must(w.ChangeRules(ctx, ours.ID, changes, false))(t)
	for name, removal := range map[string]ruleset.RuleChanged{"planned": planned[0], "made": made[0]} {
		if !slices.Equal(removal.OverridesMoved, []string{"42", "anyone"}) ||
			!slices.Equal(removal.OverridesRemoved, []string{"own"}) {
			t.Errorf("%s: overrides of %q were moved, and of %q removed", name, removal.OverridesMoved,
				removal.OverridesRemoved)
		}
	}
	free, pro, hourly := made[1].After.ID, made[2].After.ID, made[3].After.ID
	for rule, users := range map[rules.RuleID][]string{
		ours.user.ID: nil, free: {"anyone"}, pro: {"42", "anyone"}, hourly: nil, own.ID: nil,
	} {
		found := must(w.Overrides(ctx, ours.ID, rule, "", 10))(t)
		var got []string
		for i := range found {
			got = append(got, found[i].UserID)
			if found[i].Burst != 500 || found[i].Reason != ours.override.Reason {
				t.Errorf("rule %d has %+v", rule, found[i])
			}
		}
		if !slices.Equal(got, users) {
			t.Errorf("rule %d has overrides of %q, want %q", rule, got, users)
		}
	}
}

func TestEveryBadChangeIsNamedAndNoneIsMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours := w.ours
	before := dump(t, connect(t, w.url), ours.ID)
	wrong := limit(t, ours.ID, "ip:{ip}", "", "")
	wrong.Burst = -1
	changes := []ruleset.RuleChange{
		{Rule: limit(t, ours.ID, "global", "", "")},
		{Rule: limit(t, ours.ID, "global", "only-theirs", "")},
		{Rule: limit(t, ours.ID, "user:{user_id}", "", "")},
		{Rule: limit(t, ours.ID, "global", "", "")},
		{Rule: ours.user, Expected: 7},
		{Rule: w.theirs.user, Expected: 1},
		{Rule: ours.daily, Expected: 1},
		{Rule: ours.daily, Expected: 1, Remove: true},
		{Remove: true},
	}
	_, err := w.ChangeRules(t.Context(), ours.ID, changes, false)
	var bad ruleset.RuleChangeErrors
	if !errors.As(err, &bad) {
		t.Fatalf("the error is %v", err)
	}
	if got := slices.Sorted(maps.Keys(bad)); !slices.Equal(got, []int{1, 2, 3, 4, 5, 7, 8}) {
		t.Errorf("the changes %v are wrong: %v", got, bad)
	}
	for i, want := range map[int]error{
		2: rules.ErrExists, 3: rules.ErrExists, 4: rules.ErrChanged,
		5: rules.ErrNotFound, 8: rules.ErrNotFound,
	} {
		wantError(t, bad[i], want)
	}
	_, err = w.ChangeRules(t.Context(), ours.ID, []ruleset.RuleChange{changes[0], {Rule: wrong}}, false)
	if bad = nil; !errors.As(err, &bad) || len(bad) != 1 || bad[1] == nil {
		t.Errorf("what only the database refuses is %v", err)
	}
	if after := dump(t, connect(t, w.url), ours.ID); after != before {
		t.Errorf("our rows were\n%s\nand are now\n%s", before, after)
	}
}

func TestTooManyRulesWithOnePatternAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var changes []ruleset.RuleChange
	for i := range rules.MaxRulesPerPattern {
		changes = append(changes, ruleset.RuleChange{Rule: limit(t, w.ours.ID, "global", "pro", fmt.Sprint(i))})
	}
	made := must(w.ChangeRules(t.Context(), w.ours.ID, changes, false))(t)
	one := limit(t, w.ours.ID, "global", "pro", "one too many")
	var wrong rules.FieldErrors
	if _, err := w.CreateRule(t.Context(), one); !asFieldErrors(err, &wrong) || wrong[0].Field != "key_pattern" {
		t.Errorf("CreateRule: %v", err)
	}
	var bad ruleset.RuleChangeErrors
	if _, err := w.ChangeRules(t.Context(), w.ours.ID, []ruleset.RuleChange{{Rule: one}}, false); !errors.As(err,
		&bad) || !asFieldErrors(bad[0], &wrong) {
		t.Errorf("ChangeRules: %v", err)
	}
	must(w.ChangeRules(t.Context(), w.ours.ID,
		[]ruleset.RuleChange{{Rule: one}, {Rule: *made[3].After, Expected: 1, Remove: true}}, false))(t)
	one.Plan = "free"
	must(w.CreateRule(t.Context(), one))(t)
}

func TestARuleWithManyOverridesIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const many = 10_000 // a hundred times what a page has; some seconds if each took a search of all
	exec(t, w.url, `INSERT INTO rate_limit_override
			(tenant_id, rule_id, user_id, rate_per_second, rate_unit, burst_capacity, in_force_since, revision)
		SELECT $1, $2, 'user-' || n, 1, 'second', 1, now(), 1 FROM generate_series(1, $3::int) AS n`, w.ours.ID,
		w.ours.daily.ID, many)
	since := w.latest(t)
	began := time.Now()
	if err := w.RemoveRule(t.Context(), w.ours.ID, w.ours.daily.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d overrides were removed in %s", many, time.Since(began))
	var objects, changes, first int64
	err := connect(t, w.url).QueryRow(t.Context(),
		`SELECT sum(row_count), count(DISTINCT change_id), min(audit_id) - min(change_id)
		FROM audit_event WHERE tenant_id = $1 AND audit_id > $2 AND action = 'remove'`, w.ours.ID, since).Scan(&objects,
		&changes, &first)
	if err != nil || objects != many+1 || changes != 1 || first != 0 {
		t.Errorf("the log got %d objects of %d changes, the first %d after the change's id (%v)", objects, changes,
			first, err)
	}
}

func TestAShadowRuleIsPromoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours
	shadow := limit(t, ours.ID, "user:{user_id}", "", "candidate")
	shadow.Mode, shadow.RatePerSecond, shadow.Burst, shadow.FailureMode = rules.ModeShadow, 20, 70, rules.FailClosed
	candidate := must(w.CreateRule(ctx, shadow))(t)

	wants := map[string]struct {
		candidate, live rules.RuleID
		is              error
	}{
		"one that is enforced":       {ours.user.ID, candidate.ID, nil},
		"into itself":                {candidate.ID, candidate.ID, nil},
		"into another plan's rule":   {candidate.ID, ours.daily.ID, nil},
		"into another tenant's rule": {candidate.ID, w.theirs.user.ID, rules.ErrNotFound},
		"another tenant's":           {w.theirs.user.ID, ours.user.ID, rules.ErrNotFound},
	}
	for name, test := range wants {
		_, err := w.PromoteRule(ctx, ours.ID, test.candidate, rules.AnyVersion, test.live, rules.AnyVersion)
		var wrong rules.FieldErrors
		if test.is == nil && !asFieldErrors(err, &wrong) || test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, expected := range [][2]rules.Expected{{2, 1}, {1, 2}} {
		_, err := w.PromoteRule(ctx, ours.ID, candidate.ID, expected[0], ours.user.ID, expected[1])
		wantError(t, err, rules.ErrChanged)
	}

	live := must(w.PromoteRule(ctx, ours.ID, candidate.ID, 1, ours.user.ID, 1))(t)
	if live.ID != ours.user.ID || live.Burst != 70 || live.RatePerSecond != 20 ||
		live.FailureMode != rules.FailClosed ||
		live.Mode != rules.ModeEnforce || live.Name != "" || !live.InForceSince.After(ours.user.InForceSince) {
		t.Errorf("the live rule is %+v", live)
	}
	if _, err := w.Rule(ctx, ours.ID, candidate.ID); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("the candidate is still there: %v", err)
	}
	must(w.Override(ctx, ours.ID, ours.user.ID, "42"))(t)

	shadow.Active = false
	alone := must(w.CreateRule(ctx, shadow))(t)
	if promoted := must(w.PromoteRule(ctx, ours.ID, alone.ID, 1, 0, 0))(t); promoted.ID != alone.ID ||
		promoted.Mode != rules.ModeEnforce || !promoted.Active {
		t.Errorf("without a live rule it becomes %+v", promoted)
	}
}

func TestOfTwoEditorsOneWins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours
	plan := must(w.Plan(ctx, ours.ID, "pro"))(t).Plan
	assigned := must(w.Assignment(ctx, ours.ID, "42"))(t)
	edits := map[string]func(n int) error{
		"rule": func(n int) error {
			rule := ours.user
			rule.Burst += int64(n)
			return second(w.UpdateRule(ctx, rule))
		},
		"rules": func(n int) error {
			rule := ours.daily
			rule.Burst += int64(n)
			_, err := w.ChangeRules(ctx, ours.ID,
				[]ruleset.RuleChange{{Rule: rule, Expected: rules.Expected(rule.Version)}}, false)
			var bad ruleset.RuleChangeErrors
			if errors.As(err, &bad) {
				return bad[0]
			}
			return err
		},
		"plan": func(n int) error {
			edited := plan
			edited.Description = fmt.Sprint(n)
			return second(w.UpdatePlan(ctx, edited))
		},
		"tenant": func(n int) error {
			tenant := ours.Tenant
			tenant.Name = fmt.Sprint(n)
			return second(w.UpdateTenant(ctx, tenant))
		},
		"override": func(n int) error {
			override := ours.override
			override.Burst += int64(n)
			return second(w.PutOverride(ctx, override, rules.Expected(override.Revision)))
		},
		"new override": func(n int) error {
			override := overrideOf(ours.user, "new")
			override.Burst += int64(n)
			return second(w.PutOverride(ctx, override, rules.NoneStored))
		},
		"assignment": func(n int) error {
			to := []string{"free", "only-ours"}[n%2]
			return second(w.Assign(ctx, rules.Assignment{TenantID: ours.ID, UserID: "42", Plan: to},
				rules.Expected(assigned.Revision)))
		},
		"key": func(int) error { return w.RevokeKey(ctx, ours.ID, "ours", rules.Expected(ours.key.Revision)) },
	}
	for name, edit := range edits {
		const editors = 4
		errs := make([]error, editors)
		var group sync.WaitGroup
		for n := range editors {
			group.Go(func() { errs[n] = edit(n + 1) })
		}
		group.Wait()
		won := 0
		for _, err := range errs {
			switch {
			case err == nil:
				won++
			case name == "key" && errors.Is(err, rules.ErrNotFound), errors.Is(err, rules.ErrChanged):
			default:
				t.Errorf("%s: a loser got %v", name, err)
			}
		}
		if won != 1 {
			t.Errorf("%s: %d editors won", name, won)
		}
	}
}
