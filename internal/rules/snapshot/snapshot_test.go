package snapshot

import (
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testTenant = rules.TenantID(1)

var testNow = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func activeRule(t interface {
	Helper()
	Fatal(args ...any)
}, id rules.RuleID, pattern string,
) rules.Rule {
	t.Helper()
	parsed, err := rules.ParsePattern(pattern)
	if err != nil {
		t.Fatal(pattern, err)
	}
	return rules.Rule{
		ID: id, TenantID: testTenant, Pattern: parsed, RatePerSecond: 10, RateUnit: rules.PerSecond, Burst: 50,
		Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce, Action: rules.ActionLimit, Active: true, Version: 1,
		InForceSince: testNow.Add(-time.Hour), Revision: 1,
	}
}

func tenantRow() rules.Tenant {
	return rules.Tenant{
		ID: testTenant, Slug: "acme", DefaultPlan: "free", Settings: rules.DefaultSettings(),
		Revision: 1,
	}
}

func tenantWith(all ...rules.Rule) *Tenant {
	return New(Rows{Tenants: []rules.Tenant{tenantRow()}, Rules: all}).Tenant(testTenant)
}

func TestPlanIsTheNamedOneElseTheUsersElseTheDefault(t *testing.T) {
	t.Parallel()
	plans := []rules.Plan{
		{TenantID: testTenant, Name: "free"},
		{TenantID: testTenant, Name: "pro"},
		{TenantID: testTenant, Name: "team"},
	}
	assigned := []rules.Assignment{{TenantID: testTenant, UserID: "42", Plan: "pro"}}
	tests := map[string]struct {
		request     rules.Request
		defaultPlan string
		want        string
		unknown     bool
	}{
		"named beats assigned": {
			request:     rules.Request{UserID: "42", Plan: "team"},
			defaultPlan: "free", want: "team",
		},
		"assigned beats the default": {
			request: rules.Request{UserID: "42"}, defaultPlan: "free",
			want: "pro",
		},
		"a user without assignment is on default": {
			request: rules.Request{UserID: "7"}, defaultPlan: "free",
			want: "free",
		},
		"a check without a user is on default": {defaultPlan: "free", want: "free"},
		"a tenant may have no default":         {request: rules.Request{UserID: "7"}, want: ""},
		"a named plan that does not exist is told": {
			request:     rules.Request{UserID: "42", Plan: "gold"},
			defaultPlan: "free", unknown: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := tenantRow()
			row.DefaultPlan = test.defaultPlan
			tenant := New(Rows{Tenants: []rules.Tenant{row}, Plans: plans, Assignments: assigned}).Tenant(testTenant)
			got, err := tenant.PlanOf(&test.request)
			if got != test.want || errors.Is(err, errUnknownPlan) != test.unknown {
				t.Errorf("got %q, %v; want %q, unknown %v", got, err, test.want, test.unknown)
			}
		})
	}
}

func TestNewerRowsChangeWhatTheyNameAndNothingElse(t *testing.T) {
	t.Parallel()
	other := rules.Tenant{ID: 2, Slug: "other", Settings: rules.DefaultSettings(), Revision: 1}
	otherRule := activeRule(t, 9, "global")
	otherRule.TenantID = other.ID
	before := New(Rows{
		Tenants: []rules.Tenant{tenantRow(), other},
		Plans:   []rules.Plan{{TenantID: testTenant, Name: "free"}, {TenantID: testTenant, Name: "pro"}},
		Rules:   []rules.Rule{activeRule(t, 1, "global"), activeRule(t, 2, "user:{user_id}"), otherRule},
		Assignments: []rules.Assignment{
			{TenantID: testTenant, UserID: "42", Plan: "pro"},
			{TenantID: testTenant, UserID: "7", Plan: "pro"},
		},
		Overrides: []rules.Override{{TenantID: testTenant, RuleID: 2, UserID: "42", RatePerSecond: 100, Burst: 500}},
		Keys:      []auth.Key{{ID: "demo", TenantID: testTenant}},
	})
	row := tenantRow()
	row.Revision, row.Suspended = 2, true
	faster := activeRule(t, 2, "user:{user_id}")
	faster.Burst = 60
	after := before.With(
		Rows{
			Tenants: []rules.Tenant{row},
			Rules:   []rules.Rule{{ID: 1, TenantID: testTenant, Removed: true}, faster, activeRule(t, 3, "ip:{ip}")},
		},
		Rows{
			Plans: []rules.Plan{
				{TenantID: testTenant, Name: "free", Removed: true},
				{TenantID: testTenant, Name: "team"},
			},
			Assignments: []rules.Assignment{
				{TenantID: testTenant, UserID: "42", Plan: "pro", Removed: true},
				{TenantID: testTenant, UserID: "8", Plan: "team"},
			},
			Keys: []auth.Key{
				{ID: "demo", TenantID: testTenant, Revoked: true},
				{ID: "new", TenantID: testTenant},
			},
		},
	)

	if got, want := before.Sizes(), (Sizes{Tenants: 2, Rules: 3, Overrides: 1, Assignments: 2, Keys: 1}); got != want {
		t.Errorf("before: %+v, want %+v", got, want)
	}
	if got, want := after.Sizes(), (Sizes{Tenants: 2, Rules: 3, Overrides: 1, Assignments: 2, Keys: 2}); got != want {
		t.Errorf("after: %+v, want %+v", got, want)
	}
	if before.Tenant(other.ID) != after.Tenant(other.ID) {
		t.Error("the other tenant was copied")
	}
	request := rules.Request{UserID: "42"}
	if got := matchedIDs(before.Tenant(testTenant), &request, "free"); !slices.Equal(got, []rules.RuleID{1, 2}) {
		t.Errorf("the Snapshot from before matches %v now", got)
	}
	tenant := after.Tenant(testTenant)
	if got := tenant.Match(&request, "free", testNow, nil); len(got) != 1 || got[0].Rule.Burst != 60 ||
		got[0].Limit.Burst != 500 {
		t.Errorf("after: %+v", got)
	}
	if plan, _ := tenant.PlanOf(&request); plan != "free" || !tenant.Tenant.Suspended {
		t.Errorf("plan %q, tenant %+v", plan, tenant.Tenant)
	}
	if plan, _ := tenant.PlanOf(&rules.Request{UserID: "8"}); plan != "team" {
		t.Errorf("the new assignment says %q", plan)
	}
	if _, err := tenant.PlanOf(&rules.Request{Plan: "free"}); !errors.Is(err, errUnknownPlan) {
		t.Errorf("the removed plan: %v", err)
	}
	if key, ok := after.Key("demo"); !ok || !key.Revoked {
		t.Errorf("the revoked key: %+v, %v", key, ok)
	}
}

func TestEqualRowsLeaveTheSnapshotAsItIs(t *testing.T) {
	t.Parallel()
	rows := func() Rows {
		return Rows{
			Tenants: []rules.Tenant{tenantRow()},
			Plans:   []rules.Plan{{TenantID: testTenant, Name: "free"}},
			Rules:   []rules.Rule{activeRule(t, 1, "user:{user_id}:endpoint:/api/*")},
			Overrides: []rules.Override{{
				TenantID: testTenant, RuleID: 1, UserID: "42", RatePerSecond: 1, Burst: 1,
				ExpiresAt: testNow,
			}},
			Assignments: []rules.Assignment{{TenantID: testTenant, UserID: "42", Plan: "free"}},
			Keys: []auth.Key{{
				ID: "demo", TenantID: testTenant,
				Permissions: []auth.Permission{auth.PermissionCheck},
			}},
		}
	}
	before := New(rows())
	if before.With(rows()) != before {
		t.Error("equal rows made another Snapshot")
	}
	d := newReread(before, nil, time.UnixMicro(before.readAt))
	all := rows()
	d.add(&all)
	if next, lost := d.snapshot(); next != before || len(lost) > 0 {
		t.Errorf("a re-read of equal rows made another Snapshot, or lost %v", lost)
	}
}

func TestRowsOfAnUnknownTenantAreLeftOut(t *testing.T) {
	t.Parallel()
	s := New(Rows{
		Rules:       []rules.Rule{activeRule(t, 1, "global")},
		Assignments: []rules.Assignment{{TenantID: 5, UserID: "42", Plan: "pro"}},
	})
	if s.Tenant(testTenant) != nil || s.Sizes() != (Sizes{}) {
		t.Errorf("got %+v", s.Sizes())
	}
}

func TestEveryFieldOfARowIsComparedWithTheHeldOne(t *testing.T) {
	t.Parallel()
	pattern := must(rules.ParsePattern("global"))(t)
	changed := map[reflect.Type]any{
		reflect.TypeFor[rules.Pattern]():     pattern,
		reflect.TypeFor[[]auth.Permission](): []auth.Permission{auth.PermissionCheck},
		reflect.TypeFor[time.Time]():         testNow,
		reflect.TypeFor[[32]byte]():          [32]byte{1},
		reflect.TypeFor[[]int]():             []int{80},
		reflect.TypeFor[rules.Window]():      rules.Window{Length: time.Second},
		reflect.TypeFor[[]netip.Prefix]():    []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		reflect.TypeFor[rules.Adapt]():       rules.Adapt{Backend: "search"},
	}
	change := func(field reflect.Value) {
		switch value, ok := changed[field.Type()]; {
		case ok:
			field.Set(reflect.ValueOf(value))
		case field.Kind() == reflect.String:
			field.SetString("x")
		case field.Kind() == reflect.Bool:
			field.SetBool(true)
		case field.CanInt():
			field.SetInt(1)
		case field.CanFloat():
			field.SetFloat(1)
		default:
			t.Fatalf("a field of type %v: say here how to change it", field.Type())
		}
	}
	for i := range reflect.TypeFor[rules.Rule]().NumField() {
		switch reflect.TypeFor[rules.Rule]().Field(i).Name {
		case "Unknown": // computed from the others
			continue
		case "ExpiresIn": // only set for a write
			continue
		}
		var a, b rules.Rule
		change(reflect.ValueOf(&b).Elem().Field(i))
		if sameRule(&a, &b) {
			t.Errorf("rules that differ in %s are taken for the same", reflect.TypeFor[rules.Rule]().Field(i).Name)
		}
	}
	for i := range reflect.TypeFor[auth.Key]().NumField() {
		var a, b auth.Key
		change(reflect.ValueOf(&b).Elem().Field(i))
		if sameKey(&a, &b) {
			t.Errorf("keys that differ in %s are taken for the same", reflect.TypeFor[auth.Key]().Field(i).Name)
		}
	}
	if a, b := activeRule(t, 1, "ip:{ip}"), activeRule(t, 1, "ip:{ip}"); !sameRule(&a, &b) {
		t.Error("equal rules are taken for different ones")
	}
}

func TestTableIsAMapWhoseCopiesDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			table table[int, int]
			model map[int]int
		}
		versions := []version{{}}
		for range rapid.IntRange(1, 12).Draw(t, "edits") {
			from := rapid.SampledFrom(versions).Draw(t, "from")
			edit, model := editTable(from.table), maps.Clone(from.model)
			if model == nil {
				model = map[int]int{}
			}
			for range rapid.IntRange(0, 60).Draw(t, "writes") {
				key, value := rapid.IntRange(0, 40).Draw(t, "key"), rapid.IntRange(-1, 3).Draw(t, "value")
				if value < 0 {
					edit.remove(key)
					delete(model, key)
				} else {
					edit.set(key, value)
					model[key] = value
				}
			}
			if !edit.changed && !maps.Equal(model, from.model) {
				t.Fatal("a change was not noticed")
			}
			versions = append(versions, version{edit.table, model})
		}
		for i, v := range versions {
			got := maps.Collect(v.table.all())
			if !maps.Equal(got, v.model) || v.table.size != len(v.model) {
				t.Fatalf("version %d holds %v (size %d), want %v", i, got, v.table.size, v.model)
			}
			for key := range 41 {
				value, ok := v.table.get(key)
				if want, wantOK := v.model[key]; value != want && wantOK || ok != wantOK {
					t.Fatalf("version %d: get(%d) = %d, %v; want %d, %v", i, key, value, ok, want, wantOK)
				}
			}
		}
	})
}

func TestOneChangeAmongManyRowsCopiesFew(t *testing.T) {
	t.Parallel()
	rows := Rows{Tenants: []rules.Tenant{tenantRow()}}
	for i := range 10_000 {
		rows.Assignments = append(rows.Assignments,
			rules.Assignment{TenantID: testTenant, UserID: userName(i), Plan: "free"})
	}
	before := New(rows)
	after := before.With(Rows{Assignments: []rules.Assignment{{
		TenantID: testTenant, UserID: userName(5),
		Plan: "pro",
	}}})
	old, changed := before.Tenant(testTenant).assignments, after.Tenant(testTenant).assignments
	if reflect.ValueOf(old.base).Pointer() != reflect.ValueOf(changed.base).Pointer() || len(changed.overlay) != 1 {
		t.Errorf("the base was copied, or the overlay has %d rows", len(changed.overlay))
	}
}

func TestARemovedTenantIsForgotten(t *testing.T) {
	t.Parallel()
	before := New(Rows{
		Tenants: []rules.Tenant{tenantRow(), {ID: 2, Slug: "other", Revision: 1}},
		Rules:   []rules.Rule{activeRule(t, 1, "global")},
		Keys:    []auth.Key{{ID: "demo", TenantID: testTenant}},
	})
	removed := tenantRow()
	removed.Revision, removed.Removed = 2, true
	after := before.With(Rows{Tenants: []rules.Tenant{removed, {ID: 3, Removed: true}}})
	if after.Tenant(testTenant) != nil || after.Tenant(3) != nil {
		t.Error("a removed tenant is there")
	}
	if got, want := after.Sizes(), (Sizes{Tenants: 1, Keys: 1}); got != want {
		t.Errorf("it holds %+v, want %+v", got, want)
	}
	if _, known := after.revisions()[testTenant]; known {
		t.Error("a poll still asks for it")
	}
	if again := after.With(Rows{Tenants: []rules.Tenant{removed}}); again != after {
		t.Error("that it is removed changes the Snapshot again")
	}
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
