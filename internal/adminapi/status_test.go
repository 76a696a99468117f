package adminapi_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestTheStatusShowsEveryProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *adminapi.Config) {
		c.Readiness = func() httpapi.Readiness { return httpapi.Readiness{Database: "unknown", Redis: "down"} }
	})
	type process struct {
		Name            string   `json:"name"`
		RulesLoaded     bool     `json:"rules_loaded"`
		RulesAgeMs      *int64   `json:"rules_age_ms"`
		Redis           string   `json:"redis"`
		RedisDown       []string `json:"redis_down"`
		ChecksPerSecond float64  `json:"checks_per_second"`
		DegradedShare   float64  `json:"degraded_share"`
	}
	type status struct {
		Admin struct {
			Version    string `json:"version"`
			RulesAgeMs *int64 `json:"rules_age_ms"`
			Redis      string `json:"redis"`
		} `json:"admin"`
		Processes []process `json:"processes"`
	}
	by := w.platformAdmin()
	w.want(w.send(w.person(w.acme, auth.Owner), "GET", "/api/v1/status", nil), http.StatusForbidden)
	get := func() status {
		return read[status](t, w.get(by, "/api/v1/status"))
	}
	if got := get(); len(got.Processes) != 0 || got.Admin.Version != "test" || got.Admin.Redis != "down" ||
		got.Admin.RulesAgeMs != nil {
		t.Errorf("without processes the status is %+v", got)
	}
	for _, report := range []fleet.Report{
		{Process: fleet.Process{ID: "2", Name: "b", Database: "unknown", Redis: "memory"}},
		{
			Process: fleet.Process{
				ID: "1", Name: "a", RulesLoaded: true, RulesAge: time.Second, Database: "up",
				Redis: "partial", RedisDown: []string{"h:1"},
			},
			Count: fleet.Count{Checks: 100, Degraded: 25}, Span: 5 * time.Second,
		},
	} {
		if err := w.store.ReportProcess(t.Context(), &report); err != nil {
			t.Fatal(err)
		}
	}
	got := get().Processes
	if len(got) != 2 || got[0].Name != "a" || got[1].Name != "b" {
		t.Fatalf("the processes are %+v, want a and b", got)
	}
	if a := got[0]; *a.RulesAgeMs != 1000 || a.ChecksPerSecond != 20 || a.DegradedShare != 0.25 ||
		a.Redis != "partial" || !slices.Equal(a.RedisDown, []string{"h:1"}) {
		t.Errorf("a is shown as %+v", a)
	}
	if b := got[1]; b.RulesLoaded || b.RulesAgeMs != nil || b.ChecksPerSecond != 0 {
		t.Errorf("b is shown as %+v", b)
	}
}

func TestATenantsStatusShowsItsOwnFiguresAndNobodyElses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	type status struct {
		Answering       string   `json:"answering"`
		Redis           string   `json:"redis"`
		RulesAgeMs      *int64   `json:"rules_age_ms"`
		ChecksPerSecond float64  `json:"checks_per_second"`
		ShareDenied     *float64 `json:"share_denied"`
		DegradedShare   float64  `json:"degraded_share"`
	}
	by := w.person(w.acme, auth.Viewer)
	get := func() (status, string) {
		got := w.get(by, "/api/v1/tenants/acme/status")
		return read[status](t, got), got.body
	}
	if got, body := get(); got.Answering != "down" || got.RulesAgeMs != nil || got.ShareDenied != nil ||
		got.DegradedShare != 0 {
		t.Errorf("without processes and checks the status is %s", body)
	}
	for id, report := range map[string]fleet.Process{
		"1": {Name: "host-a", Version: "v9.9.9", RulesLoaded: true, RulesAge: time.Second, Database: "up", Redis: "up"},
		"2": {
			Name: "host-b", Version: "v9.9.9", RulesLoaded: true, RulesAge: 3 * time.Second, Database: "up",
			Redis: "down",
		},
		"3": {Name: "host-c", Version: "v9.9.9", Database: "unknown", Redis: "unknown"},
	} {
		report.ID = id
		full := fleet.Report{Process: report, Count: fleet.Count{Checks: 5000, Degraded: 5000}, Span: 5 * time.Second}
		if err := w.store.ReportProcess(t.Context(), &full); err != nil {
			t.Fatal(err)
		}
	}
	decided := func(tenant rules.Tenant, checks int64) violations.DecisionCount {
		return violations.DecisionCount{
			Tenant: tenant.ID,
			Minute: time.Now().Truncate(time.Minute).Add(-2 * time.Minute), Verdicts: violations.Verdicts{
				Allowed: checks / 2, Denied: checks / 2, Degraded: checks / 4,
			},
		}
	}
	err := w.store.WriteViolations(t.Context(), &violations.Batch{
		Writer: "status", Number: 1, Decisions: []violations.DecisionCount{
			decided(w.acme, 600),
			decided(w.other, 60_000),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, body := get()
	if got.Answering != "up" || got.Redis != "down" || *got.RulesAgeMs != 3000 || got.ChecksPerSecond != 2 ||
		*got.ShareDenied != 0.5 || got.DegradedShare != 0.25 {
		t.Errorf("the status is %s", body)
	}
	if strings.Contains(body, "host-") || strings.Contains(body, "9.9.9") {
		t.Errorf("a tenant is shown the platform: %s", body)
	}
}
