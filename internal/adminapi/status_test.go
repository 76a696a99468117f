package adminapi_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/fleet"
)

func TestTheStatusShowsEveryProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *adminapi.Config) {
		c.Readiness = func() adminapi.Readiness { return adminapi.Readiness{Database: "unknown", Redis: "down"} }
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
	by := w.person(w.acme, auth.Viewer)
	get := func() status {
		return read[status](t, w.want(w.send(by, "GET", "/api/v1/status", nil), http.StatusOK))
	}
	if got := get(); len(got.Processes) != 0 || got.Admin.Version != "test" || got.Admin.Redis != "down" || got.Admin.RulesAgeMs != nil {
		t.Errorf("without processes the status is %+v", got)
	}
	for _, report := range []fleet.Report{
		{Process: fleet.Process{ID: "2", Name: "b", Database: "unknown", Redis: "memory"}},
		{
			Process: fleet.Process{ID: "1", Name: "a", RulesLoaded: true, RulesAge: time.Second, Database: "up", Redis: "partial", RedisDown: []string{"h:1"}},
			Count:   fleet.Count{Checks: 100, Degraded: 25}, Span: 5 * time.Second,
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
	if a := got[0]; *a.RulesAgeMs != 1000 || a.ChecksPerSecond != 20 || a.DegradedShare != 0.25 || a.Redis != "partial" || !slices.Equal(a.RedisDown, []string{"h:1"}) {
		t.Errorf("a is shown as %+v", a)
	}
	if b := got[1]; b.RulesLoaded || b.RulesAgeMs != nil || b.ChecksPerSecond != 0 {
		t.Errorf("b is shown as %+v", b)
	}
}
