package replay

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/ruleset"
)

const (
	// atOnce replays run in one process, of different tenants. They take turns on half of a processor, and each has two
	// times bucketsOfOne: 560 MB in all, if each fills them.
	atOnce       = 4
	bucketsOfOne = 250_000

	// lease is how long the replay of a killed process waits for another one.
	lease      = 30 * time.Second
	renewEvery = 2 * time.Second
	// maxAttempts ends a replay whose processes were killed, perhaps by it.
	maxAttempts = 3
	// longestRun bounds how long a tenant keeps one of atOnce places.
	longestRun = 3 * time.Hour
)

// Runner runs the replays that wait, by a jobs.Runner.
type Runner struct {
	store  Store
	plans  func(ctx context.Context, tenant rules.TenantID) ([]string, error)
	holder string
	log    *slog.Logger
	turns  *Turns
	queue  *jobs.Runner[Job]
}

// NewRunner returns a Runner. plans returns the names of a tenant's plans.
func NewRunner(store Store, plans func(context.Context, rules.TenantID) ([]string, error), log *slog.Logger) *Runner {
	r := &Runner{
		store: store, plans: plans, holder: rand.Text(), log: cmp.Or(log, slog.New(slog.DiscardHandler)), turns: NewTurns(),
	}
	r.queue = jobs.NewRunner(jobs.Queue[Job]{
		Claim: r.claim, Attempt: r.attempt, AtOnce: atOnce, PerTenant: 1,
		Failing: "replays are not run", Recovered: "replays are run again",
	}, r.log)
	return r
}

// Run runs replays until ctx ends. Another process begins those again that this interrupts.
func (r *Runner) Run(ctx context.Context) { r.queue.Run(ctx) }

// Claim begins replays that wait, as many as there are places, and does not wait for them.
func (r *Runner) Claim(ctx context.Context) error { return r.queue.Claim(ctx, time.Now()) }

// Wait waits for the replays that run.
func (r *Runner) Wait() { r.queue.Wait() }

// claim is a Queue's Claim. The store keeps a tenant to one replay at a time.
func (r *Runner) claim(ctx context.Context, _, _ time.Time, _, limit int) (claimed []Job, err error) {
	for len(claimed) < limit {
		job, err := r.store.ClaimReplay(ctx, r.holder, lease)
		if err != nil {
			if errors.Is(err, rules.ErrNotFound) || len(claimed) > 0 {
				break
			}
			return nil, err
		}
		claimed = append(claimed, job)
	}
	return claimed, nil
}

var (
	errCanceled = errors.New("the replay was canceled")
	errKilled   = errors.New("the processes that ran the replay ended")
	errTooLong  = errors.New("the replay took too long")
)

func (r *Runner) attempt(ctx context.Context, job *Job, _ time.Time) {
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	limited, cancel := context.WithTimeoutCause(working, longestRun, errTooLong)
	defer cancel()
	var progress atomic.Uint64 // in millionths
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		r.renew(limited, job, &progress, end)
	}()
	result, err := r.replay(limited, job, func(done float64) { progress.Store(uint64(done * 1e6)) })
	cause := context.Cause(limited)
	end(nil)
	<-renewed
	after := context.WithoutCancel(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		if err := r.store.ReleaseReplay(after, job, r.holder); err != nil {
			r.log.WarnContext(ctx, "an interrupted replay begins again later", "tenant", job.Tenant, "replay", job.ID, "error", err)
		}
		return
	case err != nil && errors.Is(cause, errCanceled):
		job.State = Canceled
	case err != nil:
		job.State, job.Failure = Failed, failureText(cmp.Or(cause, err))
		r.log.WarnContext(ctx, "a replay failed", "tenant", job.Tenant, "replay", job.ID, "error", err)
	default:
		job.State = Done
		job.Result, _ = json.Marshal(result) // plain data
	}
	if err := r.store.FinishReplay(after, job, r.holder); err != nil {
		r.log.ErrorContext(ctx, "the end of a replay could not be stored", "tenant", job.Tenant, "replay", job.ID, "error", err)
	}
}

// renew keeps the lease, and ends the work when somebody cancels it.
func (r *Runner) renew(ctx context.Context, job *Job, progress *atomic.Uint64, end context.CancelCauseFunc) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		isOver, err := r.store.RenewReplay(ctx, job, r.holder, float64(progress.Load())/1e6, lease)
		if err == nil && isOver {
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

// failureText is what people are told.
func failureText(err error) string {
	var mistakes ruleset.Errors
	switch {
	case errors.Is(err, ErrNothing):
		return "No checks of this time were recorded."
	case errors.Is(err, errTooLong):
		return fmt.Sprintf("It took longer than %.0f hours; choose a shorter time, or a sample.", longestRun.Hours())
	case errors.Is(err, errKilled):
		return fmt.Sprintf("The programs that ran it ended before it %d times; choose a shorter time, or a sample.", maxAttempts)
	case errors.As(err, &mistakes):
		return mistakes.Error()
	}
	return "It could not be run; the log says why. Try it again."
}

func (r *Runner) replay(ctx context.Context, job *Job, progress func(float64)) (*Result, error) {
	if job.Attempts > maxAttempts {
		return nil, errKilled
	}
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
