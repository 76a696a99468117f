package adminapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestUsersAreFoundByWhatIsKnownOfThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	now := time.Now().UTC()
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	w.record(w.acme, 1)
	w.record(w.other, 1)
	must(w.system().AssignAll(w.ctx(), w.acme.ID,
		[]rules.Assignment{{TenantID: w.acme.ID, UserID: "42-planned", Plan: w.plan(w.acme)}}))(t)
	of := func(user string) func(*violations.Violation) {
		return func(v *violations.Violation) { v.UserID = user }
	}
	w.violate(denied(w.acme, now, of("42-denied")), denied(w.acme, now.AddDate(0, -3, 0), of("42")),
		denied(w.other, now, of("42-denied-there")))
	rule := w.rule(w.acme)
	override := rules.Override{
		TenantID: w.acme.ID, RuleID: rule.ID, UserID: "42-raised", RatePerSecond: 2,
		RateUnit: rules.PerSecond, Burst: 20, Reason: "a test",
	}
	must(w.system().PutOverride(w.ctx(), override, rules.NoneStored))(t)
	err := w.store.WriteUserMonths(w.ctx(), "w", 1, []traffic.UserMonth{
		{Tenant: w.acme.ID, Month: month, User: "", Allowed: 1},
		{Tenant: w.acme.ID, Month: month, User: "42-counted", Allowed: 1},
		{Tenant: w.acme.ID, Month: month.AddDate(0, -1, 0), User: "42-last-month", Allowed: 1},
		{Tenant: w.acme.ID, Month: month.AddDate(0, -2, 0), User: "42-long-ago", Allowed: 1},
		{Tenant: w.acme.ID, Month: month, User: "4", Allowed: 1},
		{Tenant: w.other.ID, Month: month, User: "42-theirs", Allowed: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	find := func(query string) (found []string) {
		t.Helper()
		type list struct {
			Items []struct {
				UserID string  `json:"user_id"`
				Plan   *string `json:"plan"`
			}
		}
		for _, user := range read[list](t, w.get(by, "/api/v1/tenants/acme/known-users?"+query)).Items {
			if (user.Plan != nil) != (user.UserID == "42-planned") {
				t.Errorf("the plan of %s is %v", user.UserID, user.Plan)
			}
			found = append(found, user.UserID)
		}
		return found
	}
	for query, want := range map[string][]string{
		"prefix=42":           {"42", "42-counted", "42-denied", "42-last-month", "42-planned", "42-raised"},
		"prefix=42&limit=2":   {"42", "42-counted"},
		"prefix=42-r":         {"42-raised"},
		"prefix=42-d":         {"42-denied"},
		"prefix=007":          nil,
		"prefix=%25":          nil,
		"prefix=42-long-ago":  nil,
		"prefix=42-denied-th": nil,
	} {
		if found := find(query); !slices.Equal(found, want) {
			t.Errorf("%s finds %q, want %q", query, found, want)
		}
	}
	for user, want := range map[string]bool{
		"42": true, "42-counted": true, "42-denied": true, "42-long-ago": true, "42-planned": true, "42-raised": true,
		"007": false, "42-theirs": false,
	} {
		got := read[struct {
			Known bool `json:"known"`
		}](t, w.get(by, "/api/v1/tenants/acme/users/"+user))
		if got.Known != want {
			t.Errorf("that %s is known is %v, want %v", user, got.Known, want)
		}
	}
}

func TestAUserWithMoreThanIsShownSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	for _, have := range []int{500, 501} {
		var file strings.Builder
		file.WriteString("rules:\n")
		for n := range have {
			fmt.Fprintf(&file, "  - {key_pattern: \"user:{user_id}:endpoint:/%d\", rate: 10/second, burst_capacity: "+
				"20}\n", n)
		}
		file.WriteString("overrides:\n")
		for n := range have {
			fmt.Fprintf(&file, "  - {rule: {key_pattern: \"user:{user_id}:endpoint:/%d\"}, user_id: many, rate: "+
				"20/second, burst_capacity: 40, reason: a test}\n", n)
		}
		yaml := map[string]string{"Content-Type": "application/yaml"}
		w.want(w.do(by, request{"POST", "/api/v1/tenants/acme/import", file.String(), yaml}), http.StatusOK)
		w.refresh()

		user := read[struct {
			Overrides []any `json:"overrides"`
			HasMore   bool  `json:"has_more_overrides"`
		}](t, w.get(by, "/api/v1/tenants/acme/users/many"))
		if len(user.Overrides) != 500 || user.HasMore != (have > 500) {
			t.Errorf("of %d overrides %d are shown, and that there are more: %v", have, len(user.Overrides),
				user.HasMore)
		}
		buckets := read[struct {
			Items   []any `json:"items"`
			HasMore bool  `json:"has_more"`
		}](t, w.get(by, "/api/v1/tenants/acme/users/many/buckets"))
		if len(buckets.Items) != 500 || buckets.HasMore != (have > 500) {
			t.Errorf("of %d buckets %d are shown, and that there are more: %v", have, len(buckets.Items),
				buckets.HasMore)
		}
	}
}
