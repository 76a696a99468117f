// Package jobs runs the work of the table job: one-off work, and periodic work.
//
// A process claims due jobs under a lease, attempts them, and renews the lease meanwhile. When it dies, another process
// attempts the job again: a job can be attempted twice, but it is never lost. Tenants take turns. A failed attempt is
// repeated after a pause that doubles. After the last one the job is parked, until a platform admin retries or removes
// it.
//
// Work that has a row of its own, such as a message, has a job about the row's id, made in the same transaction. A
// periodic kind has one job, in one process at a time, and is never parked.
package jobs

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/jobs/panics"
)

// The times of claims and attempts.
const (
	claimEvery  = time.Second
	claimSoon   = 100 * time.Millisecond // after the end of an attempt, so that many short ones share a claim
	Lease       = time.Minute            // of a job, which outlives a process that died
	renewEvery  = Lease / 4
	storeWithin = 5 * time.Second // the result of an attempt

	MaxAttempts = 12            // within about twelve hours
	Endless     = math.MaxInt32 // for Kind.Attempts: no attempt is the last

	firstRetry = 30 * time.Second
	maxRetry   = 4 * time.Hour
)

// Kind is one kind of work.
type Kind struct {
	Name  string
	Every time.Duration // the pause between runs; 0 for one-off work
	// MaxConcurrent caps the attempts in flight of this process, PerTenant a tenant's in all processes. 0 means 1.
	MaxConcurrent, PerTenant int
	Timeout                  time.Duration
	Attempts                 int // of one-off work (0: MaxAttempts); one more follows if no result was stored
	// Do makes one attempt. The returned time is when the job is due again; zero means done, or the next run of a
	// periodic kind. ctx ends after Timeout, when the process stops, and when the job is no longer this process's.
	Do func(ctx context.Context, job *Job) (again time.Time, err error)
	// GiveUp tells the job's row that its last attempt failed. It is called before the job is parked, and again if it
	// fails. nil: the job has no row.
	GiveUp func(ctx context.Context, job *Job, err error) error
}

// DueNow is for Do to return: the job is due again now.
var DueNow = time.Unix(0, 0) //nolint:gochecknoglobals // a constant

// Elsewhere marks an error of another system, which tenants cause: it is neither logged nor counted, and ends the job
// after its last attempt instead of parking it.
func Elsewhere(err error) error { return elsewhereError{err} }

type elsewhereError struct{ error }

func (e elsewhereError) Unwrap() error { return e.error }

// IsElsewhere reports whether an error is marked by Elsewhere.
func IsElsewhere(err error) bool {
	var elsewhere elsewhereError
	return errors.As(err, &elsewhere)
}

// Periodic returns a kind that runs regularly, for at most an hour each time.
func Periodic(name string, every time.Duration, do func(context.Context) error) Kind {
	return Kind{Name: name, Every: every, Timeout: time.Hour, Do: func(ctx context.Context, _ *Job) (time.Time, error) {
		return time.Time{}, do(ctx)
	}}
}

// Job is a claimed job.
type Job struct {
	Tenant   int64 // 0 for none
	ID       int64
	Kind     string
	About    string // the id of its row; a tenant has one job of a kind about the same row
	Attempts int    // this one included, since the last success
	Claim    int64  // raised by each claim
}

// Claim asks for jobs of a kind.
type Claim struct {
	Kind            string
	Room, PerTenant int
}

// Outcome is what becomes of a job after an attempt.
type Outcome int

// The outcomes.
const (
	Again       Outcome = iota // the job is due again
	Done                       // it is removed
	Parked                     // it waits for a platform admin
	Interrupted                // it is due now, and the attempt does not count
)

// Result is the end of an attempt.
type Result struct {
	Outcome Outcome
	Pause   time.Duration // until the job is due again, unless At is set
	At      time.Time
	Error   string // "" is a success
	Took    time.Duration
}

// Store has the jobs of all tenants.
type Store interface {
	// PlanJobs makes missing periodic jobs, and brings the next run forward after a shorter Every.
	PlanJobs(ctx context.Context, kinds []Kind) error
	// ClaimJobs leases due jobs, each once, within the caps of tenants, and counts those that are parked.
	ClaimJobs(ctx context.Context, asked []Claim) (jobs []Job, parked int64, err error)
	// RenewJobs returns the ids of the jobs that are still of these claims.
	RenewJobs(ctx context.Context, held []Job) (ids []int64, err error)
	// FinishJob has no effect if another claim was made since.
	FinishJob(ctx context.Context, job *Job, result Result) error
}

// Runner runs kinds of work.
type Runner struct {
	store Store
	kinds []Kind
	log   *slog.Logger

	mu       sync.Mutex
	inFlight map[int64]held // by job id
	ended    chan struct{}  // has a value when an attempt has ended since the last claim
	attempts panics.Group

	planned   bool
	renewedAt time.Time
	claiming  Outage
	parked    atomic.Int64
	failed    atomic.Int64
}

type held struct {
	job    Job
	cancel context.CancelFunc
}

// New returns a Runner without attempts in flight.
func New(store Store, kinds []Kind, log *slog.Logger) *Runner {
	return &Runner{
		store: store, kinds: kinds, log: log, inFlight: map[int64]held{}, ended: make(chan struct{}, 1),
		claiming: Outage{Failing: "jobs cannot be claimed", Recovered: "jobs are claimed again"},
	}
}

// Counts returns the number of parked jobs, and of failed attempts of this process.
func (r *Runner) Counts() (parked, failed int64) { return r.parked.Load(), r.failed.Load() }

// Run claims and attempts jobs until ctx ends, and waits for those in flight.
func (r *Runner) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := panics.Do(r.log, "a round of jobs", func() error { return r.Round(ctx) })
		r.claiming.Note(ctx, r.log, err)
		ended := r.ended
		if err != nil {
			ended = nil // room for more jobs does not help
		}
		select {
		case <-ctx.Done():
		case <-time.After(claimEvery):
		case <-ended:
			select {
			case <-ctx.Done():
			case <-time.After(claimSoon):
			}
		}
	}
	r.Wait()
}

// Wait waits for the attempts in flight.
func (r *Runner) Wait() { _ = r.attempts.Wait() }

// Round renews leases, claims due jobs, and begins their attempts without waiting for them.
func (r *Runner) Round(ctx context.Context) error {
	if err := r.renew(ctx); err != nil {
		return err
	}
	if !r.planned {
		if err := r.store.PlanJobs(ctx, r.kinds); err != nil {
			return err
		}
		r.planned = true
	}
	asked := r.room()
	if len(asked) == 0 {
		return nil
	}
	claimed, parked, err := r.store.ClaimJobs(ctx, asked)
	if err != nil {
		return err
	}
	r.parked.Store(parked)
	for _, job := range claimed {
		for _, kind := range r.kinds {
			if kind.Name == job.Kind {
				r.begin(ctx, kind, job)
			}
		}
	}
	return nil
}

func (r *Runner) room() (asked []Claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	busy := map[string]int{}
	for _, h := range r.inFlight {
		busy[h.job.Kind]++
	}
	for _, kind := range r.kinds {
		if room := max(1, kind.MaxConcurrent) - busy[kind.Name]; room > 0 {
			asked = append(asked, Claim{kind.Name, room, max(1, kind.PerTenant)})
		}
	}
	return asked
}

func (r *Runner) renew(ctx context.Context) error {
	r.mu.Lock()
	jobs := make([]Job, 0, len(r.inFlight))
	for _, h := range r.inFlight {
		jobs = append(jobs, h.job)
	}
	r.mu.Unlock()
	if len(jobs) == 0 || time.Since(r.renewedAt) < renewEvery {
		return nil
	}
	ids, err := r.store.RenewJobs(ctx, jobs)
	if err != nil {
		return err
	}
	r.renewedAt = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, job := range jobs {
		if h, ok := r.inFlight[job.ID]; ok && !slices.Contains(ids, job.ID) && h.job.Claim == job.Claim {
			h.cancel()
		}
	}
	return nil
}

func (r *Runner) begin(ctx context.Context, kind Kind, job Job) {
	working, cancel := context.WithTimeout(ctx, kind.Timeout)
	r.mu.Lock()
	if former, ok := r.inFlight[job.ID]; ok { // its lease ended while the machine was suspended
		former.cancel()
	}
	r.inFlight[job.ID] = held{job, cancel}
	r.mu.Unlock()
	r.attempts.Go(r.log, "job "+kind.Name, func() {
		defer func() {
			cancel()
			r.mu.Lock()
			if r.inFlight[job.ID].job.Claim == job.Claim { // else this process has claimed it again after its lease
				delete(r.inFlight, job.ID)
			}
			r.mu.Unlock()
			select {
			case r.ended <- struct{}{}:
			default:
			}
		}()
		r.attempt(working, ctx, kind, &job)
	})
}

// ErrProcessEnded is the error of a job whose last attempts ended unrecorded: the process died or did not renew
// the lease.
var ErrProcessEnded = errors.New("the process ended, or did not answer, during the last attempt")

func (r *Runner) attempt(ctx, stopping context.Context, kind Kind, job *Job) {
	began := time.Now()
	var again time.Time
	err := ErrProcessEnded
	// The last attempt is repeated once if its end was not stored, because the database may have been away.
	if kind.Every > 0 || job.Attempts-1 <= kind.attempts() {
		err = panics.Do(r.log, "job "+kind.Name, func() (err error) {
			again, err = kind.Do(ctx, job)
			return err
		})
	}
	result := kind.result(job, again, err)
	result.Took = time.Since(began)
	after, cancel := Storing(ctx)
	defer cancel()
	switch {
	case err == nil:
	case stopping.Err() != nil:
		result = Result{Outcome: Interrupted}
	case errors.Is(ctx.Err(), context.Canceled):
		return // another process has the job, or it is gone
	default:
		if !IsElsewhere(err) {
			r.failed.Add(1)
			r.log.WarnContext(ctx, "a job failed", "kind", kind.Name, "tenant", job.Tenant, "about", job.About,
				"attempts", job.Attempts, "parked", result.Outcome == Parked, "error", err)
		}
		if result.Outcome != Again && !r.giveUp(after, kind, job, err) {
			return
		}
	}
	if err := r.store.FinishJob(after, job, result); err != nil {
		r.log.WarnContext(after, "could not store the result of a job; it runs again when its lease ends",
			"kind", kind.Name, "tenant", job.Tenant, "about", job.About, "error", err)
	}
}

// Storing returns a context for storing the result of an attempt after ctx has ended.
func Storing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeWithin)
}

func (r *Runner) giveUp(ctx context.Context, kind Kind, job *Job, cause error) bool {
	if kind.GiveUp == nil {
		return true
	}
	err := panics.Do(r.log, "job "+kind.Name, func() error { return kind.GiveUp(ctx, job, cause) })
	if err != nil {
		r.log.WarnContext(ctx, "could not record that a job gave up; retrying when its lease ends",
			"kind", kind.Name, "tenant", job.Tenant, "about", job.About, "error", err)
	}
	return err == nil
}

func (k *Kind) attempts() int { return cmp.Or(k.Attempts, MaxAttempts) }

func (k *Kind) result(job *Job, again time.Time, err error) Result {
	switch {
	case err == nil && !again.IsZero():
		return Result{At: again}
	case err == nil && k.Every > 0:
		return Result{Pause: k.Every}
	case err == nil:
		return Result{Outcome: Done}
	}
	result := Result{Error: ErrorText(err.Error())}
	switch {
	case k.Every > 0:
		result.Pause = min(k.Every, Pause(job.Attempts))
	case job.Attempts < k.attempts():
		result.Pause = Pause(job.Attempts)
	case IsElsewhere(err):
		result.Outcome = Done
	default:
		result.Outcome = Parked
	}
	return result
}
