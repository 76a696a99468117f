package pgstore_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func TestRulesAreFilteredAndPaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	for i := range 20 {
		rule := limit(t, ours, []string{"global", "ip:{ip}", "endpoint:/Api/search"}[i%3],
			[]string{"", "free", "pro"}[i%3], fmt.Sprint("n", i))
		rule.Active, rule.Description = i%2 == 0, []string{"Größe 50%", "plain"}[i%2]
		if i%5 == 0 {
			rule.Mode = rules.ModeShadow
		}
		if i%7 == 0 {
			rule.Action, rule.RatePerSecond, rule.Burst = rules.ActionBlock, 0, 0
		} else if i%4 == 0 {
			rule.Meter = "usd"
		}
		must(w.CreateRule(ctx, rule))(t)
	}
	all := must(w.Rules(ctx, ours, rules.RuleFilter{}, 0, 100))(t).Rules
	none, pro, inactive := "", "pro", false
	requests, usd := rules.Meter(""), rules.Meter("usd")
	tests := map[string]struct {
		filter rules.RuleFilter
		keep   func(rules.Rule) bool
	}{
		"everything": {rules.RuleFilter{}, func(rules.Rule) bool { return true }},
		"a scope": {
			rules.RuleFilter{Scope: rules.ScopeIP},
			func(r rules.Rule) bool { return r.Scope() == rules.ScopeIP },
		},
		"a plan":    {rules.RuleFilter{Plan: &pro}, func(r rules.Rule) bool { return r.Plan == "pro" }},
		"all plans": {rules.RuleFilter{Plan: &none}, func(r rules.Rule) bool { return r.Plan == "" }},
		"a meter":   {rules.RuleFilter{Meter: &usd}, func(r rules.Rule) bool { return r.Meter == usd }},
		"requests":  {rules.RuleFilter{Meter: &requests}, func(r rules.Rule) bool { return r.Meter == "" }},
		"a mode": {
			rules.RuleFilter{Mode: rules.ModeShadow},
			func(r rules.Rule) bool { return r.Mode == rules.ModeShadow },
		},
		"an action": {
			rules.RuleFilter{Action: rules.ActionBlock},
			func(r rules.Rule) bool { return r.Action == rules.ActionBlock },
		},
		"inactive ones": {rules.RuleFilter{Active: &inactive}, func(r rules.Rule) bool { return !r.Active }},
		"a pattern": {
			rules.RuleFilter{Pattern: "ip:{ip}"},
			func(r rules.Rule) bool { return r.Pattern.String() == "ip:{ip}" },
		},
		"text in pattern": {
			rules.RuleFilter{Text: "/api/S"},
			func(r rules.Rule) bool { return r.Scope() == rules.ScopeEndpoint },
		},
		"text of LIKE": {
			rules.RuleFilter{Text: "E 50%"},
			func(r rules.Rule) bool { return r.Description == "Größe 50%" },
		},
		"text in a name": {rules.RuleFilter{Text: "DAILY"}, func(r rules.Rule) bool { return r.Name == "daily" }},
		"two of them": {
			rules.RuleFilter{Plan: &pro, Active: &inactive},
			func(r rules.Rule) bool { return r.Plan == "pro" && !r.Active },
		},
		"what no rule is": {rules.RuleFilter{Text: "nowhere"}, func(rules.Rule) bool { return false }},
	}
	w.LookAt(4)
	for name, test := range tests {
		var want, got []rules.RuleID
		for _, rule := range all {
			if test.keep(rule) {
				want = append(want, rule.ID)
			}
		}
		after, pages := rules.RuleID(0), 0
		for {
			page := must(w.Rules(ctx, ours, test.filter, after, 3))(t)
			for _, rule := range page.Rules {
				got = append(got, rule.ID)
			}
			if pages++; page.Next == 0 || pages > 50 || len(page.Rules) > 3 {
				break
			}
			after = page.Next
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: rules %v in %d pages, want %v", name, got, pages, want)
		}
	}
}

func TestMatrixRowsComeWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	for _, pattern := range []string{"global", "ip:{ip}", "user:{user_id}"} {
		for _, plan := range []string{"", "free", "pro"} {
			must(w.CreateRule(ctx, limit(t, ours, pattern, plan, "cell")))(t)
		}
	}
	want := []string{
		"global cell", "global [free] cell", "global [pro] cell", "ip:{ip} cell", "ip:{ip} [free] cell",
		"ip:{ip} [pro] cell",
		"user:{user_id}", "user:{user_id} cell", "user:{user_id} [free] cell", "user:{user_id} [pro] cell",
		"user:{user_id} [free] daily",
	}
	for _, test := range []struct{ rows, rules, pages int }{
		{rows: 1, rules: 100, pages: 6}, // the last is empty
		{rows: 2, rules: 100, pages: 3},
		{rows: 3, rules: 100, pages: 2},
		{rows: 100, rules: 100, pages: 1},
		{rows: 100, rules: 1, pages: 6},
		{rows: 100, rules: 4, pages: 3},
		{rows: 2, rules: 7, pages: 3},
		{rows: 100, rules: 12, pages: 1},
	} {
		var got []string
		w.EndMatrixPagesAt(int64(test.rules))
		after, pages := rules.RuleIdentity{}, 0
		for more := true; more && pages < 10; pages++ {
			page := must(w.Matrix(ctx, ours, after, test.rows))(t)
			if len(page.Rules) > 0 && pages > 0 {
				if first := page.Rules[0].Identity(); first.Pattern == after.Pattern && first.Name == after.Name {
					t.Errorf("%+v: the row %s is on two pages", test, first)
				}
			}
			for i := range page.Rules {
				got = append(got, page.Rules[i].Identity().String())
			}
			after, more = page.Next, page.Next != (rules.RuleIdentity{})
		}
		if !slices.Equal(got, want) || pages != test.pages {
			t.Errorf("%+v: %d pages have %q", test, pages, got)
		}
	}
}

func TestEveryListGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours
	w.assign(t, ours.ID, "pro", "a1", "a2", "b%", "b_", "ü")
	for i := range 3 {
		must(w.CreateKey(ctx, auth.NamedKey{
			Name: "k",
			Key:  auth.Key{ID: fmt.Sprint("k", i), TenantID: ours.ID, Permissions: ours.key.Permissions},
		}))(t)
	}
	must(w.PutOverride(ctx, overrideOf(ours.daily, "42"), rules.NoneStored))(t)
	tests := map[string]struct {
		page func(after string) []string
		want []string
	}{
		"tenants": {func(after string) []string {
			return names(must(w.Tenants(ctx, "", after, 1))(t), func(t rules.Tenant) string { return t.Slug })
		}, []string{"ours", "theirs"}},
		"tenants by a text": {func(after string) []string {
			return names(must(w.Tenants(ctx, "OURS", after, 1))(t), func(t rules.Tenant) string { return t.Slug })
		}, []string{"ours"}},
		"plans": {func(after string) []string {
			return names(must(w.Plans(ctx, ours.ID, after, 2))(t), func(p rules.PlanUse) string { return p.Name })
		}, []string{"free", "only-ours", "pro"}},
		"users": {func(after string) []string {
			return names(must(w.Assignments(ctx, ours.ID, "", "", after, 2))(t),
				func(a rules.Assignment) string { return a.UserID })
		}, []string{"42", "a1", "a2", "b%", "b_", "ü"}},
		"users with a prefix": {func(after string) []string {
			return names(must(w.Assignments(ctx, ours.ID, "pro", "b_", after, 1))(t),
				func(a rules.Assignment) string { return a.UserID })
		}, []string{"b_"}},
		"overrides of a user": {func(after string) []string {
			var id rules.RuleID
			_, _ = fmt.Sscan(after, &id)
			return names(must(w.OverridesOfUser(ctx, ours.ID, "42", id, 1))(t),
				func(o rules.Override) string { return fmt.Sprint(o.RuleID) })
		}, []string{fmt.Sprint(ours.user.ID), fmt.Sprint(ours.daily.ID)}},
		"overrides of a tenant": {func(after string) []string {
			return placesOf(must(w.FindOverrides(ctx, ours.ID, rules.OverrideFilter{}, placeOf(after), 1))(t))
		}, []string{fmt.Sprint("42 ", ours.user.ID), fmt.Sprint("42 ", ours.daily.ID)}},
		"keys": {func(after string) []string {
			return names(must(w.Keys(ctx, ours.ID, after, 2))(t), func(k auth.NamedKey) string { return k.ID })
		}, []string{"k2", "k1", "k0", "ours"}},
	}
	for name, test := range tests {
		var got []string
		for after, pages := "", 0; pages < 20; pages++ {
			page := test.page(after)
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			after = page[len(page)-1]
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	_, err := w.Keys(ctx, ours.ID, "theirs", 5)
	wantError(t, err, rules.ErrNotFound)
}

func placeOf(text string) (place rules.OverridePlace) {
	_, _ = fmt.Sscan(text, &place.User, &place.Rule)
	return place
}

func placesOf(page rules.OverridePage) (places []string) {
	for i := range page.Overrides {
		places = append(places, fmt.Sprint(page.Overrides[i].UserID, " ", page.Overrides[i].RuleID))
	}
	return places
}

func TestOverridesAreFilteredAndPaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours
	noon := time.Now().Add(24 * time.Hour).Truncate(time.Hour)
	for i := range 24 {
		override := overrideOf([]rules.Rule{ours.user, ours.daily}[i%2], fmt.Sprintf("%c%d", 'a'+i%3, i/6))
		if i%4 != 0 {
			override.ExpiresAt = noon.Add(time.Duration(i/3) * time.Hour)
		}
		must(w.PutOverride(ctx, override, rules.NoneStored))(t)
	}
	if err := w.RemoveOverride(ctx, ours.ID, ours.user.ID, "a1", rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	all := must(w.FindOverrides(ctx, ours.ID, rules.OverrideFilter{}, rules.OverridePlace{}, 100))(t).Overrides
	if len(all) != 24 { // with the one that the world begins with
		t.Fatalf("there are %d overrides, want 24", len(all))
	}
	from, until := noon.Add(2*time.Hour), noon.Add(5*time.Hour)
	w.LookAt(4)
	for name, filter := range map[string]rules.OverrideFilter{
		"everything":                 {},
		"a rule":                     {Rule: ours.daily.ID},
		"a user":                     {User: "b1"},
		"a user whom nobody knows":   {User: "b"},
		"a prefix":                   {UserPrefix: "b"},
		"a prefix of a rule":         {UserPrefix: "b", Rule: ours.user.ID},
		"what ends in some time":     {EndsAfter: from, EndsBefore: until},
		"what has not ended by then": {NotEndedBefore: from, UserPrefix: "c"},
	} {
		for _, byEnd := range []bool{false, true} {
			filter.ByEnd = byEnd
			var want []string
			for _, override := range slices.SortedStableFunc(slices.Values(all), func(a, b rules.Override) int {
				if byEnd {
					return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.RuleID, b.RuleID),
						cmp.Compare(a.UserID, b.UserID))
				}
				return cmp.Or(cmp.Compare(a.UserID, b.UserID), cmp.Compare(a.RuleID, b.RuleID))
			}) {
				if filter.Selects(&override) {
					want = append(want, placesOf(rules.OverridePage{Overrides: []rules.Override{override}})...)
				}
			}
			for limit := 1; limit <= 5; limit += 2 {
				var got []string
				place := rules.OverridePlace{}
				for pages := 0; ; pages++ {
					page := must(w.FindOverrides(ctx, ours.ID, filter, place, limit))(t)
					got = append(got, placesOf(page)...)
					if place = page.Next; place == (rules.OverridePlace{}) || pages > 50 ||
						len(page.Overrides) > limit {
						break
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s, by end: %v, in pages of %d:\n%q, want\n%q", name, byEnd, limit, got, want)
				}
			}
			if len(want) == 0 && filter.User != "b" {
				t.Errorf("%s, by end: %v: the filter selects none", name, byEnd)
			}
		}
	}
}

func names[T any](values []T, name func(T) string) (all []string) {
	for _, value := range values {
		all = append(all, name(value))
	}
	return all
}

func (w *world) countsAgree(t *testing.T) {
	t.Helper()
	var wrong int
	err := connect(t, w.url).QueryRow(t.Context(), `SELECT count(*) FROM plan AS p WHERE (
			coalesce((SELECT rules FROM plan_use AS u WHERE u.tenant_id = p.tenant_id AND u.plan = p.name), 0),
			coalesce((SELECT users FROM plan_use AS u WHERE u.tenant_id = p.tenant_id AND u.plan = p.name), 0)
		) IS DISTINCT FROM (
			(SELECT count(*) FROM rate_limit_rule AS r WHERE r.tenant_id = p.tenant_id AND r.plan = p.name
				AND r.removed_at IS NULL),
			(SELECT count(*) FROM plan_assignment AS t WHERE t.tenant_id = p.tenant_id AND t.plan = p.name
				AND t.removed_at IS NULL)
		)`).Scan(&wrong)
	if err != nil || wrong > 0 {
		t.Errorf("%d plans have other counts than are there (%v)", wrong, err)
	}
	held := lines(t, connect(t, w.url),
		`SELECT concat_ws(' ', tenant_id, thing, held, 'of', count_held(tenant_id, thing)) FROM tenant_use
		WHERE held <> count_held(tenant_id, thing)`)
	if len(held) > 0 {
		t.Errorf("tenants hold other numbers than are noted: %q", held)
	}
}

func TestPlansKnowHowManyNeedThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	want := map[string][2]int64{"free": {1, 0}, "only-ours": {0, 0}, "pro": {0, 1}}
	for _, plan := range must(w.Plans(t.Context(), w.ours.ID, "", 10))(t) {
		if got := [2]int64{plan.Rules, plan.Users}; got != want[plan.Name] || plan.IsDefault != (plan.Name == "free") {
			t.Errorf("plan %s has %d rules and %d users, default: %t", plan.Name, plan.Rules, plan.Users,
				plan.IsDefault)
		}
	}
	exec(t, w.url, "UPDATE plan_assignment SET plan = 'free' WHERE tenant_id = $1", w.ours.ID)
	exec(t, w.url, "DELETE FROM rate_limit_rule WHERE tenant_id = $1 AND plan = 'free'", w.ours.ID)
	w.countsAgree(t)
	if free := must(w.Plan(t.Context(), w.ours.ID, "free"))(t); free.Rules != 0 || free.Users != 1 {
		t.Errorf("after statements by hand plan free has %d rules and %d users", free.Rules, free.Users)
	}
}

func TestARemovedTenantIsFoundByNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours
	wantError(t, w.RemoveTenant(ctx, ours.ID, rules.AnyVersion), rules.ErrInUse)
	ours.Suspended = true
	suspended := must(w.UpdateTenant(ctx, ours.Tenant))(t)
	wantError(t, w.RemoveTenant(ctx, ours.ID, rules.Expected(suspended.Version-1)), rules.ErrChanged)
	known := w.revisions(t)
	if err := w.RemoveTenant(ctx, ours.ID, rules.Expected(suspended.Version)); err != nil {
		t.Fatal(err)
	}
	_, err := w.Tenant(ctx, ours.ID)
	wantError(t, err, rules.ErrNotFound)
	_, err = w.TenantBySlug(ctx, "ours")
	wantError(t, err, rules.ErrNotFound)
	_, err = w.CreateRule(ctx, limit(t, ours.ID, "global", "", ""))
	wantError(t, err, rules.ErrNotFound)
	_, err = w.Config(ctx, ours.ID)
	wantError(t, err, rules.ErrNotFound)
	wantError(t, w.RemoveTenant(ctx, ours.ID, rules.AnyVersion), rules.ErrNotFound)
	if _, err := w.CreateTenant(ctx,
		rules.Tenant{Slug: "ours", Name: "X", Settings: rules.DefaultSettings()}); err == nil {
		t.Error("its slug is free again")
	}
	if left := must(w.Tenants(ctx, "", "", 10))(t); len(left) != 1 || left[0].ID != w.theirs.ID {
		t.Errorf("the list has %+v", left)
	}
	rows := w.poll(t, known)
	if got := count(rows); got != (rowCounts{Tenants: 1}) || !rows.Tenants[0].Removed {
		t.Errorf("a process that knows it reads %+v, want that it is removed", got)
	}
	delete(known, ours.ID)
	if got := count(w.poll(t, known)); got != (rowCounts{}) {
		t.Errorf("a process that does not know it reads %+v", got)
	}
	for _, tenant := range w.poll(t, nil).Tenants {
		if tenant.ID == ours.ID {
			t.Error("a read of everything has it")
		}
	}
}

func TestAKeyIsRotated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	next := func(id string) auth.NamedKey { return auth.NamedKey{Key: auth.Key{ID: id, Digest: [32]byte{9}}} }
	_, _, err := w.RotateKey(ctx, ours, "theirs", rules.AnyVersion, next("x"), 0)
	wantError(t, err, rules.ErrNotFound)
	_, _, err = w.RotateKey(ctx, ours, "ours", 1, next("x"), 0)
	wantError(t, err, rules.ErrChanged)
	old, created, err := w.RotateKey(ctx, ours, "ours", rules.Expected(w.ours.key.Revision), next("second"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if wait := time.Until(old.ExpiresAt); wait < 59*time.Minute || wait > time.Hour {
		t.Errorf("the old key expires in %s", wait)
	}
	if created.ID != "second" || created.Name != "ci" || !slices.Equal(created.Permissions, w.ours.key.Permissions) ||
		!created.ExpiresAt.IsZero() {
		t.Errorf("the new key is %+v", created)
	}
	again, _, err := w.RotateKey(ctx, ours, "ours", rules.AnyVersion, next("third"), 2*time.Hour)
	if err != nil || !again.ExpiresAt.Equal(old.ExpiresAt) {
		t.Errorf("a longer grace period makes it expire at %s instead of %s (%v)", again.ExpiresAt, old.ExpiresAt, err)
	}
	if _, _, err := w.RotateKey(ctx, ours, "second", rules.AnyVersion, next("fourth"), -time.Second); err != nil {
		t.Fatal(err)
	}
	var wrong rules.FieldErrors
	if _, _, err := w.RotateKey(ctx, ours, "second", rules.AnyVersion, next("fifth"), 0); !asFieldErrors(err, &wrong) {
		t.Errorf("an expired key was rotated: %v", err)
	}
}

func TestTheLastUseOfAKeyIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := time.Now().Truncate(time.Minute).UTC()
	for _, use := range []time.Time{at, at.Add(-time.Hour)} {
		if err := w.RecordKeyUses(t.Context(),
			[]snapshot.KeyUse{{KeyID: "ours", At: use}, {KeyID: "nobody's", At: use}}); err != nil {
			t.Fatal(err)
		}
	}
	known := w.revisions(t)
	if key := must(w.Key(t.Context(), w.ours.ID, "ours"))(t); !key.LastUsedAt.Equal(at) {
		t.Errorf("it was last used at %s, want %s", key.LastUsedAt, at)
	}
	if got := count(w.poll(t, known)); got != (rowCounts{}) {
		t.Errorf("that a key was used made a poll read %+v", got)
	}
}
