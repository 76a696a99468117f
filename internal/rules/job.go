package rules

import (
	"context"
	"time"
)

// Job is a row of the table job, as platform admins see it.
type Job struct {
	ID       int64
	Kind     string
	Tenant   string // the tenant's slug; "" for the platform
	About    string // an id; "" for a periodic job
	Running  bool
	Attempts int    // since the last success
	Error    string // of the latest attempt

	NextRunAt time.Time // of a periodic job
	LastRunAt time.Time // zero: never
	Took      time.Duration
	Lag       time.Duration // how long a periodic job has been due without finishing all work
}

// JobReader reads the jobs that platform admins see.
type JobReader interface {
	// ParkedJobs lists latest first, before an id (0: from the latest).
	ParkedJobs(ctx context.Context, before int64, limit int) ([]Job, error)
	PeriodicJobs(ctx context.Context) ([]Job, error)
}

// JobStore changes parked jobs, and returns ErrNotFound for others.
type JobStore interface {
	RetryJob(ctx context.Context, id int64) error
	RemoveJob(ctx context.Context, id int64) error
}
