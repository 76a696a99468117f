package replay

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/ruleset"
	"github.com/sluicegate/sluice/internal/traffic"
)

// Source is what a replay is made from.
type Source interface {
	traffic.Store
	// History returns what checks depended on since a time.
	History(ctx context.Context, tenant rules.TenantID, since time.Time) (*History, error)
}

// Store has the replays that people asked for.
type Store interface {
	Source
	Replay(ctx context.Context, tenant rules.TenantID, id int64) (Job, error)
	// Replays returns a page, the latest first, before an id; 0 begins at the latest. Results are left out.
	Replays(ctx context.Context, tenant rules.TenantID, before int64, limit int) ([]Job, error)
	// CancelReplay ends one that waits or runs, or returns rules.ErrNotFound.
	CancelReplay(ctx context.Context, tenant rules.TenantID, id int64) error

	// ClaimReplay takes one that waits, of a tenant of which none runs, or returns rules.ErrNotFound.
	ClaimReplay(ctx context.Context, holder string, lease time.Duration) (Job, error)
	RenewReplay(ctx context.Context, job *Job, holder string, progress float64, lease time.Duration) (isOver bool, err error)
	FinishReplay(ctx context.Context, job *Job, holder string) error
}

// Requester asks for replays.
type Requester interface {
	// RequestReplay lets a replay wait for a process, or returns ErrTooMany.
	RequestReplay(ctx context.Context, tenant rules.TenantID, request []byte) (Job, error)
}

// MaxOpen is how many replays of a tenant may wait or run.
const MaxOpen = 5

// ErrTooMany means that a tenant has MaxOpen replays that wait or run.
var ErrTooMany = errors.New("too many replays wait or run")

// State is where a Job stands.
type State string

// The states. The last three are final.
const (
	Waiting  State = "waiting"
	Running  State = "running"
	Done     State = "done"
	Failed   State = "failed"
	Canceled State = "canceled"
)

// Job is a replay that somebody asked for.
type Job struct {
	Tenant                             rules.TenantID
	ID                                 int64
	RequestedAt, StartedAt, FinishedAt time.Time
	By                                 string
	Request                            []byte // a Request in JSON
	State                              State
	Progress                           float64 // 0 to 1
	Failure                            string  // for people
	Result                             []byte  // a Result in JSON
}

// Request is what somebody asks.
type Request struct {
	Title string    `json:"title"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// File has the candidate in the form of package ruleset.
	File  string `json:"file"`
	Prune bool   `json:"prune"`
}

// MaxRange is the longest time that one replay covers.
const MaxRange = rules.MaxRecordDays * 24 * time.Hour

// Validate returns what is wrong with the range.
func (q *Request) Validate(now time.Time) (wrong rules.FieldErrors) {
	switch {
	case !q.Since.Before(q.Until):
		wrong.Add("since", "must be before until")
	case q.Until.Sub(q.Since) > MaxRange:
		wrong.Add("since", fmt.Sprintf("must be at most %d days before until", rules.MaxRecordDays))
	case q.Since.After(now):
		wrong.Add("since", "must be in the past")
	}
	return wrong
}

// Load reads what a replay needs. The blocks are read while it runs.
func Load(ctx context.Context, source Source, tenant rules.TenantID, since, until time.Time, candidate *Candidate) (*Input, error) {
	in := &Input{Tenant: tenant, Since: since, Until: until, Candidate: candidate}
	of := traffic.Range{Since: since, Until: until}
	sum, err := source.Summary(ctx, tenant, of)
	if err != nil {
		return nil, err
	}
	if sum.Blocks == 0 {
		return nil, ErrNothing
	}
	if in.History, err = source.History(ctx, tenant, since.Add(-mostWarm)); err != nil {
		return nil, err
	}
	in.Level, in.Counts = sum.Level, sum.Counts
	of.Since = since.Add(-Warm(in))
	if earlier, err := source.Summary(ctx, tenant, traffic.Range{Since: of.Since, Until: since}); err != nil {
		return nil, err
	} else if earlier.Level > in.Level { // the sample of the range is not whole before it
		in.Level = min(earlier.Level, traffic.Strata-1)
	}
	in.Level = min(in.Level, traffic.Strata-1)
	in.Blocks = source.Blocks(ctx, tenant, of)
	in.Notes = notes(in, &sum)
	return in, nil
}

func notes(in *Input, sum *traffic.Summary) (notes []string) {
	if sum.Oldest.Sub(in.Since) > 10*time.Minute {
		notes = append(notes, "Checks are recorded since "+sum.Oldest.Format(time.RFC3339)+"; what came before is missing.")
	}
	if in.History.KnownSince.After(in.Since) {
		notes = append(notes, "The audit log knows the rules since "+in.History.KnownSince.Format(time.RFC3339)+"; before, the rules of that time stand for them.")
	}
	if sum.LeftOut > 0 {
		notes = append(notes, fmt.Sprintf("%d checks reserve tokens, and are left out.", sum.LeftOut))
	}
	if sum.Dropped > 0 {
		notes = append(notes, fmt.Sprintf("%d checks were not recorded, for lack of room.", sum.Dropped))
	}
	return notes
}

// Candidate reads the request's file. Plans are those that it may use without listing them.
func (q *Request) Candidate(plans []string) (*Candidate, error) {
	config, err := ruleset.Decode(bytes.NewReader([]byte(q.File)), "", plans)
	if err != nil {
		return nil, err
	}
	return &Candidate{Config: config, Prune: q.Prune}, nil
}

const (
	claimEvery = 2 * time.Second
	lease      = 30 * time.Second
	renewEvery = 2 * time.Second
	// rest lets others have the processor half of the time.
	rest = time.Second
)

// Runner runs the replays that wait, one at a time.
type Runner struct {
	store  Store
	plans  func(ctx context.Context, tenant rules.TenantID) ([]string, error)
	holder string
	log    *slog.Logger
}

// NewRunner returns a Runner. plans returns the names of a tenant's plans.
func NewRunner(store Store, plans func(context.Context, rules.TenantID) ([]string, error), log *slog.Logger) *Runner {
	return &Runner{store: store, plans: plans, holder: rand.Text(), log: cmp.Or(log, slog.New(slog.DiscardHandler))}
}

// Run runs replays until ctx ends. One that is interrupted by that begins again in another process.
func (r *Runner) Run(ctx context.Context) {
	tick := time.NewTicker(claimEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if r.Once(ctx) {
			continue
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// Once runs one replay, and reports whether one waited.
func (r *Runner) Once(ctx context.Context) bool {
	job, err := r.store.ClaimReplay(ctx, r.holder, lease)
	if err != nil {
		if !errors.Is(err, rules.ErrNotFound) && ctx.Err() == nil {
			r.log.WarnContext(ctx, "replays cannot be claimed; the next round tries again", "error", err)
		}
		return false
	}
	r.attempt(ctx, &job)
	return true
}

func (r *Runner) attempt(ctx context.Context, job *Job) {
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	var progress atomic.Uint64 // in millionths
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		r.renew(working, job, &progress, end)
	}()
	result, err := r.replay(working, job, func(done float64) { progress.Store(uint64(done * 1e6)) })
	cause := context.Cause(working)
	end(nil)
	<-renewed
	switch {
	case ctx.Err() != nil:
		return // the lease ends, and another process begins again
	case errors.Is(cause, errCanceled):
		job.State = Canceled
	case err != nil:
		job.State, job.Failure = Failed, failureText(err)
		r.log.WarnContext(ctx, "a replay failed", "tenant", job.Tenant, "replay", job.ID, "error", err)
	default:
		job.State = Done
		job.Result, _ = json.Marshal(result) // plain data
	}
	if err := r.store.FinishReplay(ctx, job, r.holder); err != nil {
		r.log.ErrorContext(ctx, "the end of a replay could not be stored", "tenant", job.Tenant, "replay", job.ID, "error", err)
	}
}

var errCanceled = errors.New("the replay was canceled")

// renew keeps the lease, and ends the work when somebody cancels it.
func (r *Runner) renew(ctx context.Context, job *Job, progress *atomic.Uint64, end context.CancelCauseFunc) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		isOver, err := r.store.RenewReplay(ctx, job, r.holder, float64(progress.Load())/1e6, lease)
		if err == nil && isOver {
			end(errCanceled)
			return
		}
	}
}

// failureText is what people are told.
func failureText(err error) string {
	var mistakes ruleset.Errors
	switch {
	case errors.Is(err, ErrNothing):
		return "No checks of this time were recorded."
	case errors.As(err, &mistakes):
		return mistakes.Error()
	}
	return "It could not be run; the log says why. Try it again."
}

func (r *Runner) replay(ctx context.Context, job *Job, progress func(float64)) (*Result, error) {
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
	in, err := Load(ctx, r.store, job.Tenant, q.Since, q.Until, candidate)
	if err != nil {
		return nil, err
	}
	return Run(ctx, in, Options{Idle: rest, Progress: progress})
}

// Slice returns blocks as a sequence, for those who have them.
func Slice(blocks []traffic.Block) iter.Seq2[traffic.Block, error] {
	return func(yield func(traffic.Block, error) bool) {
		for _, b := range blocks {
			if !yield(b, nil) {
				return
			}
		}
	}
}
