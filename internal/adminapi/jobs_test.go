package adminapi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/rules"
)

func (w *world) parkedJob(tenant rules.Tenant) int {
	w.t.Helper()
	about := w.name("job")
	w.exec(`INSERT INTO job (tenant_id, kind, about, state, next_run_at, attempts, error, last_run_at)
		VALUES ($1, 'test', $2, 'parked', now(), 12, 'out of order', now())`, tenant.ID, about)
	return w.count(fmt.Sprintf("SELECT job_id FROM job WHERE about = '%s'", about))
}

type parkedJobs struct {
	Items []struct {
		ID       int64   `json:"job_id,string"`
		Kind     string  `json:"kind"`
		Tenant   *string `json:"tenant"`
		About    string  `json:"about"`
		Attempts int     `json:"attempts"`
		Error    string  `json:"error"`
		LastRun  *string `json:"last_run_at"`
	} `json:"items"`
	Next *string `json:"next_cursor"`
}

func TestParkedJobsAreListedRetriedAndRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.platformAdmin()
	list := func(query string) parkedJobs {
		t.Helper()
		return read[parkedJobs](t, w.get(by, "/api/v1/parked-jobs"+query))
	}
	if got := list("").Items; len(got) != 0 {
		t.Fatalf("without parked jobs the list is %+v", got)
	}
	failed := errors.New("out of order")
	kind := jobs.Kind{
		Name: "test", MaxConcurrent: 9, PerTenant: 9, Timeout: time.Minute,
		Do: func(context.Context, *jobs.Job) (time.Time, error) { return time.Time{}, failed },
	}
	runner := jobs.New(w.store, []jobs.Kind{kind}, slog.New(slog.DiscardHandler))
	round := func() {
		t.Helper()
		if err := runner.Round(w.ctx()); err != nil {
			t.Fatal(err)
		}
		runner.Wait()
	}
	w.exec(`INSERT INTO job (tenant_id, kind, about, next_run_at, attempts) SELECT $1, 'test', i::text, now(), 11
		FROM generate_series(1, 3) AS i`, w.acme.ID)
	w.exec("INSERT INTO job (tenant_id, kind, about, next_run_at) VALUES (0, 'test', 'young', now())")
	round()

	parked := list("").Items
	if len(parked) != 3 {
		t.Fatalf("the parked jobs are %+v", parked)
	}
	for i, job := range parked {
		if job.Kind != "test" || job.Tenant == nil || *job.Tenant != "acme" || job.Attempts != 12 ||
			job.Error != "out of order" || job.LastRun == nil || i > 0 && job.ID >= parked[i-1].ID {
			t.Errorf("job %d is %+v", i, job)
		}
	}
	first := list("?limit=2")
	if len(first.Items) != 2 || first.Next == nil {
		t.Fatalf("the first page is %+v", first)
	}
	second := list("?limit=2&cursor=" + *first.Next)
	if len(second.Items) != 1 || second.Items[0].ID != parked[2].ID || second.Next != nil {
		t.Errorf("the second page is %+v", second)
	}

	retried, removed := parked[0].ID, parked[1].ID
	address := func(id int64, rest string) string { return fmt.Sprintf("/api/v1/parked-jobs/%d%s", id, rest) }
	for range 2 { // repeated, as by a client that lost the answer
		w.want(w.send(by, "POST", address(retried, "/retry"), nil, "Idempotency-Key", "0123456789abcdef-retry"),
			http.StatusNoContent)
	}
	w.want(w.send(by, "POST", address(retried, "/retry"), nil), http.StatusNotFound)
	w.want(w.send(by, "DELETE", address(retried, ""), nil), http.StatusNotFound)
	w.want(w.send(by, "DELETE", address(removed, ""), nil), http.StatusNoContent)
	w.want(w.send(by, "DELETE", address(removed, ""), nil), http.StatusNotFound)
	if got := list("").Items; len(got) != 1 || got[0].ID != parked[2].ID {
		t.Errorf("after one was retried and one removed, the parked jobs are %+v", got)
	}
	round() // the retried one fails again, and waits for its second attempt
	if n := w.count(fmt.Sprintf(`SELECT count(*) FROM job WHERE job_id = %d AND state = 'waiting' AND attempts = 1
		AND next_run_at > now()`, retried)); n != 1 {
		t.Error("a retried job is not due at once with all of its attempts")
	}
	if n := w.count(fmt.Sprintf(`SELECT count(*) FROM platform_audit_event WHERE object_kind = 'job'
		AND actor_id = '%s' AND NOT before ? 'error'
		AND (action, object_id) IN (('update', '%d'), ('remove', '%d'))`,
		by.account.Actor().ID, retried, removed)); n != 2 {
		t.Errorf("the audit log has %d entries, want one for each change", n)
	}
	w.get(by, "/api/v1/audit")
}

func TestParkedJobsAreForPlatformAdmins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.parkedJob(w.acme)
	key := w.keyOf(w.acme, auth.PermissionManage)
	w.refresh()
	for _, by := range []caller{key, w.person(w.acme, auth.Owner)} {
		w.want(w.send(by, "GET", "/api/v1/parked-jobs", nil), http.StatusForbidden)
		w.want(w.send(by, "GET", "/api/v1/periodic-jobs", nil), http.StatusForbidden)
		w.want(w.send(by, "POST", fmt.Sprintf("/api/v1/parked-jobs/%d/retry", id), nil), http.StatusForbidden)
		w.want(w.send(by, "DELETE", fmt.Sprintf("/api/v1/parked-jobs/%d", id), nil), http.StatusForbidden)
	}
	if n := w.count("SELECT count(*) FROM job WHERE state = 'parked'"); n != 1 {
		t.Error("a member of a tenant changed a parked job")
	}
}

func TestPeriodicJobsSayWhenTheyRan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	runner := jobs.New(w.store, []jobs.Kind{
		jobs.Periodic("keep", time.Hour, func(context.Context) error { return nil }),
		jobs.Periodic("broken", time.Hour, func(context.Context) error { return errors.New("out of order") }),
	}, slog.New(slog.DiscardHandler))
	if err := runner.Round(w.ctx()); err != nil {
		t.Fatal(err)
	}
	runner.Wait()
	w.exec("INSERT INTO job (tenant_id, kind, next_run_at) VALUES (0, 'late', now() - interval '1 hour')")
	type periodic struct {
		Kind     string     `json:"kind"`
		Running  bool       `json:"running"`
		LastRun  *time.Time `json:"last_run_at"`
		NextRun  *time.Time `json:"next_run_at"`
		Failures int        `json:"failures"`
		Error    string     `json:"error"`
		Lag      int64      `json:"lag_ms"`
	}
	got := read[struct {
		Items []periodic `json:"items"`
	}](t, w.get(w.platformAdmin(), "/api/v1/periodic-jobs")).Items
	if len(got) != 3 {
		t.Fatalf("the periodic jobs are %+v", got)
	}
	broken, keep, late := got[0], got[1], got[2]
	if broken.Kind != "broken" || broken.Error != "out of order" || broken.Failures != 1 || broken.LastRun == nil {
		t.Errorf("the broken one is %+v", broken)
	}
	if keep.Kind != "keep" || keep.Error != "" || keep.Failures != 0 || keep.Lag != 0 || keep.NextRun == nil ||
		time.Until(*keep.NextRun) < 59*time.Minute {
		t.Errorf("the one that works is %+v", keep)
	}
	if late.Kind != "late" || late.LastRun != nil || late.Lag < time.Hour.Milliseconds() {
		t.Errorf("the late one is %+v", late)
	}
}
