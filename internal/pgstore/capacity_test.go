package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

var allThings = rules.Things

func (w *world) capacity(t *testing.T, thing rules.Thing) rules.ThingCapacity {
	t.Helper()
	for _, q := range must(w.Capacity(t.Context(), w.ours.ID))(t).Of {
		if q.Thing == thing {
			return q
		}
	}
	t.Fatalf("there is no capacity of %s", thing)
	return rules.ThingCapacity{}
}

func (w *world) allow(t *testing.T, thing rules.Thing, more int64) {
	t.Helper()
	held := w.capacity(t, thing).Held
	must(w.PutCapacity(t.Context(), tester, w.ours.ID, rules.Exceptions{thing: held + more}, rules.AnyVersion))(t)
}

// creations are all ways to create one more of each thing.
var creations = map[string]struct {
	thing rules.Thing
	do    func(ctx context.Context, t *testing.T, w *world, n int) error
}{
	"CreatePlan": {rules.ThingPlans, func(ctx context.Context, _ *testing.T, w *world, n int) error {
		return second(w.CreatePlan(ctx, rules.Plan{TenantID: w.ours.ID, Name: fmt.Sprint("plan-", n)}))
	}},
	"CreateRule": {rules.ThingRules, func(ctx context.Context, t *testing.T, w *world, n int) error {
		return second(w.CreateRule(ctx, limit(t, w.ours.ID, fmt.Sprint("endpoint:/", n), "", "")))
	}},
	"ChangeRules": {rules.ThingRules, func(ctx context.Context, t *testing.T, w *world, n int) error {
		rule := limit(t, w.ours.ID, fmt.Sprint("endpoint:/", n), "", "")
		return second(w.ChangeRules(ctx, w.ours.ID, []ruleset.RuleChange{{Rule: rule}}, false))
	}},
	"ChangeConfig with rules": {rules.ThingRules, func(ctx context.Context, t *testing.T, w *world, n int) error {
		return w.importRules(ctx, t, fmt.Sprint("endpoint:/", n))
	}},
	"ChangeConfig with plans": {rules.ThingPlans, func(ctx context.Context, _ *testing.T, w *world, n int) error {
		return second(w.ChangeConfig(ctx, w.ours.ID, func(ruleset.Config) (ruleset.Changes, error) {
			return ruleset.Changes{Plans: []ruleset.Change[rules.Plan]{{After: &rules.Plan{
				TenantID: w.ours.ID,
				Name:     fmt.Sprint("plan-", n),
			}}}}, nil
		}))
	}},
	"ChangeConfig with overrides": {
		rules.ThingOverrides,
		func(ctx context.Context, _ *testing.T, w *world, n int) error {
			override := ruleset.ConfigOverride{
				Rule:     w.ours.user.Identity(),
				Override: overrideOf(w.ours.user, fmt.Sprint("user-", n)),
			}
			return second(w.ChangeConfig(ctx, w.ours.ID, func(ruleset.Config) (ruleset.Changes, error) {
				return ruleset.Changes{Overrides: []ruleset.Change[ruleset.ConfigOverride]{{After: &override}}}, nil
			}))
		},
	},
	"PutOverride": {rules.ThingOverrides, func(ctx context.Context, _ *testing.T, w *world, n int) error {
		return second(w.PutOverride(ctx, overrideOf(w.ours.user, fmt.Sprint("user-", n)), rules.AnyVersion))
	}},
	"Assign": {rules.ThingUsers, func(ctx context.Context, _ *testing.T, w *world, n int) error {
		return second(w.Assign(ctx, rules.Assignment{TenantID: w.ours.ID, UserID: fmt.Sprint("user-", n), Plan: "pro"},
			rules.AnyVersion))
	}},
	"AssignAll": {rules.ThingUsers, func(ctx context.Context, _ *testing.T, w *world, n int) error {
		return second(w.AssignAll(ctx, w.ours.ID, onPlan("pro", fmt.Sprint("user-", n))))
	}},
	"CreateKey": {rules.ThingKeys, func(ctx context.Context, _ *testing.T, w *world, n int) error {
		return second(w.CreateKey(ctx, keyNamed(w.ours.ID, fmt.Sprint("key", n))))
	}},
	"RotateKey": {rules.ThingKeys, func(ctx context.Context, _ *testing.T, w *world, n int) error {
		_, _, err := w.RotateKey(ctx, w.ours.ID, w.ours.key.ID, rules.AnyVersion,
			keyNamed(w.ours.ID, fmt.Sprint("key", n)), time.Hour)
		return err
	}},
	"CreateAlert": {rules.ThingAlerts, func(ctx context.Context, _ *testing.T, w *world, _ int) error {
		return second(w.CreateAlert(ctx, tester, alertOn(w.ours.user, true)))
	}},
	"AddMember": {rules.ThingMembers, func(ctx context.Context, t *testing.T, w *world, n int) error {
		return second(w.AddMember(ctx, tester, w.ours.ID, w.anAccount(t, n), auth.Viewer))
	}},
	"GrantRole": {rules.ThingMembers, func(ctx context.Context, t *testing.T, w *world, n int) error {
		return w.GrantRole(ctx, tester, w.anAccount(t, n),
			auth.GrantedRole{Tenant: w.ours.ID, Slug: "ours", Role: auth.Viewer, Issuer: "https://idp"})
	}},
	"a statement by hand": {rules.ThingRules, func(ctx context.Context, t *testing.T, w *world, n int) error {
		_, err := connect(t, w.url).Exec(ctx,
			`INSERT INTO rate_limit_rule (tenant_id, key_pattern, scope, rate_per_second, rate_unit, burst_capacity,
				algorithm, mode, action, is_active, in_force_since, revision)
			VALUES ($1, $2, 'endpoint', 1, 'second', 1, 'token_bucket', 'enforce', 'limit', true, now(), 1)`, w.ours.ID,
			fmt.Sprint("endpoint:/", n))
		if err != nil && strings.Contains(err.Error(), "may hold") {
			return rules.CapacityError{Thing: rules.ThingRules, Allowed: w.capacity(t, rules.ThingRules).Allowed}
		}
		return err
	}},
}

func keyNamed(tenant rules.TenantID, id string) auth.NamedKey {
	return auth.NamedKey{
		Key:  auth.Key{TenantID: tenant, ID: id, Permissions: []auth.Permission{auth.PermissionCheck}},
		Name: "ci",
	}
}

func (w *world) anAccount(t *testing.T, n int) auth.AccountID {
	t.Helper()
	var id auth.AccountID
	err := connect(t, w.url).QueryRow(t.Context(),
		"INSERT INTO account (email, password_hash) VALUES ($1, '') RETURNING account_id",
		fmt.Sprintf("somebody%d@example.com", n)).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (w *world) importRules(ctx context.Context, t *testing.T, patterns ...string) error {
	t.Helper()
	var changes ruleset.Changes
	for _, pattern := range patterns {
		rule := limit(t, w.ours.ID, pattern, "", "")
		changes.Rules = append(changes.Rules, ruleset.Change[rules.Rule]{After: &rule})
	}
	return second(w.ChangeConfig(ctx, w.ours.ID, func(ruleset.Config) (ruleset.Changes, error) { return changes, nil }))
}

func TestWhateverCreatesObeysTheCapacity(t *testing.T) {
	t.Parallel()
	for name, creation := range creations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.allow(t, creation.thing, 1)
			if err := creation.do(t.Context(), t, w, 1); err != nil {
				t.Fatalf("the last place: %v", err)
			}
			full := w.capacity(t, creation.thing)
			before := dump(t, connect(t, w.url), w.ours.ID)
			err := creation.do(t.Context(), t, w, 2)
			var over rules.CapacityError
			if !errors.As(err, &over) || over.Thing != creation.thing || over.Allowed != full.Allowed {
				t.Errorf("one more ends with %v", err)
			}
			if now := w.capacity(t, creation.thing); now.Held != full.Held || now.Held != now.Allowed {
				t.Errorf("%d are held of %d", now.Held, now.Allowed)
			}
			if after := dump(t, connect(t, w.url), w.ours.ID); after != before {
				t.Errorf("a refusal changed\n%s\nto\n%s", before, after)
			}
			w.countsAgree(t)
			none := rules.Exceptions{creation.thing: 0}
			must(w.PutCapacity(t.Context(), tester, w.ours.ID, none, rules.AnyVersion))(t)
			if now := w.capacity(t, creation.thing); now.Held != full.Held || now.Allowed != 0 || now.IsDefault {
				t.Errorf("with a capacity of 0 it is %+v", now)
			}
			must(w.PutCapacity(t.Context(), tester, w.ours.ID, nil, rules.AnyVersion))(t)
			if err := creation.do(t.Context(), t, w, 3); err != nil {
				t.Errorf("with the default: %v", err)
			}
		})
	}
}

func TestOfTwoForTheLastPlaceOneGetsIt(t *testing.T) {
	t.Parallel()
	for name, creation := range creations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.allow(t, creation.thing, 1)
			const racers = 6
			failed := make(chan error, racers)
			var all sync.WaitGroup
			for n := range racers {
				all.Go(func() {
					err := rules.ErrBeingWritten // for a writer that waits too long on a slow machine
					for errors.Is(err, rules.ErrBeingWritten) {
						err = creation.do(t.Context(), t, w, n)
					}
					failed <- err
				})
			}
			all.Wait()
			close(failed)
			var done, refused int
			for err := range failed {
				switch {
				case err == nil:
					done++
				case errors.As(err, new(rules.CapacityError)):
					refused++
				case name == "RotateKey" && errors.As(err, new(rules.FieldErrors)):
					refused++
				default:
					t.Error(err)
				}
			}
			if done != 1 || refused != racers-1 {
				t.Errorf("%d were made and %d refused, want 1 and %d", done, refused, racers-1)
			}
			w.countsAgree(t)
		})
	}
}

func TestAFileIsRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, before := t.Context(), dump(t, connect(t, w.url), w.ours.ID)
	must(w.PutCapacity(ctx, tester, w.ours.ID, rules.Exceptions{rules.ThingRules: 3, rules.ThingUsers: 7_000},
		rules.NoneStored))(t)
	var over rules.CapacityError
	err := w.importRules(ctx, t, "endpoint:/a", "endpoint:/b", "endpoint:/c")
	if !errors.As(err, &over) || over != (rules.CapacityError{
		Thing: rules.ThingRules, Held: 2, WouldHold: 5,
		Allowed: 3,
	}) {
		t.Errorf("rules: %v", err)
	}
	want := "the tenant's capacity is 3 rules; it holds 2 and would hold 5. Remove some, or ask a platform admin to " +
		"raise the capacity"
	if over.Error() != want {
		t.Errorf("it says %q, want %q", over.Error(), want)
	}
	var users []string
	for n := range 12_000 {
		users = append(users, fmt.Sprint("user-", n))
	}
	err = second(w.AssignAll(ctx, w.ours.ID, onPlan("pro", append(users, "42")...)))
	if !errors.As(err, &over) || over != (rules.CapacityError{
		Thing: rules.ThingUsers, Held: 1, WouldHold: 12_001,
		Allowed: 7_000,
	}) {
		t.Errorf("users: %v", err)
	}
	withoutCapacity := func(text string) string {
		var kept []string
		for line := range strings.SplitSeq(text, "\n") {
			if !strings.Contains(line, ",capacity,") {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "\n")
	}
	if after := withoutCapacity(dump(t, connect(t, w.url), w.ours.ID)); after != before {
		t.Errorf("our rows were\n%s\nand are\n%s", before, after)
	}
	must(w.AssignAll(ctx, w.ours.ID, onPlan("pro", users[:6_999]...)))(t)
	swapped := append(onPlan("pro", users[7_000:7_100]...), onPlan("", users[:100]...)...)
	must(w.AssignAll(ctx, w.ours.ID, swapped))(t)
	if q := w.capacity(t, rules.ThingUsers); q.Held != 7_000 {
		t.Errorf("%d users are held", q.Held)
	}
	w.countsAgree(t)
}

func TestCapacityIsTheNetOfAFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	must(w.PutCapacity(ctx, tester, w.ours.ID,
		rules.Exceptions{rules.ThingRules: 2, rules.ThingPlans: 3, rules.ThingOverrides: 1}, rules.NoneStored))(t)
	rule, override := limit(t, w.ours.ID, "endpoint:/new", "", ""), overrideOf(w.ours.user, "new")
	gone := ruleset.ConfigOverride{Rule: w.ours.user.Identity(), Override: w.ours.override}
	plan := rules.Plan{TenantID: w.ours.ID, Name: "only-ours"}
	must(w.ChangeConfig(ctx, w.ours.ID, func(ruleset.Config) (ruleset.Changes, error) {
		return ruleset.Changes{
			Plans: []ruleset.Change[rules.Plan]{
				{After: &rules.Plan{TenantID: w.ours.ID, Name: "new"}},
				{Before: &plan},
			},
			Rules: []ruleset.Change[rules.Rule]{{After: &rule}, {Before: &w.ours.daily}},
			Overrides: []ruleset.Change[ruleset.ConfigOverride]{{After: &ruleset.ConfigOverride{
				Rule:     gone.Rule,
				Override: override,
			}}, {Before: &gone}},
		}, nil
	}))(t)
	w.countsAgree(t)
}

func TestWhatWasRemovedMakesRoomAndItsRestorationNeedsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	must(w.PutCapacity(ctx, tester, w.ours.ID, rules.Exceptions{rules.ThingRules: 2, rules.ThingOverrides: 1},
		rules.NoneStored))(t)
	if err := w.RemoveRule(ctx, w.ours.ID, w.ours.user.ID, rules.AnyVersion); err != nil { // and its override
		t.Fatal(err)
	}
	removal := must(first2(w.Audit(ctx, w.ours.ID, auth.AuditFilter{ObjectKind: "rule"}, auth.LogCursor{}, 1)))(
		t)[0].ID
	if q := w.capacity(t, rules.ThingOverrides); q.Held != 0 {
		t.Errorf("%d overrides are held", q.Held)
	}
	must(w.CreateRule(ctx, limit(t, w.ours.ID, "endpoint:/other", "", "")))(t)
	var over rules.CapacityError
	if _, err := w.Revert(ctx, w.ours.ID, removal, false); !errors.As(err, &over) || over.Thing != rules.ThingRules {
		t.Errorf("restoring a rule ends with %v", err)
	}
	must(w.PutCapacity(ctx, tester, w.ours.ID, nil, rules.Expected(1)))(t)
	must(w.Revert(ctx, w.ours.ID, removal, false))(t)
	w.countsAgree(t)
	w.allow(t, rules.ThingKeys, 1)
	brief := keyNamed(w.ours.ID, "brief")
	brief.ExpiresAt = tomorrow()
	must(w.CreateKey(ctx, brief))(t)
	if err := second(w.CreateKey(ctx, keyNamed(w.ours.ID, "next"))); !errors.As(err, &over) {
		t.Errorf("a key too many ends with %v", err)
	}
	exec(t, w.url, "UPDATE api_key SET expires_at = now() - interval '1 second' WHERE tenant_id = $1 AND key_id = "+
		"'brief'", w.ours.ID)
	must(w.CreateKey(ctx, keyNamed(w.ours.ID, "next")))(t)
}

func TestCapacityIsThePlatforms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	defaults := must(w.Capacity(ctx, w.ours.ID))(t)
	if defaults.Version != 0 || len(defaults.Of) != len(allThings) {
		t.Errorf("the capacity is %+v", defaults)
	}
	held := map[rules.Thing]int64{
		rules.ThingPlans: 3, rules.ThingRules: 2, rules.ThingOverrides: 1,
		rules.ThingUsers: 1, rules.ThingKeys: 1,
	}
	for i, q := range defaults.Of {
		if q.Thing != allThings[i] || q.Allowed != q.Default || q.Default == 0 || !q.IsDefault ||
			q.Held != held[q.Thing] {
			t.Errorf("item %d is %+v", i, q)
		}
	}
	stored := must(w.PutCapacity(ctx, tester, w.ours.ID, rules.Exceptions{rules.ThingRules: 5}, rules.NoneStored))(t)
	if q := stored.Of[1]; stored.Version != 1 || q.Allowed != 5 || q.IsDefault || q.Default != defaults.Of[1].Default {
		t.Errorf("stored is %+v", stored)
	}
	wantError(t, second(w.PutCapacity(ctx, tester, w.ours.ID, nil, rules.NoneStored)), rules.ErrChanged)
	wantError(t, second(w.PutCapacity(ctx, tester, 4711, nil, rules.AnyVersion)), rules.ErrNotFound)
	log := must(first2(w.Audit(ctx, w.ours.ID, auth.AuditFilter{ObjectKind: "capacity"}, auth.LogCursor{}, 2)))(t)
	if len(log) != 1 || log[0].Actor.ID != tester.ID || !strings.Contains(string(log[0].After), `"rules": 5`) {
		t.Errorf("the log has %+v", log)
	}
	wantError(t, second(w.Revert(ctx, w.ours.ID, log[0].ID, false)), rules.ErrFinal)
	process, role := connect(t, runtimeOf(t, w.url)), tenantRoleOf(t, connect(t, w.url))
	for _, sql := range []string{
		"UPDATE tenant_capacity SET rules = 1000", "INSERT INTO tenant_capacity (tenant_id) VALUES ($1)",
		"DELETE FROM tenant_capacity",
		"UPDATE tenant_use SET held = 0", "DELETE FROM tenant_use", "SELECT change_held($1, 'rules', -1)",
	} {
		var args []any
		if strings.Contains(sql, "$1") {
			args = []any{w.ours.ID}
		}
		if _, err := asTenant(t, process, role, fmt.Sprint(w.ours.ID), sql, args...); !isRefusal(err) {
			t.Errorf("%s ends with %v", sql, err)
		}
	}
	if _, err := asTenant(t, process, role, fmt.Sprint(w.ours.ID), "SELECT count_held_now($1)",
		w.theirs.ID); !isRefusal(err) {
		t.Errorf("counting for another tenant ends with %v", err)
	}
}

func TestInvitingNeedsRoomForAMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	w.allow(t, rules.ThingMembers, 1)
	invitation := auth.Invitation{
		TenantID: w.ours.ID, Email: "ada@example.com", Role: auth.Viewer, InvitedBy: "x",
		ExpiresAt: tomorrow(),
	}
	system := rules.Actor{Kind: rules.ActorSystem}
	must(w.Invite(ctx, system, invitation, auth.Digest{1}))(t)
	must(w.AddMember(ctx, tester, w.ours.ID, w.anAccount(t, 1), auth.Owner))(t)
	invitation.Email = "bob@example.com"
	var over rules.CapacityError
	if err := second(w.Invite(ctx, system, invitation, auth.Digest{2})); !errors.As(err, &over) || over.WouldHold != 2 {
		t.Errorf("inviting ends with %v", err)
	}
	if err := second(w.AcceptAsNew(ctx, system, auth.Digest{1}, auth.Account{}, "hash")); !errors.As(err, &over) {
		t.Errorf("accepting ends with %v", err)
	}
	if accounts := lines(t, connect(t, w.url),
		"SELECT email FROM account WHERE email = 'ada@example.com'"); len(accounts) > 0 {
		t.Error("the refused invitee has an account")
	}
}

func first2[T, U any](value T, _ U, err error) (T, error) { return value, err }

func TestTenantsNearTheirCapacityAreCounted(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	before := must(w.CapacityUses(t.Context()))(t)
	if len(before) > 0 {
		t.Fatalf("with the defaults %v are near", before)
	}
	for _, o := range []owned{w.ours, w.theirs} {
		must(w.CreateKey(t.Context(), auth.NamedKey{Key: auth.Key{
			ID: fmt.Sprintf("more%d", o.ID), TenantID: o.ID,
			Permissions: []auth.Permission{auth.PermissionCheck},
		}, Name: "more"}))(t)
	}
	keys, users := w.capacity(t, rules.ThingKeys).Held, w.capacity(t, rules.ThingUsers).Held
	must(w.PutCapacity(t.Context(), tester, w.ours.ID, rules.Exceptions{
		rules.ThingKeys: keys, rules.ThingAlerts: 0, rules.ThingUsers: users + 1_000_000,
	}, rules.AnyVersion))(t)
	exec(t, w.url,
		`INSERT INTO tenant_use (tenant_id, thing, held) VALUES ($1, 'rules', 9000), ($2, 'rules', 8999),
			($1, 'plans', 950), ($2, 'plans', 1000)
		ON CONFLICT (tenant_id, thing) DO UPDATE SET held = excluded.held`, w.ours.ID, w.theirs.ID)
	want := map[rules.Thing]rules.CapacityUse{
		rules.ThingRules: {Near: 1}, rules.ThingPlans: {Near: 1, Full: 1},
		rules.ThingKeys: {Full: 1},
	}
	if got := must(w.CapacityUses(t.Context()))(t); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("near are %v, want %v", got, want)
	}
	exec(t, w.url, "UPDATE api_key SET revoked_at = now() WHERE tenant_id = $1", w.ours.ID)
	if got := must(w.CapacityUses(t.Context()))(t)[rules.ThingKeys]; got != (rules.CapacityUse{}) {
		t.Errorf("with revoked keys %v are near", got)
	}
}

// SQL by hand can miss the triggers that count.
func TestWrongCountsRefuseNoRemovalAndAreCorrected(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	ctx := t.Context()
	alert := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, true)))(t)
	if held := w.capacity(t, rules.ThingAlerts).Held; held != 1 {
		t.Fatalf("%d alerts are held", held)
	}
	exec(t, w.url, "UPDATE tenant_use SET held = 0 WHERE thing = 'alerts'")
	if err := w.RemoveAlert(ctx, tester, w.ours.ID, alert.ID, rules.AnyVersion); err != nil {
		t.Errorf("an alert is not removed: %v", err)
	}
	for range 2 {
		must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, true)))(t)
	}
	exec(t, w.url, "UPDATE tenant_use SET held = 100 WHERE thing = 'alerts'")
	exec(t, w.url, "UPDATE tenant_use SET held = held - 1 WHERE thing = 'rules'")
	must(w.KeepViolations(ctx, time.Now(), keep))(t)
	if got := lines(t, connect(t, w.url),
		`SELECT concat_ws(' ', thing, held, 'of', count_held(tenant_id, thing)) FROM tenant_use
		WHERE held <> count_held(tenant_id, thing)`); len(got) > 0 {
		t.Errorf("counted wrong are %q", got)
	}
	if held := w.capacity(t, rules.ThingAlerts).Held; held != 2 {
		t.Errorf("%d alerts are held, want 2", held)
	}
}

// A write that counts at its end has read the wrong number already.
func TestCountsAreCorrectedPageByPageBesideWriters(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	w.CompareHeld(2)
	exec(t, w.url, "UPDATE tenant_use SET held = held + 7 WHERE thing IN ('rules', 'users')")
	wrong := func() []string {
		return lines(t, connect(t, w.url),
			"SELECT concat_ws(' ', tenant_id, thing) FROM tenant_use WHERE held <> count_held(tenant_id, thing)")
	}
	if got := wrong(); len(got) != 4 {
		t.Fatalf("counted wrong are %q, want two things of two tenants", got)
	}
	writer := must(connect(t, w.url).Begin(t.Context()))(t)
	must(writer.Exec(t.Context(), "SELECT FROM tenant WHERE tenant_id = $1 FOR NO KEY UPDATE", w.ours.ID))(t)
	_, err := connect(t, w.url).Exec(t.Context(),
		"SELECT set_config('lock_timeout', '1ms', false); SELECT recount_held("+fmt.Sprint(w.ours.ID)+", 'rules')")
	if err == nil || !strings.Contains(err.Error(), "lock timeout") {
		t.Errorf("beside a writer of the tenant its rules are counted: %v", err)
	}
	if err := writer.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(w.KeepViolations(t.Context(), time.Now(), keep))(t)
	if got := wrong(); len(got) > 0 {
		t.Errorf("counted wrong are %q", got)
	}
}
