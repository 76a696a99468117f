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
	// ParkedJobs returns the parked jobs of all tenants, latest first, before an id (0: from the latest).
	ParkedJobs(ctx context.Context, before int64, limit int) ([]Job, error)
	// PeriodicJobs returns the periodic jobs by kind.
	PeriodicJobs(ctx context.Context) ([]Job, error)
}

// JobStore changes parked jobs. Its methods return ErrNotFound for a job that is not parked.
type JobStore interface {
	// RetryJob makes a parked job due now, with all of its attempts.
	RetryJob(ctx context.Context, id int64) error
	// RemoveJob removes a parked job for good.
	RemoveJob(ctx context.Context, id int64) error
}
