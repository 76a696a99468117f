package pgstore_test

import (
	"errors"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
)

// Jobs are due by the database's clock, so these tests move the times in the table.

func runner(w *world, log *slog.Logger, kinds ...jobs.Kind) *jobs.Runner {
	return jobs.New(w.Store, kinds, log)
}

func round(t *testing.T, r *jobs.Runner) {
	t.Helper()
	if err := r.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Wait()
}

func (w *world) queueJobs(t *testing.T, tenant any, kind string, n int) {
	t.Helper()
	exec(t, w.url, `INSERT INTO job (tenant_id, kind, about, next_run_at)
		SELECT $1, $2, i::text, now() - interval '1 hour' FROM generate_series(1, $3::integer) AS i`, tenant, kind, n)
}

func (w *world) claim(t *testing.T, kind string) jobs.Job {
	t.Helper()
	claimed, _, err := w.ClaimJobs(t.Context(), []jobs.Claim{{Kind: kind, Room: 1, PerTenant: 1}})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("%+v is claimed: %v", claimed, err)
	}
	return claimed[0]
}

func (w *world) jobsLike(t *testing.T, condition string) (n int) {
	t.Helper()
	if err := connect(t, w.url).QueryRow(t.Context(),
		"SELECT count(*) FROM job WHERE "+condition).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A row that was locked and not changed keeps the transaction in xmax.
func TestAClaimLocksOnlyWhatItTakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 50)
	exec(t, w.url, "UPDATE job SET tenant_id = $1 WHERE job_id % 2 = 0 AND kind = 'send'", 0)
	claimed, _, err := w.ClaimJobs(t.Context(), []jobs.Claim{{Kind: "send", Room: 3, PerTenant: 20}})
	if err != nil || len(claimed) != 3 {
		t.Fatalf("%+v are claimed: %v", claimed, err)
	}
	if n := w.jobsLike(t, "kind = 'send' AND lease_ends_at IS NULL AND xmax <> 0"); n != 0 {
		t.Errorf("%d jobs were locked and not claimed", n)
	}
}

func TestADeadLetterGoesAfterAMonth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 3)
	exec(t, w.url, `UPDATE job SET state = CASE about WHEN '3' THEN 'waiting' ELSE 'parked' END,
		last_run_at = now() - make_interval(days => CASE about WHEN '1' THEN 29 ELSE 31 END) WHERE kind = 'send'`)
	must(w.KeepViolations(t.Context(), time.Now(), keep))(t)
	left := lines(t, connect(t, w.url), "SELECT about FROM job WHERE kind = 'send' ORDER BY about")
	if !slices.Equal(left, []string{"1", "3"}) {
		t.Errorf("left are %q, want the young one and the one that waits", left)
	}
}

func TestTheAuditLogHasNoErrorsOfJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 2)
	exec(t, w.url, "UPDATE job SET state = 'parked', error = 'no mailbox of ada@example.com'")
	parked := must(w.ParkedJobs(t.Context(), 0, 10))(t)
	if err := errors.Join(w.As(tester).RetryJob(t.Context(), parked[0].ID),
		w.As(tester).RemoveJob(t.Context(), parked[1].ID)); err != nil {
		t.Fatal(err)
	}
	log := lines(t, connect(t, w.url),
		"SELECT action || before::text FROM platform_audit_event WHERE object_kind = 'job'")
	if len(log) != 2 || strings.Contains(strings.Join(log, ""), "ada@") {
		t.Errorf("the log has %q", log)
	}
}

func TestParkedJobsAreCountedUpToAThousand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 1005)
	exec(t, w.url, "UPDATE job SET state = 'parked'")
	if _, parked, err := w.ClaimJobs(t.Context(), []jobs.Claim{{Kind: "send", Room: 1, PerTenant: 1}}); err != nil ||
		parked != 1000 {
		t.Errorf("%d of 1005 parked jobs are counted: %v", parked, err)
	}
}

// 100,000 jobs of a tenant are due at once, as when all subjects fire an alert. Statistics may know nothing of them
// yet.
func TestALongQueueIsNotReadByAClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	db := connect(t, w.url)
	text := string(must(os.ReadFile("../../db/queries/platform.sql"))(t))
	_, query, _ := strings.Cut(text, "-- name: ClaimJobs :many\n")
	query, _, _ = strings.Cut(query, ";")
	query = strings.NewReplacer("sqlc.arg(kinds)", "'{send}'", "sqlc.arg(rooms)", "'{64}'", "sqlc.arg(caps)", "'{4}'",
		"sqlc.arg(lease_seconds)", "60").Replace(query)
	claims := func(when string) {
		t.Helper()
		plan := strings.Join(lines(t, db, "EXPLAIN (ANALYZE, TIMING OFF, BUFFERS OFF) "+query), "\n")
		for _, found := range regexp.MustCompile(`actual rows=(\d+)`).FindAllStringSubmatch(plan, -1) {
			if must(strconv.Atoi(found[1]))(t) > 300 {
				t.Fatalf("%s a step of a claim reads too many of 100,003 jobs:\n%s", when, plan)
			}
		}
		for _, removed := range regexp.MustCompile(`Rows Removed by Filter: (\d+)`).FindAllStringSubmatch(plan, -1) {
			if must(strconv.Atoi(removed[1]))(t) > 300 {
				t.Fatalf("%s a step of a claim passes over too many of 100,003 jobs:\n%s", when, plan)
			}
		}
		if !strings.Contains(plan, "job_due_idx") || strings.Contains(plan, "Seq Scan on job") {
			t.Fatalf("%s a claim does not use the index of due jobs:\n%s", when, plan)
		}
	}
	exec(t, w.url, "ALTER TABLE job SET (autovacuum_enabled = off)")
	exec(t, w.url, "ANALYZE job") // there is none
	w.queueJobs(t, w.ours.ID, "send", 100_000)
	w.queueJobs(t, w.theirs.ID, "send", 3)
	claims("before they are counted")
	exec(t, w.url, "ANALYZE job")
	claims("after they are counted")
	if n := w.jobsLike(t, "lease_ends_at IS NULL AND xmax <> 0"); n != 0 {
		t.Errorf("%d jobs were locked and not claimed", n)
	}
	if n := w.jobsLike(t, "lease_ends_at IS NOT NULL"); n != 7 {
		t.Errorf("%d jobs are claimed, want four of one tenant and three of the other", n)
	}
}
