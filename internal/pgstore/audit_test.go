package pgstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func (w *world) written(t *testing.T, tenant rules.TenantID, since auth.AuditID) (lines []string,
	entries []auth.AuditEntry,
) {
	t.Helper()
	all, _, err := w.Audit(t.Context(), tenant, auth.AuditFilter{}, auth.LogCursor{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(all)
	for _, entry := range all {
		if entry.ID > since {
			lines = append(lines, fmt.Sprintf("%s %s %s", entry.Action, entry.Object.Kind, entry.Object.ID))
			entries = append(entries, entry)
		}
	}
	return lines, entries
}

func (w *world) latest(t *testing.T) auth.AuditID {
	t.Helper()
	all, _, err := w.Audit(t.Context(), w.ours.ID, auth.AuditFilter{}, auth.LogCursor{}, 1)
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	return all[0].ID
}

// write is one call of a write method. R stands for the id of the rule user, D for that of daily.
type write struct {
	do   func(context.Context, *world) error
	want []string
	act  string
}

// writes are all methods that write.
func writes(t *testing.T) map[string]write {
	t.Helper()
	return map[string]write{
		"UpdateTenant": {func(ctx context.Context, w *world) error {
			tenant := w.ours.Tenant
			tenant.Settings.RetryJitterPercent = 20
			return second(w.UpdateTenant(ctx, tenant))
		}, []string{"update tenant ours"}, ""},
		"UpdateTenant that turns the switch for bad days": {func(ctx context.Context, w *world) error {
			tenant := w.ours.Tenant
			tenant.InShadow = true
			return second(w.UpdateTenant(ctx, tenant))
		}, []string{"update tenant ours"}, ""},
		"RemoveTenant": {func(ctx context.Context, w *world) error {
			tenant := w.ours.Tenant
			tenant.Suspended = true
			suspended, err := w.UpdateTenant(ctx, tenant)
			return errors.Join(err, w.RemoveTenant(ctx, w.ours.ID, rules.Expected(suspended.Version)))
		}, []string{"update tenant ours", "remove tenant ours"}, ""},
		"RestoreTenant": {func(ctx context.Context, w *world) error {
			tenant := w.ours.Tenant
			tenant.Suspended = true
			return errors.Join(second(w.UpdateTenant(ctx, tenant)), w.RemoveTenant(ctx, w.ours.ID, rules.AnyVersion),
				second(w.RestoreTenant(ctx, "ours")))
		}, []string{"update tenant ours", "remove tenant ours", "create tenant ours"}, ""},
		"CreatePlan": {func(ctx context.Context, w *world) error {
			return second(w.CreatePlan(ctx, rules.Plan{TenantID: w.ours.ID, Name: "gold"}))
		}, []string{"create plan gold"}, ""},
		"UpdatePlan": {func(ctx context.Context, w *world) error {
			plan, err := w.Plan(ctx, w.ours.ID, "pro")
			plan.Description = "new"
			return errors.Join(err, second(w.UpdatePlan(ctx, plan.Plan)))
		}, []string{"update plan pro"}, ""},
		"RemovePlan and CreatePlan anew": {func(ctx context.Context, w *world) error {
			return errors.Join(w.RemovePlan(ctx, w.ours.ID, "only-ours", rules.AnyVersion),
				second(w.CreatePlan(ctx, rules.Plan{TenantID: w.ours.ID, Name: "only-ours"})))
		}, []string{"remove plan only-ours", "create plan only-ours"}, ""},
		"ReplacePlan": {func(ctx context.Context, w *world) error {
			return w.ReplacePlan(ctx, w.ours.ID, "only-ours", "pro", rules.AnyVersion)
		}, []string{"remove plan only-ours"}, ""},
		"CreateRule": {func(ctx context.Context, w *world) error {
			return second(w.CreateRule(ctx, limit(t, w.ours.ID, "global", "", "")))
		}, []string{"create rule N"}, ""},
		"UpdateRule": {func(ctx context.Context, w *world) error {
			rule := w.ours.user
			rule.Burst++
			return second(w.UpdateRule(ctx, rule))
		}, []string{"update rule R"}, ""},
		"RemoveRule": {func(ctx context.Context, w *world) error {
			return w.RemoveRule(ctx, w.ours.ID, w.ours.user.ID, rules.AnyVersion)
		}, []string{"remove override R:42", "remove rule R"}, ""},
		"PromoteRule": {func(ctx context.Context, w *world) error {
			shadow := limit(t, w.ours.ID, "user:{user_id}", "", "candidate")
			shadow.Mode, shadow.Burst = rules.ModeShadow, 70
			created, err := w.CreateRule(ctx, shadow)
			return errors.Join(err, second(w.PromoteRule(ctx, w.ours.ID, created.ID, 1, w.ours.user.ID, 1)))
		}, []string{"create rule N", "update rule R", "remove rule N"}, "promote"},
		"ChangeRules": {func(ctx context.Context, w *world) error {
			rule := w.ours.user
			rule.Burst++
			return second(w.ChangeRules(ctx, w.ours.ID, []ruleset.RuleChange{
				{Rule: rule, Expected: 1},
				{Rule: w.ours.daily, Expected: 1, Remove: true},
				{Rule: limit(t, w.ours.ID, "global", "", "")},
			}, false))
		}, []string{"remove rule D", "update rule R", "create rule N"}, ""},
		"PutOverride, new": {func(ctx context.Context, w *world) error {
			return second(w.PutOverride(ctx, overrideOf(w.ours.user, "a:b"), rules.NoneStored))
		}, []string{"create override R:a:b"}, ""},
		"PutOverride, again": {func(ctx context.Context, w *world) error {
			override := w.ours.override
			override.Burst++
			return second(w.PutOverride(ctx, override, rules.Expected(override.Revision)))
		}, []string{"update override R:42"}, ""},
		"RemoveOverride": {func(ctx context.Context, w *world) error {
			return w.RemoveOverride(ctx, w.ours.ID, w.ours.user.ID, "42", rules.AnyVersion)
		}, []string{"remove override R:42"}, ""},
		"Assign": {func(ctx context.Context, w *world) error {
			for _, plan := range []string{"free", "", "pro"} {
				if _, err := w.Assign(ctx, rules.Assignment{TenantID: w.ours.ID, UserID: "42", Plan: plan},
					rules.AnyVersion); err != nil {
					return err
				}
			}
			return nil
		}, []string{"update user 42", "remove user 42", "create user 42"}, ""},
		"AssignAll": {func(ctx context.Context, w *world) error {
			return second(w.AssignAll(ctx, w.ours.ID, append(onPlan("free", "1", "2"), onPlan("", "42", "3")...)))
		}, []string{"remove user 42", "create user 1", "create user 2"}, ""},
		"ChangeConfig": {func(ctx context.Context, w *world) error {
			gold, rule := rules.Plan{Name: "gold"}, limit(t, w.ours.ID, "global", "gold", "")
			return second(w.ChangeConfig(ctx, w.ours.ID, func(ruleset.Config) (ruleset.Changes, error) {
				return ruleset.Changes{
					Plans: []ruleset.Change[rules.Plan]{{After: &gold}},
					Rules: []ruleset.Change[rules.Rule]{{After: &rule}},
				}, nil
			}))
		}, []string{"create plan gold", "create rule N"}, "import"},
		"CreateKey": {func(ctx context.Context, w *world) error {
			key := w.ours.key
			key.ID = "fresh"
			return second(w.CreateKey(ctx, key))
		}, []string{"create api_key fresh"}, ""},
		"RotateKey": {func(ctx context.Context, w *world) error {
			_, _, err := w.RotateKey(ctx, w.ours.ID, "ours", rules.AnyVersion, auth.NamedKey{Key: auth.Key{ID: "next"}},
				time.Hour)
			return err
		}, []string{"create api_key next", "update api_key ours"}, "rotate"},
		"RevokeKey": {func(ctx context.Context, w *world) error {
			return w.RevokeKey(ctx, w.ours.ID, "ours", rules.AnyVersion)
		}, []string{"remove api_key ours"}, ""},
		"RecordKeyUses": {func(ctx context.Context, w *world) error {
			return w.RecordKeyUses(ctx, []snapshot.KeyUse{{KeyID: "ours", At: time.Now()}})
		}, nil, ""},
		"RecordChange": {func(ctx context.Context, w *world) error {
			return w.RecordChange(ctx, w.ours.ID, auth.AuditObject{Kind: "bucket", ID: "12:42"}, auth.AuditCredit,
				func(context.Context) (any, any, error) {
					return map[string]int{"tokens": 1}, map[string]int{"tokens": 5}, nil
				})
		}, []string{"credit bucket 12:42"}, ""},
		"RecordChange that fails": {func(ctx context.Context, w *world) error {
			refused := errors.New("refused")
			err := w.RecordChange(ctx, w.ours.ID, auth.AuditObject{Kind: "bucket", ID: "12:42"}, auth.AuditReset,
				func(context.Context) (any, any, error) { return nil, nil, refused })
			if !errors.Is(err, refused) {
				return fmt.Errorf("the error is %w, want that of the change", err)
			}
			return nil
		}, nil, ""},
		"Revert": {func(ctx context.Context, w *world) error {
			entries, _, err := w.Audit(ctx, w.ours.ID, auth.AuditFilter{ObjectKind: "user"}, auth.LogCursor{}, 1)
			if err != nil {
				return err
			}
			return second(w.Revert(ctx, w.ours.ID, entries[0].ID, false))
		}, []string{"remove user 42"}, "revert "},
	}
}

func second[T any](_ T, err error) error { return err }

func TestEveryWriteIsInTheAuditLog(t *testing.T) {
	t.Parallel()
	for name, test := range writes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			since := w.latest(t)
			if err := test.do(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			got, entries := w.written(t, w.ours.ID, since)
			letters := strings.NewReplacer("rule "+fmt.Sprint(w.ours.user.ID), "rule R",
				"rule "+fmt.Sprint(w.ours.daily.ID), "rule D",
				"override "+fmt.Sprint(w.ours.user.ID)+":", "override R:", "rule "+fmt.Sprint(w.ours.daily.ID+1),
				"rule N")
			for i := range got {
				got[i] = letters.Replace(got[i])
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("the log got %q, want %q", got, test.want)
			}
			w.countsAgree(t)
			for i, entry := range entries {
				w.judge(t, entry)
				if act := entry.Actor.Act; i == len(entries)-1 && !strings.HasPrefix(act, test.act) || test.act == "" &&
					act != "" {
					t.Errorf("%s: it was done to %q, want %q", got[i], act, test.act)
				}
			}
		})
	}
}

func (w *world) judge(t *testing.T, entry auth.AuditEntry) {
	t.Helper()
	actor := entry.Actor
	actor.Act = ""
	if actor != tester {
		t.Errorf("entry %d was written in the name of %+v, want %+v", entry.ID, entry.Actor, tester)
	}
	if entry.At.IsZero() || entry.Change == 0 || entry.Change > int64(entry.ID) {
		t.Errorf("entry %d is at %s in change %d", entry.ID, entry.At, entry.Change)
	}
	before, after := entry.Before != nil, entry.After != nil
	want := map[auth.AuditAction][2]bool{
		auth.AuditCreate: {false, true}, auth.AuditUpdate: {true, true}, auth.AuditRemove: {true, false},
		auth.AuditCredit: {true, true},
	}[entry.Action]
	if [2]bool{before, after} != want {
		t.Errorf("entry %d, %s %s, has a before: %t, and an after: %t", entry.ID, entry.Action, entry.Object.Kind,
			before, after)
	}
	for _, image := range []json.RawMessage{entry.Before, entry.After} {
		if strings.Contains(string(image), "digest") || strings.Contains(string(image), "tenant_id") {
			t.Errorf("entry %d shows what it must not: %s", entry.ID, image)
		}
	}
	stored, err := w.AuditEntry(t.Context(), w.ours.ID, entry.ID)
	if err != nil || stored.ID != entry.ID || !stored.At.Equal(entry.At) {
		t.Errorf("entry %d by itself is %+v (%v)", entry.ID, stored, err)
	}
}

func TestAnEntryHasTheObjectBeforeAndAfter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	since := w.latest(t)
	rule := w.ours.user
	rule.Burst, rule.Description = 60, "for <all>"
	must(w.UpdateRule(t.Context(), rule))(t)
	_, entries := w.written(t, w.ours.ID, since)
	var before, after struct {
		Burst       int64   `json:"burst_capacity"`
		Rate        float64 `json:"rate_per_second"`
		Pattern     string  `json:"key_pattern"`
		Description string  `json:"description"`
		Version     int64   `json:"version"`
	}
	if err := errors.Join(json.Unmarshal(entries[0].Before, &before),
		json.Unmarshal(entries[0].After, &after)); err != nil {
		t.Fatal(err)
	}
	if before.Burst != 50 || after.Burst != 60 || before.Rate != 10 || after.Description != "for <all>" ||
		after.Pattern != "user:{user_id}" || before.Version != 1 || after.Version != 2 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

func TestAWriteThatFailsOrChangesNothingIsNotLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := dump(t, connect(t, w.url), w.ours.ID)
	_, err := w.CreateRule(t.Context(), w.ours.user)
	wantError(t, err, rules.ErrExists)
	must(w.UpdateRule(t.Context(), w.ours.user))(t)
	if after := dump(t, connect(t, w.url), w.ours.ID); after != before {
		t.Errorf("our rows were\n%s\nand are now\n%s", before, after)
	}
}

func TestAStatementByHandIsLoggedAsTheDatabaseUsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	since := w.latest(t)
	exec(t, w.url, `UPDATE rate_limit_rule SET burst_capacity = burst_capacity + 1 WHERE tenant_id = $1`, w.ours.ID)
	exec(t, w.url, `UPDATE rate_limit_rule SET updated_at = now(), revision = revision WHERE tenant_id = $1`, w.ours.ID)
	exec(t, w.url, `UPDATE api_key SET digest = sha256('other') WHERE tenant_id = $1`, w.ours.ID)
	got, entries := w.written(t, w.ours.ID, since)
	want := []string{
		fmt.Sprintf("update rule %d", w.ours.user.ID), fmt.Sprintf("update rule %d", w.ours.daily.ID),
		"update api_key ours",
	}
	slices.Sort(got[:2])
	if !slices.Equal(got, want) {
		t.Fatalf("the log got %q, want %q", got, want)
	}
	for _, entry := range entries {
		if entry.Actor.Kind != rules.ActorSystem || entry.Actor.Name != "database" || entry.Actor.ID == "" {
			t.Errorf("it was written by %+v, want the database user", entry.Actor)
		}
	}
	if entries[0].Change != entries[1].Change || entries[1].Change == entries[2].Change {
		t.Errorf("two rows of one statement are changes %d and %d, and the next one's %d", entries[0].Change,
			entries[1].Change, entries[2].Change)
	}
}

func TestTheAuditLogIsFilteredAndPaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	w.assign(t, ours, "pro", "u1", "u2", "u3", "u4")
	other := w.Store.As(rules.Actor{Kind: rules.ActorKey, ID: "other"})
	rule := w.ours.user
	rule.Burst++
	must(other.UpdateRule(ctx, rule))(t)
	all, _, err := w.Audit(ctx, ours, auth.AuditFilter{}, auth.LogCursor{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	ruleID := fmt.Sprint(rule.ID)
	filters := map[string]struct {
		filter auth.AuditFilter
		keep   func(auth.AuditEntry) bool
	}{
		"everything": {auth.AuditFilter{}, func(auth.AuditEntry) bool { return true }},
		"an actor": {
			auth.AuditFilter{ActorID: "other"},
			func(e auth.AuditEntry) bool { return e.Actor.ID == "other" },
		},
		"an action": {
			auth.AuditFilter{Action: "create"},
			func(e auth.AuditEntry) bool { return e.Action == "create" },
		},
		"a kind": {
			auth.AuditFilter{ObjectKind: "rule"},
			func(e auth.AuditEntry) bool { return e.Object.Kind == "rule" },
		},
		"an object": {
			auth.AuditFilter{ObjectKind: "rule", ObjectID: ruleID},
			func(e auth.AuditEntry) bool { return e.Object == auth.AuditObject{Kind: "rule", ID: ruleID} },
		},
		"a change": {
			auth.AuditFilter{Change: all[1].Change},
			func(e auth.AuditEntry) bool { return e.Change == all[1].Change },
		},
		"a kind and an actor": {
			auth.AuditFilter{ObjectKind: "rule", ActorID: "7"},
			func(e auth.AuditEntry) bool { return e.Object.Kind == "rule" && e.Actor.ID == "7" },
		},
		"a time": {
			auth.AuditFilter{From: all[4].At, Until: all[1].At},
			func(e auth.AuditEntry) bool { return !e.At.Before(all[4].At) && e.At.Before(all[1].At) },
		},
		"a time and an action": {auth.AuditFilter{From: all[4].At, Action: "create"}, func(e auth.AuditEntry) bool {
			return !e.At.Before(all[4].At) && e.Action == "create"
		}},
		"nothing": {auth.AuditFilter{ObjectKind: "rule", ObjectID: "0"}, func(auth.AuditEntry) bool { return false }},
	}
	w.LookAt(3)
	for name, test := range filters {
		var want, got []auth.AuditID
		for _, entry := range all {
			if test.keep(entry) {
				want = append(want, entry.ID)
			}
		}
		for cursor, pages := (auth.LogCursor{}), 0; ; pages++ {
			entries, next, err := w.Audit(ctx, ours, test.filter, cursor, 2)
			if err != nil || len(entries) > 2 || pages > 100 {
				t.Fatalf("%s: page %d has %d entries (%v)", name, pages, len(entries), err)
			}
			for _, entry := range entries {
				got = append(got, entry.ID)
			}
			if cursor = next; next == (auth.LogCursor{}) {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: entries %v, want %v", name, got, want)
		}
	}
}

func TestAnotherTenantsEntriesAreNotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	theirs, _, err := w.Audit(t.Context(), w.theirs.ID, auth.AuditFilter{}, auth.LogCursor{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.AuditEntry(t.Context(), w.ours.ID, theirs[0].ID)
	wantError(t, err, rules.ErrNotFound)
	_, err = w.Revert(t.Context(), w.ours.ID, theirs[0].ID, false)
	wantError(t, err, rules.ErrNotFound)
	for _, filter := range []auth.AuditFilter{{Change: theirs[0].Change}, {ObjectKind: "api_key", ObjectID: "theirs"}} {
		if entries, _, err := w.Audit(t.Context(), w.ours.ID, filter, auth.LogCursor{}, 9); err != nil ||
			len(entries) > 0 {
			t.Errorf("%+v found %+v (%v)", filter, entries, err)
		}
	}
}

func TestAChangeWhoseAnswerWasLostIsLoggedAsUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	since := w.latest(t)
	err := w.RecordChange(t.Context(), w.ours.ID, auth.AuditObject{Kind: "bucket", ID: "12:42"}, auth.AuditCredit,
		func(context.Context) (any, any, error) { return nil, nil, rules.ErrOutcomeUnknown })
	wantError(t, err, rules.ErrOutcomeUnknown)
	got, entries := w.written(t, w.ours.ID, since)
	if len(got) != 1 || entries[0].Before != nil || string(entries[0].After) != `{"outcome": "unknown"}` {
		t.Errorf("the log got %q: %+v", got, entries)
	}
}
