package pgstore_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/devdb/awake"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
)

func asFieldErrors(err error, target *rules.FieldErrors) bool { return errors.As(err, target) }

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	t.Run("a tenant with all settings", func(t *testing.T) {
		t.Parallel()
		tenant := rules.Tenant{
			Slug: "full", Name: "Full", DefaultPlan: "basic", Suspended: true, InShadow: true,
			Settings: rules.Settings{
				RetryJitterPercent: 50, IPv4Prefix: 24, IPv6Prefix: 48,
				FailureMode: rules.FailClosed,
			},
		}
		created := must(w.CreateTenant(ctx, tenant))(t)
		tenant.ID, tenant.Version, tenant.Revision, tenant.CreatedAt = created.ID, 1, 1, created.CreatedAt
		same(t, created, tenant)
		same(t, must(w.TenantBySlug(ctx, "full"))(t), tenant)
		if plans := must(w.Plans(ctx, tenant.ID, "", 100))(t); len(plans) != 1 || plans[0].Name != "basic" {
			t.Errorf("its plans are %+v, want the default plan", plans)
		}
	})
	t.Run("a rule that blocks", func(t *testing.T) {
		t.Parallel()
		rule := limit(t, ours, `user:{user_id}:endpoint:POST /v1/charges`, "pro", "höher")
		rule.Action, rule.RatePerSecond, rule.Burst = rules.ActionBlock, 0, 0
		rule.FailureMode, rule.Description, rule.RateUnit = rules.FailOpen, "two\nlines", rules.PerDay
		created := must(w.CreateRule(ctx, rule))(t)
		if created.ID <= w.ours.daily.ID || created.InForceSince.IsZero() || created.CreatedAt.IsZero() ||
			created.UpdatedAt.IsZero() {
			t.Errorf("the store left out what it adds: %+v", created)
		}
		rule.ID, rule.Version, rule.Revision = created.ID, 1, created.Revision
		rule.InForceSince, rule.CreatedAt, rule.UpdatedAt = created.InForceSince, created.CreatedAt, created.UpdatedAt
		same(t, created, rule)
		same(t, must(w.Rule(ctx, ours, rule.ID))(t), rule)
	})
	t.Run("an override that expires", func(t *testing.T) {
		t.Parallel()
		override := overrideOf(w.ours.daily, "föö")
		override.ExpiresAt = tomorrow()
		stored := must(w.PutOverride(ctx, override, rules.AnyVersion))(t)
		override.InForceSince, override.Revision = stored.InForceSince, stored.Revision
		same(t, stored, override)
	})
	t.Run("a key that expires", func(t *testing.T) {
		t.Parallel()
		key := auth.NamedKey{Name: "deploy", Key: auth.Key{
			ID: "abc", TenantID: ours, Digest: [32]byte{31: 9}, ExpiresAt: tomorrow(),
			Permissions: []auth.Permission{auth.PermissionManage, auth.PermissionExplain},
			Networks: []netip.Prefix{
				netip.MustParsePrefix("203.0.113.0/24"),
				netip.MustParsePrefix("2001:db8::/32"),
			},
		}}
		created := must(w.CreateKey(ctx, key))(t)
		key.CreatedAt, key.Revision = created.CreatedAt, created.Revision
		key.CreatedBy = rules.Actor{Kind: tester.Kind, ID: tester.ID, Name: tester.Name}
		same(t, created, key)
	})
	t.Run("which plan a user is on", func(t *testing.T) {
		t.Parallel()
		if got := must(w.Assignment(ctx, ours, "42"))(t); got.Plan != "pro" || got.TenantID != ours {
			t.Errorf("user 42 is on %+v, want pro", got)
		}
	})
}

func same[T any](t *testing.T, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestRefusalsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ours := w.ours.ID
	tests := map[string]struct {
		do    func(context.Context) error
		is    error
		wants string
	}{
		"a slug that is taken": {func(ctx context.Context) error {
			_, err := w.CreateTenant(ctx, rules.Tenant{Slug: "theirs", Name: "X", Settings: rules.DefaultSettings()})
			return err
		}, rules.ErrExists, "a tenant with this slug exists already"},
		"a plan that exists": {func(ctx context.Context) error {
			_, err := w.CreatePlan(ctx, rules.Plan{TenantID: ours, Name: "pro"})
			return err
		}, rules.ErrExists, `plan "pro" exists already`},
		"a rule that exists, for all plans": {func(ctx context.Context) error {
			_, err := w.CreateRule(ctx, limit(t, ours, "user:{user_id}", "", ""))
			return err
		}, rules.ErrExists, "a rule with this pattern, plan and name exists already"},
		"another tenant's key id": {func(ctx context.Context) error {
			key := w.ours.key
			key.ID = w.theirs.key.ID
			_, err := w.CreateKey(ctx, key)
			return err
		}, rules.ErrExists, "an API key with this id exists already"},
		"a version that is not the last": {func(ctx context.Context) error {
			old := w.ours.user
			old.Version--
			_, err := w.UpdateRule(ctx, old)
			return err
		}, rules.ErrChanged, "version 0 was expected and 1 is stored"},
		"a plan that was read before another write": {func(ctx context.Context) error {
			_, err := w.UpdatePlan(ctx, rules.Plan{TenantID: ours, Name: "pro", Revision: 1})
			return err
		}, rules.ErrChanged, `update plan "pro": version 1 was expected and 2 is stored: changed meanwhile`},
		"a plan in use": {func(ctx context.Context) error {
			return w.RemovePlan(ctx, ours, "free", rules.AnyVersion)
		}, rules.ErrInUse, `plan "free" is in use by 1 rule and the tenant, as its default`},
		"a user on a plan that is not ours": {func(ctx context.Context) error {
			_, err := w.AssignAll(ctx, ours, onPlan("only-theirs", "1"))
			return err
		}, nil, `plan: must be a plan of the tenant, and "only-theirs" is none`},
		"a default plan that is not ours": {func(ctx context.Context) error {
			tenant := w.ours.Tenant
			tenant.DefaultPlan = "only-theirs"
			_, err := w.UpdateTenant(ctx, tenant)
			return err
		}, nil, `default_plan: must be a plan of the tenant`},
		"a user id with a NUL among others": {func(ctx context.Context) error {
			_, err := w.AssignAll(ctx, ours, onPlan("pro", "1", "a\x00b", "3"))
			return err
		}, nil, "user 2 of 3: user_id: must not contain a NUL byte"},
		"looking for a user id with a NUL": {func(ctx context.Context) error {
			_, err := w.Assignment(ctx, ours, "a\x00b")
			return err
		}, rules.ErrNotFound, "not found"},
		"a key that is revoked already": {func(ctx context.Context) error {
			return errors.Join(w.RevokeKey(ctx, ours, w.ours.key.ID, rules.AnyVersion),
				w.RevokeKey(ctx, ours, w.ours.key.ID, rules.AnyVersion))
		}, rules.ErrNotFound, "revoke API key"},
		"a tenant that is not there": {func(ctx context.Context) error {
			return w.RemovePlan(ctx, 0, "pro", rules.AnyVersion)
		}, rules.ErrNotFound, "tenant 0: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.do(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.wants) {
				t.Errorf("error is %v, want one with %q", err, test.wants)
			}
			if test.is != nil {
				wantError(t, err, test.is)
			}
		})
	}
}

func TestARemovedPlanCanBeMadeAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.RemovePlan(t.Context(), w.ours.ID, "only-ours", rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	_, err := w.AssignAll(t.Context(), w.ours.ID, onPlan("only-ours", "1"))
	var wrong rules.FieldErrors
	if !asFieldErrors(err, &wrong) {
		t.Errorf("a user was put on a removed plan: %v", err)
	}
	plan := must(w.CreatePlan(t.Context(), rules.Plan{TenantID: w.ours.ID, Name: "only-ours", Description: "anew"}))(t)
	if plan.Removed || plan.Description != "anew" {
		t.Errorf("the plan made anew is %+v", plan)
	}
}

func TestARemovedRulesIdentityCanBeUsedAgainAndItsIDCannot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.RemoveRule(t.Context(), w.ours.ID, w.ours.daily.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	again := must(w.CreateRule(t.Context(), w.ours.daily))(t)
	if again.ID <= w.ours.daily.ID {
		t.Errorf("the rule made anew has id %d, and the removed one had %d", again.ID, w.ours.daily.ID)
	}
}

func TestListsContinueAfterARow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours
	w.assign(t, ours.ID, "pro", "43", "44")
	must(w.PutOverride(ctx, overrideOf(ours.user, "43"), rules.AnyVersion))(t)
	if page := must(w.Rules(ctx, ours.ID, rules.RuleFilter{}, ours.user.ID, 1))(t).Rules; len(page) != 1 ||
		page[0].ID != ours.daily.ID {
		t.Errorf("after the first rule comes %+v", page)
	}
	if page := must(w.Overrides(ctx, ours.ID, ours.user.ID, "42", 5))(t); len(page) != 1 || page[0].UserID != "43" {
		t.Errorf("after user 42's override comes %+v", page)
	}
	if page := must(w.Assignments(ctx, ours.ID, "pro", "", "42", 1))(t); len(page) != 1 || page[0].UserID != "43" {
		t.Errorf("after user 42 comes %+v", page)
	}
	if page := must(w.Assignments(ctx, ours.ID, "free", "", "", 5))(t); len(page) != 0 {
		t.Errorf("users on plan free are %+v, want none", page)
	}
}

func TestADatabaseThatDoesNotAnswerIsAnErrorInTime(t *testing.T) {
	t.Parallel()
	blackHole := must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = blackHole.Close() })
	store := must(pgstore.Open(t.Context(), "postgres://u@"+blackHole.Addr().String()+"/d?sslmode=disable",
		slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(store.Close)
	watch := awake.Start()
	defer watch.Stop()
	_, err := store.TenantBySlug(t.Context(), "acme")
	if err == nil || errors.Is(err, rules.ErrNotFound) {
		t.Errorf("the answer of a database that says nothing is %v", err)
	}
	if took := watch.Now(); took > 10*time.Second {
		t.Errorf("it took %s to give up", took)
	}
}
