package pgstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestWhatBelongsToAnotherTenantIsNotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours, theirs := w.ours.ID, w.theirs.user
	stolen := theirs
	stolen.TenantID = ours
	tests := map[string]func(context.Context) error{
		"reading a rule": func(ctx context.Context) error {
			_, err := w.Rule(ctx, ours, theirs.ID)
			return err
		},
		"updating a rule": func(ctx context.Context) error {
			_, err := w.UpdateRule(ctx, stolen)
			return err
		},
		"removing a rule": func(ctx context.Context) error {
			return w.RemoveRule(ctx, ours, theirs.ID,
				rules.AnyVersion)
		},
		"overriding a rule": func(ctx context.Context) error {
			_, err := w.PutOverride(ctx, overrideOf(stolen, "7"), rules.AnyVersion)
			return err
		},
		"replacing an override": func(ctx context.Context) error {
			_, err := w.PutOverride(ctx, overrideOf(stolen, "42"), rules.AnyVersion)
			return err
		},
		"removing an override": func(ctx context.Context) error {
			return w.RemoveOverride(ctx, ours, theirs.ID, "42",
				rules.AnyVersion)
		},
		"reading an override": func(ctx context.Context) error {
			return second(w.Override(ctx, ours, theirs.ID,
				"42"))
		},
		"reading a plan": func(ctx context.Context) error { return second(w.Plan(ctx, ours, "only-theirs")) },
		"updating a plan": func(ctx context.Context) error {
			return second(w.UpdatePlan(ctx, rules.Plan{TenantID: ours, Name: "only-theirs", Revision: -1}))
		},
		"removing a plan": func(ctx context.Context) error {
			return w.RemovePlan(ctx, ours, "only-theirs",
				rules.AnyVersion)
		},
		"reading a key": func(ctx context.Context) error { return second(w.Key(ctx, ours, "theirs")) },
		"rotating a key": func(ctx context.Context) error {
			_, _, err := w.RotateKey(ctx, ours, "theirs", rules.AnyVersion, auth.NamedKey{Key: auth.Key{ID: "x"}}, 0)
			return err
		},
		"listing keys after one": func(ctx context.Context) error { return second(w.Keys(ctx, ours, "theirs", 10)) },
		"revoking a key": func(ctx context.Context) error {
			return w.RevokeKey(ctx, ours, w.theirs.key.ID,
				rules.AnyVersion)
		},
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) { wantError(t, do(t.Context()), rules.ErrNotFound) })
	}
	if overrides := must(w.Overrides(t.Context(), ours, theirs.ID, "", 10))(t); len(overrides) > 0 {
		t.Errorf("overrides of the other tenant's rule were listed: %v", overrides)
	}
}

func TestListsHoldOneTenantsRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours
	owners := map[string][]rules.TenantID{}
	for _, plan := range must(w.Plans(ctx, ours.ID, "", 100))(t) {
		owners["plans"] = append(owners["plans"], plan.TenantID)
	}
	for _, rule := range must(w.Rules(ctx, ours.ID, rules.RuleFilter{}, 0, 10))(t).Rules {
		owners["rules"] = append(owners["rules"], rule.TenantID)
	}
	for _, override := range must(w.Overrides(ctx, ours.ID, ours.user.ID, "", 10))(t) {
		owners["overrides"] = append(owners["overrides"], override.TenantID)
	}
	for _, assignment := range must(w.Assignments(ctx, ours.ID, "", "", "", 10))(t) {
		owners["assignments"] = append(owners["assignments"], assignment.TenantID)
	}
	for _, rule := range must(w.Matrix(ctx, ours.ID, rules.RuleIdentity{}, 10))(t).Rules {
		owners["matrix rules"] = append(owners["matrix rules"], rule.TenantID)
	}
	for _, byEnd := range []bool{false, true} {
		filter := rules.OverrideFilter{User: "42", ByEnd: byEnd}
		for _, override := range must(w.FindOverrides(ctx, ours.ID, filter, rules.OverridePlace{}, 10))(t).Overrides {
			owners["overrides of a tenant"] = append(owners["overrides of a tenant"], override.TenantID)
		}
	}
	for _, override := range must(w.OverridesOfUser(ctx, ours.ID, "42", 0, 10))(t) {
		owners["overrides of a user"] = append(owners["overrides of a user"], override.TenantID)
	}
	for _, key := range must(w.Keys(ctx, ours.ID, "", 100))(t) {
		owners["keys"] = append(owners["keys"], key.TenantID)
	}
	config := must(w.Config(ctx, ours.ID))(t)
	for _, override := range config.Overrides {
		owners["configured overrides"] = append(owners["configured overrides"], override.TenantID)
	}
	want := map[string]int{
		"plans": 3, "rules": 2, "overrides": 1, "assignments": 1, "keys": 1, "configured overrides": 1,
		"matrix rules": 2, "overrides of a user": 1,
	}
	for list, n := range want {
		if len(owners[list]) != n {
			t.Errorf("%d %s were listed, want %d", len(owners[list]), list, n)
		}
		for _, owner := range owners[list] {
			if owner != ours.ID {
				t.Errorf("a row of tenant %d is among tenant %d's %s", owner, ours.ID, list)
			}
		}
	}
	if len(config.Plans) != 3 || len(config.Rules) != 2 {
		t.Errorf("the configuration has %d plans and %d rules, want 3 and 2", len(config.Plans), len(config.Rules))
	}
}

func TestForeignKeysRefuseAnotherTenantsRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tests := map[string]struct {
		sql  string
		args []any
	}{
		"an override of its rule": {`INSERT INTO rate_limit_override
			(tenant_id, rule_id, user_id, rate_per_second, rate_unit, burst_capacity, in_force_since, revision)
			VALUES ($1, $2, '42', 1, 'second', 1, now(), 1)`, []any{w.ours.ID, w.theirs.user.ID}},
		"a rule for its plan": {
			"UPDATE rate_limit_rule SET plan = 'only-theirs' WHERE tenant_id = $1",
			[]any{w.ours.ID},
		},
		"a user on its plan": {
			"UPDATE plan_assignment SET plan = 'only-theirs' WHERE tenant_id = $1",
			[]any{w.ours.ID},
		},
		"its plan as default": {
			"UPDATE tenant SET default_plan = 'only-theirs' WHERE tenant_id = $1",
			[]any{w.ours.ID},
		},
		"a plan of a tenant that isn't": {"INSERT INTO plan (tenant_id, name, revision) VALUES (0, 'free', 1)", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := connect(t, w.url).Exec(t.Context(), test.sql, test.args...)
			var refusal *pgconn.PgError
			if !errors.As(err, &refusal) || refusal.Code != "23503" {
				t.Errorf("the database answers %v, want a foreign key violation", err)
			}
		})
	}
}
