package jobs_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
)

func TestAJobThatPanicsIsParkedAfterTheLastAttemptAndOthersGoOn(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "send", 2)
	var log strings.Builder
	var sent, tries int
	r := jobs.New(b.Store, []jobs.Kind{{
		Name: "send", Timeout: time.Minute, Do: func(_ context.Context, job *jobs.Job) (time.Time, error) {
			if job.About == "1" {
				tries++
				panic("poison")
			}
			sent++
			return done()
		},
	}}, slog.New(slog.NewTextHandler(&log, nil)))
	for range jobs.MaxAttempts + 3 {
		round(t, r)
		b.due(t)
	}
	if sent != 1 || tries != jobs.MaxAttempts {
		t.Errorf("%d were sent after %d attempts of the other one, want 1 and %d", sent, tries, jobs.MaxAttempts)
	}
	if b.like(t, "state = 'parked' AND error = 'panic: poison' AND about = '1'") != 1 || b.like(t, "true") != 1 {
		t.Error("the poisonous job alone is not parked")
	}
	round(t, r)
	if parked, failed := r.Counts(); parked != 1 || failed != jobs.MaxAttempts {
		t.Errorf("the metrics say %d parked and %d failed", parked, failed)
	}
	if !strings.Contains(log.String(), "attempts_test.go") {
		t.Error("the log has no stack")
	}
	parked := must(b.ParkedJobs(t.Context(), 0, 10))(t)
	if len(parked) != 1 || parked[0].Tenant != "greedy" {
		t.Fatalf("people see %+v", parked)
	}
	b.exec(t, "UPDATE job SET state = 'waiting', attempts = 0, next_run_at = now()") // a person retries it
	round(t, r)
	if tries != jobs.MaxAttempts+1 {
		t.Error("a retry makes no attempt")
	}
}

func TestAFailedAttemptIsRepeatedAfterAPauseThatDoubles(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "send", 1)
	r := b.runner(jobs.Kind{Name: "send", Timeout: time.Minute, Do: failing(errors.New("refused"))})
	for attempt := range 4 {
		round(t, r)
		pause := 30 << attempt
		if b.like(t, fmt.Sprintf("attempts = %d AND error = 'refused' AND next_run_at BETWEEN now() + interval '%d s' "+
			"AND now() + interval '%d s'", attempt+1, pause-20, pause)) != 1 {
			t.Errorf("after attempt %d the next one is not %d s later", attempt+1, pause)
		}
		b.due(t)
	}
}

func TestPauses(t *testing.T) {
	t.Parallel()
	var sum time.Duration
	for attempts := 1; attempts < jobs.MaxAttempts; attempts++ {
		sum += jobs.Pause(attempts)
	}
	if sum < 11*time.Hour || sum > 13*time.Hour {
		t.Errorf("all attempts are made within %s, want about twelve hours", sum)
	}
	if got := jobs.Pause(jobs.MaxAttempts); got != 4*time.Hour {
		t.Errorf("the longest pause is %s", got)
	}
}

func TestAnAttemptSaysWhenItsJobIsDueAgain(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "send", 1)
	again := time.Now().Add(time.Hour)
	r := b.runner(jobs.Kind{
		Name: "send", Timeout: time.Minute,
		Do: func(context.Context, *jobs.Job) (time.Time, error) { return again, nil },
	})
	round(t, r)
	if b.like(t, "attempts = 0 AND next_run_at - now() BETWEEN interval '59 minutes' AND interval '61 minutes'") != 1 {
		t.Error("it is not due in an hour")
	}
	again = jobs.DueNow
	b.due(t)
	round(t, r)
	if b.like(t, "next_run_at <= clock_timestamp()") != 1 {
		t.Error("it is not due now")
	}
	again = time.Time{}
	round(t, r)
	if b.like(t, "true") != 0 {
		t.Error("it is not done")
	}
}

func TestAnAttemptThatTakesTooLongFails(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "send", 1)
	round(t, b.runner(jobs.Kind{
		Name: "send", Timeout: time.Millisecond,
		Do: func(ctx context.Context, _ *jobs.Job) (time.Time, error) {
			<-ctx.Done()
			return time.Time{}, ctx.Err()
		},
	}))
	if b.like(t, "attempts = 1 AND error = 'context deadline exceeded' AND lease_ends_at IS NULL") != 1 {
		t.Error("it is not repeated as a failed attempt")
	}
}

func TestAnAttemptThatTheProcessInterruptsDoesNotCount(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "send", 1)
	ctx, stop := context.WithCancel(t.Context())
	r := b.runner(jobs.Kind{
		Name: "send", Timeout: time.Minute, Do: func(ctx context.Context, _ *jobs.Job) (time.Time, error) {
			stop()
			<-ctx.Done()
			return time.Time{}, ctx.Err()
		},
	})
	r.Run(ctx)
	if b.like(t, "attempts = 0 AND lease_ends_at IS NULL AND next_run_at <= now()") != 1 {
		t.Error("the job does not wait for another process")
	}
}

func TestWhatAnotherSystemCausesEndsAfterItsAttemptsWithoutBeingParked(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "send", 1)
	var given []string
	var log strings.Builder
	r := jobs.New(b.Store, []jobs.Kind{{
		Name: "send", Timeout: time.Minute, Attempts: 2,
		Do: failing(jobs.Elsewhere(errors.New("the receiver refused"))),
		GiveUp: func(_ context.Context, job *jobs.Job, err error) error {
			given = append(given, job.About+": "+err.Error())
			return nil
		},
	}}, slog.New(slog.NewTextHandler(&log, nil)))
	round(t, r)
	if b.like(t, "attempts = 1 AND error = 'the receiver refused' AND next_run_at > now()") != 1 || given != nil {
		t.Errorf("after one attempt of two it is given up: %q", given)
	}
	b.due(t)
	round(t, r)
	if got := fmt.Sprint(given); got != "[1: the receiver refused]" || b.like(t, "true") != 0 {
		t.Errorf("after the last attempt the end is stored as %s, and %d jobs are left", got, b.like(t, "true"))
	}
	if parked, failed := r.Counts(); parked != 0 || failed != 0 || log.Len() != 0 {
		t.Errorf("a tenant's receiver counts as %d parked and %d failed, and is logged: %s", parked, failed, &log)
	}
}

func TestAJobIsParkedOnceItsRowKnows(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "send", 1)
	var given []string
	isAway := true
	r := b.runner(jobs.Kind{
		Name: "send", Timeout: time.Minute, Attempts: 1,
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
	if b.like(t, "state = 'waiting' AND lease_ends_at IS NOT NULL") != 1 {
		t.Error("it is parked though its row does not know")
	}
	isAway = false
	b.endLeases(t)
	round(t, r)
	if got := fmt.Sprint(given); got != "[panic: poison]" || b.like(t, "state = 'parked'") != 1 {
		t.Errorf("its row is told %s", got)
	}
}

func TestATenantsReceiverParksNothingThoughTheDatabaseWasAway(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "send", 1)
	var tries int
	var given []string
	r := b.runner(jobs.Kind{
		Name: "send", Timeout: time.Minute, Attempts: 1,
		Do: failing(jobs.Elsewhere(errors.New("the receiver refused"))),
		GiveUp: func(_ context.Context, _ *jobs.Job, err error) error {
			if tries++; tries == 1 {
				return errors.New("the database is away")
			}
			given = append(given, err.Error())
			return nil
		},
	})
	round(t, r)
	b.endLeases(t)
	round(t, r)
	if got := fmt.Sprint(given); got != "[the receiver refused]" || b.like(t, "true") != 0 {
		t.Errorf("its row is told %s, and %d jobs are left", got, b.like(t, "true"))
	}
}

func TestAJobWhoseProcessesEndIsParked(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "send", 1)
	var given []string
	kind := jobs.Kind{
		Name: "send", Timeout: time.Minute, Attempts: 1,
		Do: func(context.Context, *jobs.Job) (time.Time, error) {
			t.Error("it is attempted after it ended two processes")
			return done()
		},
		GiveUp: func(_ context.Context, _ *jobs.Job, err error) error {
			given = append(given, err.Error())
			return nil
		},
	}
	for range 2 {
		b.claim(t, "send")
		b.endLeases(t)
	}
	round(t, b.runner(kind))
	if got := fmt.Sprint(given); got != "["+jobs.ErrProcessEnded.Error()+"]" || b.like(t, "state = 'parked'") != 1 {
		t.Errorf("its row is told %s", got)
	}
}

func TestTheJobOfAKilledProcessIsAttemptedAgain(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "send", 1)
	process := exec.CommandContext(t.Context(), os.Args[0])
	process.Env, process.Stderr = append(os.Environ(), dieIn+"="+b.url), os.Stderr
	said := must(process.StdoutPipe())(t)
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(said).ReadString('\n')
	if line != "begun\n" {
		t.Errorf("it says %q: %v", line, err)
	}
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait()
	var attempts int
	r := b.runner(jobs.Kind{
		Name: "send", Timeout: time.Minute, Do: func(_ context.Context, job *jobs.Job) (time.Time, error) {
			attempts = job.Attempts
			return done()
		},
	})
	round(t, r)
	if attempts != 0 {
		t.Error("it is attempted during the lease of the process that was killed")
	}
	b.endLeases(t)
	round(t, r)
	if attempts != 2 || b.like(t, "true") != 0 {
		t.Errorf("after the lease it has attempt %d, and %d jobs are left", attempts, b.like(t, "true"))
	}
}

func TestAProcessThatIsLateChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "send", 1)
	late := b.claim(t, "send")
	if claimed, _, err := b.ClaimJobs(t.Context(), []jobs.Claim{{Kind: "send", Room: 5, PerTenant: 5}}); err != nil ||
		len(claimed) != 0 {
		t.Fatalf("two processes have a job: %+v, %v", claimed, err)
	}
	b.endLeases(t)
	present := b.claim(t, "send")
	for name, result := range map[string]jobs.Result{
		"done": {Outcome: jobs.Done}, "interrupted": {Outcome: jobs.Interrupted},
		"parked": {Outcome: jobs.Parked, Error: "late"},
		"failed": {Error: "late", Pause: time.Hour},
	} {
		if err := b.FinishJob(t.Context(), &late, result); err != nil ||
			b.like(t, "state = 'waiting' AND error = '' AND attempts = 2 AND lease_ends_at > now()") != 1 {
			t.Errorf("a late process stores that the job is %s: %v", name, err)
		}
	}
	if ids := must(b.RenewJobs(t.Context(), []jobs.Job{late}))(t); len(ids) != 0 {
		t.Error("a late process renews its lease")
	}
	if ids := must(b.RenewJobs(t.Context(), []jobs.Job{present}))(t); len(ids) != 1 {
		t.Error("the present process cannot renew its lease")
	}
	err := b.FinishJob(t.Context(), &present, jobs.Result{Outcome: jobs.Done})
	if err != nil || b.like(t, "true") != 0 {
		t.Errorf("the job is there after its end: %v", err)
	}
}

func TestWhoLostAJobStoresNothing(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "send", 1)
	began := make(chan struct{})
	var given atomic.Int64
	r := b.runner(jobs.Kind{
		Name: "send", Timeout: time.Minute, Attempts: 1,
		Do: func(ctx context.Context, _ *jobs.Job) (time.Time, error) {
			close(began)
			<-ctx.Done()
			return time.Time{}, ctx.Err()
		},
		GiveUp: func(context.Context, *jobs.Job, error) error { given.Add(1); return nil },
	})
	begin(t, r)
	<-began
	b.exec(t, "UPDATE job SET claim = claim + 1") // by another process, after the lease
	round(t, r)                                   // which renews the leases
	if given.Load() != 0 || b.like(t, "state = 'waiting' AND lease_ends_at IS NOT NULL") != 1 {
		t.Error("the former process ended a job that another one has")
	}
}

func TestErrorsFitTheTable(t *testing.T) {
	t.Parallel()
	b := newBase(t)
	b.queue(t, b.greedy, "send", 1)
	round(t, b.runner(jobs.Kind{
		Name: "send", Timeout: time.Minute,
		Do: failing(errors.New("refused \x00\xff" + strings.Repeat("ä", 1000))),
	}))
	if b.like(t, "error LIKE 'refused ??ä%' AND octet_length(error) BETWEEN 490 AND 500") != 1 {
		t.Error("the error is not stored")
	}
}

func TestAnOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	outage := jobs.Outage{Failing: "fails", Recovered: "works"}
	away := errors.New("away")
	for _, err := range []error{nil, away, away, nil, nil, away} {
		outage.Note(t.Context(), logger, err)
	}
	if log := log.String(); strings.Count(log, "fails") != 2 || strings.Count(log, "works") != 1 {
		t.Errorf("the log has %s", log)
	}
}
