package pgstore_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/fleet"
)

func TestProcessesAreThoseThatReportedLately(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began := time.Now().UTC().Truncate(time.Microsecond)
	report := fleet.Report{
		Process: fleet.Process{
			ID: "run-1", Name: "api-1", Version: "1.4.0", StartedAt: began, RulesLoaded: true, Rules: 240,
			RulesAge: 410 * time.Millisecond, Database: "up", Redis: "partial", RedisDown: []string{"10.0.0.1:6379"},
			Algorithms: []string{"token_bucket", "fixed_window"},
		},
		Count: fleet.Count{Checks: 500, Degraded: 20}, Span: 5 * time.Second,
	}
	report2 := report
	report2.ID, report2.Name = "run-2", "api-0"
	w.report(t, report, report2)
	exec(t, w.url, "UPDATE api_process SET reported_at = now() - interval '61 seconds' WHERE process_id = 'run-2'")
	report.Rules, report.Checks = 241, 600
	w.report(t, report) // replaces

	reports, now, err := w.Processes(t.Context(), fleet.Recent)
	if err != nil {
		t.Fatal(err)
	}
	if len(reports) != 1 {
		t.Fatalf("%d processes reported within a minute: %+v; want run-1 alone", len(reports), reports)
	}
	if at := reports[0].At; at.Before(began.Add(-time.Second)) || at.After(now) {
		t.Errorf("the report is of %s; want one between %s and %s", at, began, now)
	}
	reports[0].At = time.Time{}
	if !reflect.DeepEqual(reports[0], report) {
		t.Errorf("the report comes back as %+v; want %+v", reports[0], report)
	}
}

func TestProcessesThatEndAreGoneAtOnceAndOthersAfterADay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"ended", "killed", "alive"} {
		w.report(t, fleet.Report{Process: fleet.Process{ID: id}})
	}
	if err := w.EndProcess(t.Context(), "ended"); err != nil {
		t.Fatal(err)
	}
	exec(t, w.url, "UPDATE api_process SET reported_at = now() - interval '25 hours'")
	w.report(t, fleet.Report{Process: fleet.Process{ID: "alive"}})
	reports, _, err := w.Processes(t.Context(), 48*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if len(reports) != 1 || reports[0].ID != "alive" {
		t.Errorf("%+v are left; want the process that is alive", reports)
	}
}

func (w *world) report(t *testing.T, reports ...fleet.Report) {
	t.Helper()
	for i := range reports {
		if err := w.ReportProcess(t.Context(), &reports[i]); err != nil {
			t.Fatal(err)
		}
	}
}
