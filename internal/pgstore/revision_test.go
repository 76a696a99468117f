package pgstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

type rowCounts struct{ Tenants, Plans, Rules, Overrides, Assignments, Keys, Gateways int }

func count(rows snapshot.Rows) rowCounts {
	return rowCounts{
		len(rows.Tenants), len(rows.Plans), len(rows.Rules), len(rows.Overrides), len(rows.Assignments), len(rows.Keys),
		len(rows.Gateways),
	}
}

func TestAPollReadsWhatWasWritten(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		write func(context.Context, *world) error
		want  rowCounts
	}{
		"a new setting": {func(ctx context.Context, w *world) error {
			tenant := w.ours.Tenant
			tenant.Suspended = true
			_, err := w.UpdateTenant(ctx, tenant)
			return err
		}, rowCounts{Tenants: 1}},
		"a new plan": {func(ctx context.Context, w *world) error {
			_, err := w.CreatePlan(ctx, rules.Plan{TenantID: w.ours.ID, Name: "enterprise"})
			return err
		}, rowCounts{Tenants: 1, Plans: 1}},
		"a new mapping": {func(ctx context.Context, w *world) error {
			_, err := w.PutGateway(ctx, authorizeBy(w.ours.ID, "X-User"), rules.NoneStored)
			return err
		}, rowCounts{Tenants: 1, Gateways: 1}},
		"a removed plan": {func(ctx context.Context, w *world) error {
			return w.RemovePlan(ctx, w.ours.ID, "only-ours", rules.AnyVersion)
		}, rowCounts{Tenants: 1, Plans: 1}},
		"an updated rule": {func(ctx context.Context, w *world) error {
			rule := w.ours.daily
			rule.Burst++
			_, err := w.UpdateRule(ctx, rule)
			return err
		}, rowCounts{Tenants: 1, Rules: 1}},
		"a rule updated to what it is": {func(ctx context.Context, w *world) error {
			same, err := w.UpdateRule(ctx, w.ours.daily)
			if same.Version != w.ours.daily.Version {
				return errors.Join(err, errors.New("its version was raised"))
			}
			return err
		}, rowCounts{}},
		"a plan, override, assignment and tenant updated to what they are": {func(ctx context.Context, w *world) error {
			plan := must(w.Plan(ctx, w.ours.ID, "pro"))(t).Plan
			_, planErr := w.UpdatePlan(ctx, plan)
			_, overrideErr := w.PutOverride(ctx, w.ours.override, rules.Expected(w.ours.override.Revision))
			_, assignErr := w.Assign(ctx, rules.Assignment{TenantID: w.ours.ID, UserID: "42", Plan: "pro"},
				rules.AnyVersion)
			_, tenantErr := w.UpdateTenant(ctx, w.ours.Tenant)
			return errors.Join(planErr, overrideErr, assignErr, tenantErr)
		}, rowCounts{}},
		"a removed rule": {func(ctx context.Context, w *world) error {
			return w.RemoveRule(ctx, w.ours.ID, w.ours.user.ID, rules.AnyVersion)
		}, rowCounts{Tenants: 1, Rules: 1, Overrides: 1}},
		"a new override": {func(ctx context.Context, w *world) error {
			_, err := w.PutOverride(ctx, overrideOf(w.ours.user, "43"), rules.AnyVersion)
			return err
		}, rowCounts{Tenants: 1, Overrides: 1}},
		"a removed override": {func(ctx context.Context, w *world) error {
			return w.RemoveOverride(ctx, w.ours.ID, w.ours.user.ID, "42", rules.AnyVersion)
		}, rowCounts{Tenants: 1, Overrides: 1}},
		"three users on a plan, one of them again": {func(ctx context.Context, w *world) error {
			changed, err := w.AssignAll(ctx, w.ours.ID, onPlan("pro", "1", "2", "42"))
			if changed != 2 {
				return errors.Join(err, errors.New("the two users that were not on the plan were not counted as two"))
			}
			return err
		}, rowCounts{Tenants: 1, Assignments: 2}},
		"a user back on the default plan": {func(ctx context.Context, w *world) error {
			_, err := w.AssignAll(ctx, w.ours.ID, onPlan("", "42", "nobody"))
			return err
		}, rowCounts{Tenants: 1, Assignments: 1}},
		"a revoked key": {func(ctx context.Context, w *world) error {
			return w.RevokeKey(ctx, w.ours.ID, w.ours.key.ID, rules.AnyVersion)
		}, rowCounts{Tenants: 1, Keys: 1}},
		"nothing": {func(context.Context, *world) error { return nil }, rowCounts{}},
		"users that are on the plan already": {func(ctx context.Context, w *world) error {
			_, err := w.AssignAll(ctx, w.ours.ID, onPlan("pro", "42"))
			return err
		}, rowCounts{}},
		"a change of nothing": {func(ctx context.Context, w *world) error {
			_, err := w.ChangeConfig(ctx, w.ours.ID,
				func(ruleset.Config) (ruleset.Changes, error) { return ruleset.Changes{}, nil })
			return err
		}, rowCounts{}},
		"a write that failed": {func(ctx context.Context, w *world) error {
			if _, err := w.CreateRule(ctx, w.ours.user); !errors.Is(err, rules.ErrExists) {
				return errors.New("a second rule with the same identity was not refused")
			}
			return nil
		}, rowCounts{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			known := w.revisions(t)
			if err := test.write(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			rows := w.poll(t, known)
			if got := count(rows); got != test.want {
				t.Errorf("the poll read %+v, want %+v", got, test.want)
			}
			for _, tenant := range rows.Tenants {
				if tenant.ID != w.ours.ID || tenant.Revision != known[tenant.ID]+1 {
					t.Errorf("tenant %d has revision %d, want tenant %d and %d", tenant.ID, tenant.Revision, w.ours.ID,
						known[w.ours.ID]+1)
				}
			}
			if got := count(w.poll(t, w.revisions(t))); got != (rowCounts{}) {
				t.Errorf("the next poll read %+v again", got)
			}
		})
	}
}

func TestAPollAfterOneOfManyAssignmentsChangedReadsThatOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec(t, w.url, `INSERT INTO plan_assignment (tenant_id, user_id, plan, revision)
		SELECT t.tenant_id, 'user-' || n, 'pro', t.revision FROM tenant AS t, generate_series(1, 10000) AS n
			WHERE t.tenant_id = $1`, w.ours.ID)
	known := w.revisions(t)
	w.assign(t, w.ours.ID, "free", "user-77")
	rows := w.poll(t, known)
	if got, want := count(rows), (rowCounts{Tenants: 1, Assignments: 1}); got != want ||
		rows.Assignments[0].UserID != "user-77" {
		t.Errorf("the poll read %+v, want %+v", got, want)
	}
	if got := count(w.poll(t, w.revisions(t))); got != (rowCounts{}) {
		t.Errorf("the next poll read %+v again", got)
	}
}

func TestAWholeReadLeavesOutWhatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours
	must(w.PutOverride(ctx, overrideOf(ours.daily, "42"), rules.AnyVersion))(t)
	w.assign(t, ours.ID, "", "42")
	for _, err := range []error{
		w.RemoveRule(ctx, ours.ID, ours.daily.ID, rules.AnyVersion),
		w.RemoveOverride(ctx, ours.ID, ours.user.ID, "42", rules.AnyVersion),
		w.RemovePlan(ctx, ours.ID, "pro", rules.AnyVersion),
		w.RevokeKey(ctx, ours.ID, ours.key.ID, rules.AnyVersion),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	known := w.revisions(t)
	delete(known, ours.ID)
	rows := w.poll(t, known)
	want := rowCounts{Tenants: 1, Plans: 2, Rules: 1, Overrides: 2, Assignments: 0, Keys: 1}
	if got := count(rows); got != want {
		t.Fatalf("the read of one unknown tenant has %+v, want %+v", got, want)
	}
	if rows.Rules[0].Removed || rows.Rules[0].ID != ours.user.ID {
		t.Errorf("the rule read is %+v, want the one that stands", rows.Rules[0])
	}
	if rows.Overrides[0].RemovedAt.IsZero() {
		t.Error("the removed override does not say when it was removed")
	}
	if !rows.Keys[0].Revoked {
		t.Error("the revoked key does not say so")
	}
	if got := count(w.poll(t, nil)); got.Tenants != 2 {
		t.Errorf("a read with a nil map has %d tenants, want 2", got.Tenants)
	}
}

func TestKeysThatWereRevokedLongAgoAreNotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.RevokeKey(t.Context(), w.ours.ID, w.ours.key.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	before, known := len(w.poll(t, nil).Keys), w.revisions(t)
	exec(t, w.url, `INSERT INTO api_key (tenant_id, key_id, name, digest, permissions, revoked_at, revision,
			created_by_kind, created_by_id, created_by_name)
		SELECT $1, 'old' || i, 'old', sha256(''), '{check}', now() - interval '31 days', $2 + 1, '', '',
			'' FROM generate_series(1, 1000) AS i`, w.ours.ID, known[w.ours.ID])
	exec(t, w.url, "UPDATE tenant SET revision = revision + 1 WHERE tenant_id = $1", w.ours.ID)
	if got := len(w.poll(t, nil).Keys); got != before {
		t.Errorf("a read of everything has %d keys, want %d: the revoked one of today, and none of a month ago", got,
			before)
	}
	if got := len(w.poll(t, known).Keys); got != 1000 { // a process that runs must hear of each
		t.Errorf("a poll has %d keys, want all that are newer", got)
	}
}

func TestAReadIsOneViewInPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, users := t.Context(), []string{"a", "b", "c", "d", "e", "f", "g"}
	w.assign(t, w.ours.ID, "pro", users...)
	for _, user := range users {
		must(w.PutOverride(ctx, overrideOf(w.ours.user, user), rules.AnyVersion))(t)
	}
	want := count(w.poll(t, nil))
	w.ReadInPagesOf(3)
	var got rowCounts
	seen := map[string]bool{}
	pages := 0
	err := w.Read(ctx, nil, func(page snapshot.Rows) error {
		if pages++; pages == 1 {
			w.assign(t, w.ours.ID, "pro", "late")
			w.assign(t, w.ours.ID, "free", users...)
			must(w.PutOverride(ctx, overrideOf(w.ours.user, "late"), rules.AnyVersion))(t)
		}
		for _, assignment := range page.Assignments {
			if key := string(rune(assignment.TenantID)) + assignment.UserID; seen[key] {
				t.Errorf("user %q was read twice", assignment.UserID)
			} else {
				seen[key] = true
			}
			if assignment.Plan != "pro" || assignment.UserID == "late" {
				t.Errorf("%+v was read, which was written after the read began", assignment)
			}
		}
		n := count(page)
		if n.Tenants > 3 || n.Plans > 3 || n.Rules > 3 || n.Overrides > 3 || n.Assignments > 3 || n.Keys > 3 {
			t.Errorf("a page has %+v, want at most 3 rows", n)
		}
		got.Tenants += n.Tenants
		got.Plans += n.Plans
		got.Rules += n.Rules
		got.Overrides += n.Overrides
		got.Assignments += n.Assignments
		got.Keys += n.Keys
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("all pages have %+v, want %+v", got, want)
	}
}

func TestAReadEndsWithTheFirstErrorOfItsVisitor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	enough := errors.New("enough")
	for page := 1; page <= 4; page++ {
		visits := 0
		err := w.Read(t.Context(), nil, func(snapshot.Rows) error {
			if visits++; visits == page {
				return enough
			}
			return nil
		})
		wantError(t, err, enough)
		if visits != page {
			t.Errorf("page %d failed and %d were visited", page, visits)
		}
	}
}

func TestAPatternThatDoesNotParseLeavesOutOneRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec(t, w.url, "UPDATE rate_limit_rule SET key_pattern = 'nonsense::' WHERE tenant_id = $1 AND rule_id = $2",
		w.ours.ID, w.ours.user.ID)
	rows := w.poll(t, nil)
	if len(rows.Rules) != 3 {
		t.Errorf("%d rules were read, want the 3 whose patterns parse", len(rows.Rules))
	}
	if n := w.UnreadableRules(); n != 1 {
		t.Errorf("%d unreadable rules were counted, want 1", n)
	}
	if config := must(w.Config(t.Context(), w.ours.ID))(t); len(config.Rules) != 1 || len(config.Overrides) != 0 {
		t.Errorf("the configuration has %d rules and %d overrides, want 1 and none", len(config.Rules),
			len(config.Overrides))
	}
}

// PostgreSQL stores even a lock in the row.
func TestUsersWhoStayOnTheirPlanAreNotWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stay := onPlan("pro", "1", "2", "3")
	must(w.AssignAll(t.Context(), w.ours.ID, stay))(t)
	if changed := must(w.AssignAll(t.Context(), w.ours.ID, append(stay, onPlan("free", "4")...)))(t); changed != 1 {
		t.Errorf("%d users changed, not 1", changed)
	}
	var locked []string
	err := connect(t, w.url).QueryRow(t.Context(),
		"SELECT array_agg(user_id) FROM plan_assignment WHERE tenant_id = $1 AND xmax <> 0", w.ours.ID).Scan(&locked)
	if err != nil || len(locked) > 0 {
		t.Errorf("rows of %q were locked (%v)", locked, err)
	}
}
