package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/traffic"
)

// Reader reads replays.
type Reader interface {
	Source
	Replay(ctx context.Context, tenant rules.TenantID, id int64) (Job, error)
	// Replays returns a page, the latest first, before an id (0: the latest), without files and results.
	Replays(ctx context.Context, tenant rules.TenantID, before int64, limit int) ([]Job, error)
}

// Store has the running replays. A replay belongs to the attempt that began it last.
type Store interface {
	Source
	// BeginReplay lets a claim of a job run a replay. Returns rules.ErrNotFound for one that was canceled, or is over
	// or gone.
	BeginReplay(ctx context.Context, tenant rules.TenantID, id, claim int64) (Job, error)
	// NoteReplay stores a replay's progress. Returns rules.ErrNotFound if it is to begin again.
	NoteReplay(ctx context.Context, job *Job, progress float64) (isCanceled bool, err error)
	FinishReplay(ctx context.Context, job *Job) (stored bool, err error)
}

const (
	// MaxOpen bounds a tenant's replays that wait or run.
	MaxOpen = 5
	// MaxKept bounds a tenant's ended replays, which are kept for at most rules.MaxRecordDays.
	MaxKept = 50
)

// ErrTooMany means that a tenant has MaxOpen replays that wait or run.
var ErrTooMany = errors.New("too many replays wait or run")

// State of a Job.
type State string

// The last three are final.
const (
	Waiting  State = "waiting"
	Running  State = "running"
	Done     State = "done"
	Failed   State = "failed"
	Canceled State = "canceled"
)

// Job is a requested replay.
type Job struct {
	Tenant                             rules.TenantID
	ID                                 int64
	RequestedAt, StartedAt, FinishedAt time.Time
	By                                 string
	Request                            []byte // a Request in JSON
	State                              State
	Claim                              int64   // of the job that runs it
	Progress                           float64 // 0 to 1
	Failure                            string  // for people
	Result                             []byte  // a Result in JSON
}

// Kind is the form of a candidate.
type Kind string

// The kinds of candidates.
const (
	KindRules Kind = "rules"
	KindPlan  Kind = "plan" // the rules of a plan
	KindFile  Kind = "file"
)

// Request describes a replay.
type Request struct {
	Title  string     `json:"title"`
	Kind   Kind       `json:"kind"`
	Since  time.Time  `json:"since"`
	Until  time.Time  `json:"until"`
	File   string     `json:"file"` // rules and overrides in the form of package ruleset
	Prune  bool       `json:"prune,omitempty"`
	Plan   string     `json:"plan,omitempty"`
	Remove []RuleName `json:"remove,omitempty"`
	Level  int        `json:"level,omitempty"` // of a traffic.Draw
	Seed   uint64     `json:"seed,omitempty"`
}

// RuleName is a rules.RuleIdentity in JSON.
type RuleName struct {
	Pattern string `json:"key_pattern"`
	Plan    string `json:"plan"`
	Name    string `json:"name"`
}

// MaxRange is the longest time that one replay covers.
const MaxRange = rules.MaxRecordDays * 24 * time.Hour

// Validate checks the range.
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

// Candidate reads the request's file. The file may use plans without listing them.
func (q *Request) Candidate(plans []string) (*Candidate, error) {
	candidate := &Candidate{Prune: q.Prune, Plan: q.Plan}
	for _, r := range q.Remove {
		candidate.Remove = append(candidate.Remove, rules.RuleIdentity(r))
	}
	if q.File == "" {
		return candidate, nil
	}
	var err error
	candidate.Config, err = ruleset.Decode(bytes.NewReader([]byte(q.File)), "", plans)
	return candidate, err
}

func (q *Request) draw() traffic.Draw { return traffic.Draw{Level: q.Level, Seed: q.Seed} }
