package pgstore

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

var (
	_ jobs.Store      = (*Store)(nil)
	_ rules.JobReader = (*Store)(nil)
	_ rules.JobStore  = Writer{}
)

// claimLock makes one process at a time claim jobs, so that caps are exact.
const claimLock = 0x736c75696365_01

// PlanJobs makes the jobs of periodic kinds that are missing.
func (s *Store) PlanJobs(ctx context.Context, kinds []jobs.Kind) error {
	var names []string
	var pauses []float64
	for i := range kinds {
		if kinds[i].Every > 0 {
			names, pauses = append(names, kinds[i].Name), append(pauses, kinds[i].Every.Seconds())
		}
	}
	err := s.transaction(ctx, classBackground, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		return q.PlanJobs(ctx, names, pauses)
	})
	return wrap(err, "plan periodic jobs")
}

// ClaimJobs leases due jobs, and counts those that are parked.
func (s *Store) ClaimJobs(ctx context.Context, asked []jobs.Claim) (claimed []jobs.Job, parked int64, err error) {
	params := dbsqlc.ClaimJobsParams{LeaseSeconds: jobs.Lease.Seconds()}
	for _, a := range asked {
		params.Kinds = append(params.Kinds, a.Kind)
		params.Rooms, params.Caps = append(params.Rooms, int64(a.Room)), append(params.Caps, int64(a.PerTenant))
	}
	err = s.transaction(ctx, classBackground, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := q.LockJobClaims(ctx, claimLock); err != nil {
			return err
		}
		rows, err := q.ClaimJobs(ctx, params)
		if err != nil {
			return err
		}
		claimed = each(rows, func(row dbsqlc.ClaimJobsRow) jobs.Job {
			return jobs.Job{
				Tenant: int64(row.TenantID), ID: row.JobID, Kind: row.Kind, About: row.About,
				Attempts: int(row.Attempts), Claim: row.Claim,
			}
		})
		parked, err = q.CountParkedJobs(ctx)
		return err
	})
	return claimed, parked, wrap(err, "claim jobs")
}

// RenewJobs renews leases, and returns the ids of the jobs that are still of these claims.
func (s *Store) RenewJobs(ctx context.Context, held []jobs.Job) (ids []int64, err error) {
	err = s.transaction(ctx, classBackground, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) (err error) {
		ids, err = q.RenewJobs(ctx, jobs.Lease.Seconds(),
			each(held, func(j jobs.Job) int64 { return j.ID }), each(held, func(j jobs.Job) int64 { return j.Claim }))
		return err
	})
	return ids, wrap(err, "renew the leases of jobs")
}

// FinishJob stores a result, unless another claim was made since.
func (s *Store) FinishJob(ctx context.Context, job *jobs.Job, result jobs.Result) error {
	err := s.transaction(ctx, classBackground, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		switch result.Outcome {
		case jobs.Done:
			return q.DropJob(ctx, job.ID, job.Claim)
		case jobs.Interrupted:
			return q.GiveJobBack(ctx, job.ID, job.Claim)
		}
		return q.FinishJob(ctx, dbsqlc.FinishJobParams{
			IsParked: result.Outcome == jobs.Parked, Error: result.Error, At: orNull(result.At),
			Pause: result.Pause.Seconds(), TookMs: result.Took.Milliseconds(), JobID: job.ID, Claim: job.Claim,
		})
	})
	return wrap(err, "finish job %d", job.ID)
}

// ParkedJobs returns the parked jobs of all tenants, latest first, before an id.
func (s *Store) ParkedJobs(ctx context.Context, before int64, limit int) ([]rules.Job, error) {
	rows, err := s.queriesFor(classRead, everyTenant).ParkedJobs(ctx, before, rowLimit(limit))
	return each(rows, func(row dbsqlc.ParkedJobsRow) rules.Job {
		return rules.Job{
			ID: row.JobID, Kind: row.Kind, Tenant: row.Slug, About: row.About, Attempts: int(row.Attempts),
			Error: row.Error, LastRunAt: orZero(row.LastRunAt), Took: time.Duration(row.TookMs) * time.Millisecond,
		}
	}), wrap(err, "read parked jobs")
}

// PeriodicJobs returns the periodic jobs by kind.
func (s *Store) PeriodicJobs(ctx context.Context) ([]rules.Job, error) {
	rows, err := s.queriesFor(classRead, everyTenant).PeriodicJobs(ctx)
	return each(rows, func(row dbsqlc.PeriodicJobsRow) rules.Job {
		return rules.Job{
			ID: row.JobID, Kind: row.Kind, Running: row.LeaseEndsAt != nil, Attempts: int(row.Attempts),
			Error: row.Error, NextRunAt: row.NextRunAt.UTC(), LastRunAt: orZero(row.LastRunAt),
			Took: time.Duration(row.TookMs) * time.Millisecond, Lag: time.Duration(row.LagMs) * time.Millisecond,
		}
	}), wrap(err, "read periodic jobs")
}

// RetryJob makes a parked job due now, with all of its attempts.
func (s Writer) RetryJob(ctx context.Context, id int64) error {
	err := s.inTransactionAs(ctx, s.by, func(ctx context.Context, q *dbsqlc.Queries) error {
		_, err := q.RetryJob(ctx, id)
		return err
	})
	return wrap(err, "retry job %d", id)
}

// RemoveJob removes a parked job for good.
func (s Writer) RemoveJob(ctx context.Context, id int64) error {
	err := s.inTransactionAs(ctx, s.by, func(ctx context.Context, q *dbsqlc.Queries) error {
		_, err := q.RemoveJob(ctx, id)
		return err
	})
	return wrap(err, "remove job %d", id)
}

func nextTry(ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID, kind string, about int64) (time.Time,
	error,
) {
	at, err := q.NextTry(ctx, tenant, kind, strconv.FormatInt(about, 10))
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, nil
	}
	return at.UTC(), err
}

func enqueue(ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID, kind string, about int64,
	at time.Time,
) error {
	_, err := q.EnqueueJob(ctx, dbsqlc.EnqueueJobParams{
		TenantID: tenant, Kind: kind, About: strconv.FormatInt(about, 10), At: orNull(at),
	})
	return err
}
