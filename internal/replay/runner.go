package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

// JobKind runs the replay whose id a job is about.
const JobKind = "replay"

const (
	// atOnce replays of different tenants run in one process, on half of a processor. Each has two times bucketsOfOne,
	// in all up to 560 MB, and keeps about 100 MB more; see replay.go.
	atOnce       = 4
	bucketsOfOne = 250_000

	// noteEvery is how often progress is stored, and how soon a replay notices that it was canceled.
	noteEvery = 2 * time.Second
	// maxAttempts ends a replay that may have killed its processes. The job is not parked, because the requester sees
	// the failure and can ask again.
	maxAttempts = 3
	// longestRun bounds how long a tenant keeps one of atOnce slots.
	longestRun = 3 * time.Hour
)

type runner struct {
	store Store
	plans func(ctx context.Context, tenant rules.TenantID) ([]string, error)
	log   *slog.Logger
	turns *Turns
}

// Jobs returns the jobs that run replays, one at a time for each tenant.
func Jobs(store Store, plans func(context.Context, rules.TenantID) ([]string, error), log *slog.Logger) jobs.Kind {
	r := &runner{store: store, plans: plans, log: log, turns: NewTurns()}
	return jobs.Kind{
		Name: JobKind, MaxConcurrent: atOnce, PerTenant: 1, Timeout: longestRun + time.Minute, Attempts: jobs.Endless,
		Do: r.attempt,
	}
}

var (
	errCanceled  = errors.New("the replay was canceled")
	errRestarted = errors.New("the replay begins again")
	errTooLong   = errors.New("the replay took too long")
	errKilled    = errors.New("the processes that ran the replay ended before it")
)

func (r *runner) begin(ctx context.Context, job *jobs.Job) (Job, error) {
	id, err := strconv.ParseInt(job.About, 10, 64)
	if err != nil {
		return Job{}, fmt.Errorf("read the id of a replay: %w", err)
	}
	return r.store.BeginReplay(ctx, rules.TenantID(job.Tenant), id, job.Claim)
}

func (r *runner) attempt(ctx context.Context, job *jobs.Job) (again time.Time, err error) {
	begun, err := r.begin(ctx, job)
	if errors.Is(err, rules.ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	var result *Result
	var cause error
	if err = errKilled; job.Attempts <= maxAttempts {
		result, cause, err = r.run(ctx, &begun)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return time.Time{}, err // the process stops
	case errors.Is(cause, errRestarted):
		return jobs.DueNow, nil
	case err != nil && errors.Is(cause, errCanceled):
		begun.State = Canceled
	case err != nil:
		begun.State, begun.Failure = Failed, failureText(cmp.Or(cause, err))
		r.log.WarnContext(ctx, "a replay failed", "tenant", begun.Tenant, "replay", begun.ID, "error", err)
	default:
		begun.State = Done
		begun.Result, _ = json.Marshal(result) // plain data
	}
	stored, err := r.store.FinishReplay(context.WithoutCancel(ctx), &begun)
	if err == nil && !stored {
		return jobs.DueNow, nil // it was restarted meanwhile
	}
	return time.Time{}, err
}

// run runs a replay and stores its progress. cause is why it ended early. A panic becomes an error, because another
// attempt would end alike.
func (r *runner) run(ctx context.Context, job *Job) (result *Result, cause, err error) {
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	limited, cancel := context.WithTimeoutCause(working, longestRun, errTooLong)
	defer cancel()
	var progress atomic.Uint64 // in millionths
	var noting panics.Group
	noting.Loop(limited, r.log, "the progress of a replay",
		func(ctx context.Context) { r.note(ctx, job, &progress, end) })
	err = panics.Do(r.log, "a replay", func() (err error) {
		result, err = r.replay(limited, job, func(done float64) { progress.Store(uint64(done * 1e6)) })
		return err
	})
	cause = context.Cause(limited)
	end(nil)
	_ = noting.Wait()
	return result, cause, err
}

func (r *runner) note(ctx context.Context, job *Job, progress *atomic.Uint64, end context.CancelCauseFunc) {
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	for {
		isCanceled, err := r.store.NoteReplay(ctx, job, float64(progress.Load())/1e6)
		switch {
		case errors.Is(err, rules.ErrNotFound):
			end(errRestarted)
			return
		case err == nil && isCanceled:
			end(errCanceled)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func failureText(err error) string {
	var mistakes ruleset.Errors
	switch {
	case errors.Is(err, ErrNothing):
		return "No checks of this time were recorded."
	case errors.Is(err, errTooLong):
		return fmt.Sprintf("It took longer than %.0f hours; choose a shorter time, or a sample.", longestRun.Hours())
	case errors.Is(err, errKilled):
		return fmt.Sprintf("The programs that ran it ended before it %d times; choose a shorter time, or a sample.",
			maxAttempts)
	case errors.As(err, &mistakes):
		return mistakes.Error()
	}
	return "It could not be run; the log says why. Try it again."
}

func (r *runner) replay(ctx context.Context, job *Job, progress func(float64)) (*Result, error) {
	var q Request
	if err := json.Unmarshal(job.Request, &q); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	plans, err := r.plans(ctx, job.Tenant)
	if err != nil {
		return nil, err
	}
	candidate, err := q.Candidate(plans)
	if err != nil {
		return nil, err
	}
	in, err := Load(ctx, r.store, job.Tenant, q.Since, q.Until, candidate, q.draw())
	if err != nil {
		return nil, err
	}
	return Run(ctx, in, Options{Turns: r.turns, MaxBuckets: bucketsOfOne, Progress: progress})
}
