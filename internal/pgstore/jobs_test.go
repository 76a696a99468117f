package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
)

// Jobs are due by the database's clock, so these tests move the times in the table.

func runner(w *world, log *slog.Logger, kinds ...jobs.Kind) *jobs.Runner {
	return jobs.New(w.Store, kinds, log)
}

// round runs one round, and waits for its attempts.
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

// claim claims a job of a kind, as a process does that ends before it has a result.
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

// TestAClaimLocksOnlyWhatItTakes: a row that was locked and not changed keeps the transaction in xmax.
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

func TestAGreedyTenantsJobsDelayNobodysFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 5000)
	w.queueJobs(t, w.theirs.ID, "send", 3)
	var mu sync.Mutex
	var inFlight, most int // of the greedy tenant, in both processes
	var theirs atomic.Int64
	gate := make(chan struct{})
	kind := jobs.Kind{
		Name: "send", AtOnce: 4, PerTenant: 3, Longest: time.Minute,
		Do: func(_ context.Context, job *jobs.Job) (time.Time, error) {
			if job.Tenant == int64(w.theirs.ID) {
				theirs.Add(1)
				return time.Time{}, nil
			}
			mu.Lock()
			inFlight++
			most = max(most, inFlight)
			mu.Unlock()
			<-gate
			mu.Lock()
			inFlight--
			mu.Unlock()
			return time.Time{}, nil
		},
	}
	processes := []*jobs.Runner{
		runner(w, slog.New(slog.DiscardHandler), kind),
		runner(w, slog.New(slog.DiscardHandler), kind),
	}
	var claiming sync.WaitGroup
	for _, r := range processes {
		claiming.Go(func() {
			if err := r.Round(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	claiming.Wait()
	for range 10 { // until the quiet tenant's attempts have ended
		for _, r := range processes {
			if err := r.Round(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	close(gate)
	for _, r := range processes {
		r.Wait()
	}
	if got := theirs.Load(); got != 3 || most != 3 {
		t.Errorf("the other tenant had %d attempts while the greedy one had %d in flight, want 3 and 3", got, most)
	}
}

func TestAJobThatPanicsIsParkedAfterTheLastTryAndOthersGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 2)
	var log strings.Builder
	var sent, tries int
	r := runner(w, slog.New(slog.NewTextHandler(&log, nil)), jobs.Kind{
		Name: "send", Longest: time.Minute, Do: func(_ context.Context, job *jobs.Job) (time.Time, error) {
			if job.About == "1" {
				tries++
				panic("poison")
			}
			sent++
			return time.Time{}, nil
		},
	})
	for range jobs.MaxAttempts + 3 {
		round(t, r)
		exec(t, w.url, "UPDATE job SET next_run_at = now() - interval '1 hour'")
	}
	if sent != 1 || tries != jobs.MaxAttempts {
		t.Errorf("%d were sent after %d tries of the other one, want 1 and %d", sent, tries, jobs.MaxAttempts)
	}
	if got := w.jobsLike(t, "state = 'parked' AND error = 'panic: poison' AND about = '1'"); got != 1 ||
		w.jobsLike(t, "true") != 1 {
		t.Errorf("%d jobs are parked, want the poisonous one", got)
	}
	round(t, r)
	if parked, failed := r.Counts(); parked != 1 || failed != jobs.MaxAttempts {
		t.Errorf("the metrics say %d parked and %d failed", parked, failed)
	}
	if !strings.Contains(log.String(), "jobs_test.go") {
		t.Error("the log has no stack")
	}
	all := must(w.ParkedJobs(t.Context(), 0, 10))(t)
	if len(all) != 1 || all[0].Tenant != w.ours.Slug {
		t.Fatalf("people see %+v", all)
	}
	if err := w.As(tester).RetryJob(t.Context(), all[0].ID); err != nil {
		t.Fatal(err)
	}
	round(t, r)
	if tries != jobs.MaxAttempts+1 {
		t.Error("a retry makes no attempt")
	}
}

func TestAFailedAttemptIsRepeatedAfterAPause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 1)
	r := runner(w, slog.New(slog.DiscardHandler),
		jobs.Kind{Name: "send", Longest: time.Minute, Do: func(context.Context, *jobs.Job) (time.Time, error) {
			return time.Time{}, errors.New("refused")
		}})
	for attempt := range 4 {
		round(t, r)
		pause := 30 << attempt
		if w.jobsLike(t, fmt.Sprintf("attempts = %d AND error = 'refused' AND next_run_at BETWEEN now() + interval "+
			"'%d s' AND now() + interval '%d s'",
			attempt+1, pause-20, pause)) != 1 {
			t.Errorf("after attempt %d the next one is not %d s later", attempt+1, pause)
		}
		exec(t, w.url, "UPDATE job SET next_run_at = now() - interval '1 hour'")
	}
}

// TestABacklogKeepsNobodyWaiting has one free place, a tenant with many jobs that are long due, and one with a young
// job.
func TestABacklogKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 100)
	exec(t, w.url, "UPDATE job SET next_run_at = now() - interval '1 day'")
	w.queueJobs(t, w.theirs.ID, "send", 1)
	const mostClaims = 40 // chance decides: all of them are the greedy tenant's once in 10¹²
	for n := 1; ; n++ {
		claimed, _, err := w.ClaimJobs(t.Context(), []jobs.Claim{{Kind: "send", Room: 1, PerTenant: 1}})
		if err != nil || len(claimed) != 1 {
			t.Fatalf("claim %d has %d jobs: %v", n, len(claimed), err)
		}
		if claimed[0].Tenant == int64(w.theirs.ID) {
			break
		}
		if n == mostClaims {
			t.Fatalf("%d claims were all the greedy tenant's", n)
		}
		if err := w.FinishJob(t.Context(), &claimed[0], jobs.Result{Done: true}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheJobOfAProcessThatDiedIsTakenAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 1)
	asked := []jobs.Claim{{Kind: "send", Room: 5, PerTenant: 5}}
	claim := func() []jobs.Job {
		claimed, _, err := w.ClaimJobs(t.Context(), asked)
		if err != nil {
			t.Fatal(err)
		}
		return claimed
	}
	died := claim()
	if len(died) != 1 || len(claim()) != 0 {
		t.Fatal("the job is claimed by two processes")
	}
	exec(t, w.url, "UPDATE job SET next_run_at = now(), lease_ends_at = now()") // a minute later
	again := claim()
	if len(again) != 1 || again[0].Attempts != 2 {
		t.Fatalf("after the lease %+v", again)
	}
	// The first process lives after all: it cannot renew, and its result does not count.
	if ids := must(w.RenewJobs(t.Context(), died))(t); len(ids) != 0 {
		t.Error("the former claim renews the lease")
	}
	if err := w.FinishJob(t.Context(), &died[0], jobs.Result{Done: true}); err != nil || w.jobsLike(t, "true") != 1 {
		t.Errorf("the former claim ends the job: %v", err)
	}
	if ids := must(w.RenewJobs(t.Context(), again))(t); len(ids) != 1 {
		t.Error("the later claim cannot renew")
	}
	if err := w.FinishJob(t.Context(), &again[0], jobs.Result{Done: true}); err != nil || w.jobsLike(t, "true") != 0 {
		t.Errorf("the job is there after its end: %v", err)
	}
}

func TestAPeriodicJobRunsOnceInAllProcesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ran atomic.Int64
	failing := errors.New("out of order")
	kinds := []jobs.Kind{
		jobs.Periodic("keep", time.Hour, func(context.Context) error { ran.Add(1); return nil }),
		jobs.Periodic("broken", time.Hour, func(context.Context) error { return failing }),
	}
	var processes sync.WaitGroup
	for range 5 {
		r := runner(w, slog.New(slog.DiscardHandler), kinds...)
		processes.Go(func() {
			for range 3 {
				if err := r.Round(t.Context()); err != nil {
					t.Error(err)
				}
				r.Wait()
			}
		})
	}
	processes.Wait()
	if got := ran.Load(); got != 1 {
		t.Errorf("it ran %d times, want once", got)
	}
	if w.jobsLike(t, "kind = 'keep' AND error = '' AND last_run_at IS NOT NULL AND next_run_at > now() + interval "+
		"'59 minutes'") != 1 {
		t.Error("the next run is not in an hour")
	}
	if w.jobsLike(t, "kind = 'broken' AND error = 'out of order' AND state = 'waiting' AND next_run_at < now() + "+
		"interval '1 minute'") != 1 {
		t.Error("a run that failed is not repeated soon, with its own error")
	}
}

func TestAnAttemptThatTheProcessInterruptsDoesNotCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 1)
	ctx, stop := context.WithCancel(t.Context())
	r := runner(w, slog.New(slog.DiscardHandler),
		jobs.Kind{Name: "send", Longest: time.Minute, Do: func(ctx context.Context, _ *jobs.Job) (time.Time, error) {
			stop()
			<-ctx.Done()
			return time.Time{}, ctx.Err()
		}})
	if err := r.Round(ctx); err != nil {
		t.Fatal(err)
	}
	r.Wait()
	if w.jobsLike(t, "attempts = 0 AND lease_ends_at IS NULL AND next_run_at <= now()") != 1 {
		t.Error("the job does not wait for another process")
	}
}

func TestWhatAnotherSystemCausesEndsAfterItsAttemptsWithoutBeingParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 1)
	var given []string
	kind := jobs.Kind{
		Name: "send", Longest: time.Minute, Attempts: 2,
		Do: func(context.Context, *jobs.Job) (time.Time, error) {
			return time.Time{}, jobs.Elsewhere(errors.New("the receiver refused"))
		},
		GiveUp: func(_ context.Context, job *jobs.Job, err error) error {
			given = append(given, job.About+": "+err.Error())
			return nil
		},
	}
	var log strings.Builder
	r := runner(w, slog.New(slog.NewTextHandler(&log, nil)), kind)
	round(t, r)
	if w.jobsLike(t, "attempts = 1 AND error = 'the receiver refused' AND next_run_at > now()") != 1 || given != nil {
		t.Errorf("after one attempt of two it is given up: %q", given)
	}
	w.due(t)
	round(t, r)
	if got := fmt.Sprint(given); got != "[1: the receiver refused]" || w.jobsLike(t, "true") != 0 {
		t.Errorf("after the last attempt the end is stored as %s, and %d jobs are left", got, w.jobsLike(t, "true"))
	}
	if parked, failed := r.Counts(); parked != 0 || failed != 0 || log.Len() != 0 {
		t.Errorf("a tenant's receiver counts as %d parked and %d failed, and is logged: %s", parked, failed, &log)
	}
}

func TestAJobIsParkedOnceItsRowKnows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 1)
	var given []string
	isAway := true
	r := runner(w, slog.New(slog.DiscardHandler), jobs.Kind{
		Name: "send", Longest: time.Minute, Attempts: 1,
		Do: func(context.Context, *jobs.Job) (time.Time, error) { panic("poison") },
		GiveUp: func(_ context.Context, _ *jobs.Job, err error) error {
			if isAway {
				return errors.New("the database is away")
			}
			given = append(given, err.Error())
			return nil
		},
	})
	round(t, r)
	if w.jobsLike(t, "state = 'waiting' AND lease_ends_at IS NOT NULL") != 1 {
		t.Error("it is parked though its row does not know")
	}
	isAway = false
	w.die(t)
	round(t, r)
	if got := fmt.Sprint(given); got != "[panic: poison]" || w.jobsLike(t, "state = 'parked'") != 1 {
		t.Errorf("its row is told %s", got)
	}
}

func TestAJobWhoseProcessesEndIsParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 1)
	var given []string
	kind := jobs.Kind{
		Name: "send", Longest: time.Minute, Attempts: 1,
		Do: func(context.Context, *jobs.Job) (time.Time, error) {
			t.Error("it is attempted after it ended two processes")
			return time.Time{}, nil
		},
		GiveUp: func(_ context.Context, _ *jobs.Job, err error) error {
			given = append(given, err.Error())
			return nil
		},
	}
	for range 2 {
		w.claim(t, "send")
		w.die(t)
	}
	round(t, runner(w, slog.New(slog.DiscardHandler), kind))
	if got := fmt.Sprint(given); got != "["+jobs.ErrProcessEnded.Error()+"]" ||
		w.jobsLike(t, "state = 'parked'") != 1 {
		t.Errorf("its row is told %s", got)
	}
}

// TestATenantsReceiverParksNothingThoughTheDatabaseWasAway has the end of the last attempt not stored.
func TestATenantsReceiverParksNothingThoughTheDatabaseWasAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 1)
	var tries int
	var given []string
	r := runner(w, slog.New(slog.DiscardHandler), jobs.Kind{
		Name: "send", Longest: time.Minute, Attempts: 1,
		Do: func(context.Context, *jobs.Job) (time.Time, error) {
			return time.Time{}, jobs.Elsewhere(errors.New("the receiver refused"))
		},
		GiveUp: func(_ context.Context, _ *jobs.Job, err error) error {
			if tries++; tries == 1 {
				return errors.New("the database is away")
			}
			given = append(given, err.Error())
			return nil
		},
	})
	round(t, r)
	w.die(t)
	round(t, r)
	if got := fmt.Sprint(given); got != "[the receiver refused]" || w.jobsLike(t, "true") != 0 {
		t.Errorf("its row is told %s, and %d jobs are left", got, w.jobsLike(t, "true"))
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

func TestWhoLostAJobStoresNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 1)
	began := make(chan struct{})
	var given atomic.Int64
	r := runner(w, slog.New(slog.DiscardHandler), jobs.Kind{
		Name: "send", Longest: time.Minute, Attempts: 1,
		Do: func(ctx context.Context, _ *jobs.Job) (time.Time, error) {
			close(began)
			<-ctx.Done()
			return time.Time{}, ctx.Err()
		},
		GiveUp: func(context.Context, *jobs.Job, error) error { given.Add(1); return nil },
	})
	if err := r.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-began
	exec(t, w.url, "UPDATE job SET claim = claim + 1") // by another process, after the lease
	if err := r.Round(t.Context()); err != nil {       // which renews the leases
		t.Fatal(err)
	}
	r.Wait()
	if given.Load() != 0 || w.jobsLike(t, "state = 'waiting' AND lease_ends_at IS NOT NULL") != 1 {
		t.Error("the former process ended a job that another one has")
	}
}

// TestALongQueueIsNotReadByAClaim has many jobs of a tenant that became due at once, as when all subjects fire an
// alert.
func TestALongQueueIsNotReadByAClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queueJobs(t, w.ours.ID, "send", 20_000)
	w.queueJobs(t, w.theirs.ID, "send", 3)
	exec(t, w.url, "ANALYZE job")
	text := string(must(os.ReadFile("../../db/queries/platform.sql"))(t))
	_, query, _ := strings.Cut(text, "-- name: ClaimJobs :many\n")
	query, _, _ = strings.Cut(query, ";")
	query = strings.NewReplacer("sqlc.arg(kinds)", "'{send}'", "sqlc.arg(rooms)", "'{64}'", "sqlc.arg(caps)", "'{4}'",
		"sqlc.arg(lease_seconds)", "60").Replace(query)
	plan := lines(t, connect(t, w.url), "EXPLAIN (ANALYZE, TIMING OFF) "+query)
	for _, node := range plan {
		found := regexp.MustCompile(`actual rows=(\d+)`).FindStringSubmatch(node)
		if len(found) == 2 && must(strconv.Atoi(found[1]))(t) > 300 {
			t.Fatalf("of 20,003 jobs a step of a claim reads too many:\n%s", strings.Join(plan, "\n"))
		}
	}
}
