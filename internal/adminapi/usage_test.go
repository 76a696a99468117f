package adminapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
)

func (w *world) decide(tenant rules.Tenant, number int64, minute time.Time, rule rules.RuleID, v violations.Verdicts) {
	w.t.Helper()
	err := w.store.WriteViolations(w.ctx(), &violations.Batch{
		Writer: "usage", Number: number,
		Decisions: []violations.DecisionCount{{Tenant: tenant.ID, Rule: rule, Minute: minute, Verdicts: v}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestUsagePerMonthByRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	december := time.Date(2025, 12, 1, 0, 0, 0, 0, time.UTC)
	rule := w.rule(w.acme, func(r *rules.Rule) { r.Name, r.Plan, r.Meter = "=cmd", "free", "usd" })
	w.decide(w.acme, 1, december.Add(-time.Minute), 0, violations.Verdicts{Allowed: 7, Denied: 2, Taken: 7})
	w.decide(w.acme, 2, december, 0,
		violations.Verdicts{Allowed: 3, Bypassed: 1, Degraded: 1, Taken: 2, TakenParts: 500_000})
	w.decide(w.acme, 3, december, rule.ID, violations.Verdicts{Allowed: 3, Taken: 3})
	w.decide(w.acme, 4, december.Add(40*time.Hour), rule.ID, violations.Verdicts{Denied: 4})
	w.decide(w.other, 5, december, 0, violations.Verdicts{Allowed: 1000})
	const path = "/api/v1/tenants/acme/usage/export"
	got := w.get(by, path+"?from=2025-11&to=2025-12")
	want := fmt.Sprintf(`month,kind,rule_id,name,key_pattern,plan,mode,meter,allowed,denied,bypassed,degraded,cost
2025-11,all,,,,,,requests,7,2,0,0,7
2025-12,all,,,,,,requests,3,0,1,1,2.5
2025-12,rule,%d,'=cmd,%s,free,%s,usd,3,4,0,0,3
`, rule.ID, rule.Pattern, rule.Mode)
	if got.body != want {
		t.Errorf("the usage is\n%s\nwant\n%s", got.body, want)
	}
	if named := got.header.Get(
		"Content-Disposition"); named != `attachment; filename="usage-acme-rules-2025-11-to-2025-12.csv"` {
		t.Errorf("the file is %s", named)
	}
	for name, test := range map[string]struct{ query, pointer string }{
		"no month":          {"from=2025-13", "/query/from"},
		"the wrong order":   {"from=2025-12&to=2025-11", "/query/from"},
		"too many months":   {"from=2020-01&to=2025-11", "/query/from"},
		"a user, by rule":   {"user_id=42", "/query/user_id"},
		"an unknown column": {"by=plan", "/query/by"},
	} {
		refused := w.want(w.send(by, "GET", path+"?"+test.query, nil), http.StatusBadRequest)
		if found := pointersOf(t, refused); len(found) != 1 || found[0] != test.pointer {
			t.Errorf("%s is refused at %v, want %s", name, found, test.pointer)
		}
	}
	w.want(w.send(w.person(w.other, auth.Owner), "GET", path, nil), http.StatusNotFound)
	if err := w.system().RemoveRule(t.Context(), w.acme.ID, rule.ID, rules.AnyVersion); err != nil {
		t.Fatal(err)
	}
	if got := w.get(by, path+"?from=2025-11&to=2025-12"); got.body != want {
		t.Errorf("once the rule is removed, the usage is\n%s\nwant\n%s", got.body, want)
	}
}

func TestAFileOfUsageIsNamedAfterAMonthThatGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	now := time.Now().UTC()
	this := now.Format("2006-01")
	last := time.Date(now.Year(), now.Month()-1, 1, 0, 0, 0, 0, time.UTC).Format("2006-01")
	for query, want := range map[string]string{
		"by=user&from=" + last + "&to=" + last:            "usage-acme-users-" + last,
		"by=user&from=" + last + "&to=" + this:            "usage-acme-users-" + last + "-to-" + this + "-so-far",
		"by=rule&from=" + this:                            "usage-acme-rules-" + this + "-so-far",
		"by=user&user_id=42&from=" + this + "&to=" + this: "usage-acme-user-42-" + this + "-so-far",
	} {
		got := w.get(by, "/api/v1/tenants/acme/usage/export?"+query)
		if named := got.header.Get("Content-Disposition"); named != fmt.Sprintf("attachment; filename=%q",
			want+".csv") {
			t.Errorf("the file of %s is %s, want %s.csv", query, named, want)
		}
	}
}

func TestUsagePerMonthByUserSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, owner := w.person(w.acme, auth.Viewer), w.person(w.acme, auth.Owner)
	w.record(w.acme, 10)
	november, december := time.Date(2025, 11, 1, 0, 0, 0, 0, time.UTC), time.Date(2025, 12, 1, 0, 0, 0, 0, time.UTC)
	w.decide(w.acme, 1, november, 0, violations.Verdicts{Allowed: 10, Denied: 2, Bypassed: 1})
	w.decide(w.acme, 2, december, 0, violations.Verdicts{Allowed: 4})
	counts := []traffic.UserMonth{
		{Tenant: w.acme.ID, Month: november, User: "=1+1", Allowed: 2, Denied: 2, Cost: 2, CostParts: 10},
		{Tenant: w.acme.ID, Month: november, User: "", Allowed: 3, Cost: 3},
		{Tenant: w.acme.ID, Month: december, User: "42", Allowed: 4, Cost: 4},
		{Tenant: w.acme.ID, Month: december, User: "42", Meter: "usd", Allowed: 3, Denied: 1, CostParts: 750_000},
	}
	if err := w.store.WriteUserMonths(w.ctx(), "w", 1, counts); err != nil {
		t.Fatal(err)
	}
	const path = "/api/v1/tenants/acme/usage/export?from=2025-11&to=2025-12&by=user"
	header := "month,kind,user_id,meter,allowed,denied,cost\n"
	for query, want := range map[string]string{
		"": header +
			"2025-11,no_user,,requests,3,0,3\n" +
			"2025-11,user,'=1+1,requests,2,2,2.00001\n2025-11,not_counted,,,6,0,\n" +
			"2025-12,user,42,requests,4,0,4\n2025-12,user,42,usd,3,1,0.75\n",
		"&user_id=42": header + "2025-12,user,42,requests,4,0,4\n2025-12,user,42,usd,3,1,0.75\n",
	} {
		if got := w.get(by, path+query); got.body != want {
			t.Errorf("the usage with %q is\n%s\nwant\n%s", query, got.body, want)
		}
	}
	month := time.Now().UTC().Format("2006-01")
	first, err := time.Parse("2006-01", month)
	if err != nil {
		t.Fatal(err)
	}
	err = w.store.WriteUserMonths(w.ctx(), "w", 2,
		[]traffic.UserMonth{{Tenant: w.acme.ID, Month: first, User: "7", Allowed: 4, Cost: 4, CostParts: 500_000}})
	if err != nil {
		t.Fatal(err)
	}
	data := w.exported(owner, "/api/v1/tenants/acme/users/7/data")
	if want := fmt.Sprintf(`"usage":[{"allowed":4,"cost":4.5,"costs":{},"denied":0,"month":%q}]`,
		month); !strings.Contains(strings.ReplaceAll(data.body, "\n", ""), want) {
		t.Errorf("a user's data is %s, want it to have %s", data.body, want)
	}
}

func TestAUsersUsageIsReadWithoutAnExport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, owner := w.person(w.acme, auth.Viewer), w.person(w.acme, auth.Owner)
	november, december := time.Date(2025, 11, 1, 0, 0, 0, 0, time.UTC), time.Date(2025, 12, 1, 0, 0, 0, 0, time.UTC)
	for number, tenant := range []rules.Tenant{w.acme, w.other} {
		w.record(tenant, 1)
		err := w.store.WriteUserMonths(w.ctx(), "w", int64(number+1), []traffic.UserMonth{
			{
				Tenant: tenant.ID, Month: november, User: "a/b", Allowed: int64(2 + number), Denied: 1, Cost: 2,
				CostParts: 500_000,
			},
			{Tenant: tenant.ID, Month: december, User: "a/b", Allowed: 4, Cost: 4},
			{Tenant: tenant.ID, Month: december, User: "a/b", Meter: "usd", CostParts: 500_000},
			{Tenant: tenant.ID, Month: december, User: "7", Allowed: 9, Cost: 9},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	const path = "/api/v1/tenants/acme/users/a%2Fb/usage"
	const inNovember = `{"allowed":2,"cost":2.5,"costs":{},"denied":1,"month":"2025-11"}`
	const inDecember = `{"allowed":4,"cost":4,"costs":{"usd":0.5},"denied":0,"month":"2025-12"}`
	for address, want := range map[string]string{
		path + "?from=2025-11&to=2025-12":                            inNovember + "," + inDecember,
		path + "?to=2025-11":                                         inNovember,
		path + "?from=2024-01&to=2025-10":                            "",
		"/api/v1/tenants/acme/users/nobody/usage":                    "",
		"/api/v1/tenants/acme/users/a/usage?from=2025-11&to=2025-12": "",
	} {
		got := w.get(by, address)
		if !strings.HasSuffix(got.body, `,"items":[`+want+"]}\n") {
			t.Errorf("%s is %s, want the items %s", address, got.body, want)
		}
		answer := read[struct {
			AsOf time.Time `json:"as_of"`
		}](t, got)
		if age := time.Since(answer.AsOf); age < 0 || age > time.Minute {
			t.Errorf("%s is as of %s, which is %s ago", address, answer.AsOf, age)
		}
	}
	for query, pointer := range map[string]string{
		"from=2025-13":            "/query/from",
		"from=2020-01&to=2025-11": "/query/from",
		"by=user":                 "/query/by",
	} {
		refused := w.want(w.send(by, "GET", path+"?"+query, nil), http.StatusBadRequest)
		if found := pointersOf(t, refused); len(found) != 1 || found[0] != pointer {
			t.Errorf("%s is refused at %v, want %s", query, found, pointer)
		}
	}
	for permission, want := range map[auth.Permission]int{
		auth.PermissionUsers: http.StatusOK, auth.PermissionRead: http.StatusOK,
		auth.PermissionRules: http.StatusForbidden,
	} {
		_, token := w.key(w.acme, permission)
		w.refresh()
		w.want(w.send(caller{key: token}, "GET", path, nil), want)
	}
	w.want(w.send(w.person(w.other, auth.Owner), "GET", path, nil), http.StatusNotFound)
	w.access.Flush(w.ctx())
	log := read[securityLog](t, w.get(owner, "/api/v1/tenants/acme/security-log?kind=exported"))
	if len(log.Items) > 0 {
		t.Errorf("reading a user's usage is in the security log: %+v", log.Items)
	}
}
