package adminapi

import (
	"context"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func (s *surface) ListParkedJobs(ctx context.Context,
	request openapi.ListParkedJobsRequestObject,
) (openapi.ListParkedJobsResponseObject, error) {
	parked, cursor, err := list(ctx, request.Params.Limit, func(before int64, limit int) ([]rules.Job, error) {
		return s.Stores.ParkedJobs(ctx, before, limit)
	}, func(job *rules.Job) int64 { return job.ID })
	return openapi.ListParkedJobs200JSONResponse{
		Items: itemsOf(parked, func(job *rules.Job) openapi.ParkedJob {
			return openapi.ParkedJob{
				JobId: openapi.ID(job.ID), Kind: job.Kind, Tenant: orNull(job.Tenant), About: job.About,
				Attempts: job.Attempts, Error: job.Error, LastRunAt: timeOrNull(job.LastRunAt),
			}
		}),
		NextCursor: cursor,
	}, err
}

func (s *surface) RetryParkedJob(ctx context.Context,
	request openapi.RetryParkedJobRequestObject,
) (openapi.RetryParkedJobResponseObject, error) {
	return openapi.RetryParkedJob204Response{}, s.store(ctx).RetryJob(ctx, int64(request.JobId))
}

func (s *surface) DeleteParkedJob(ctx context.Context,
	request openapi.DeleteParkedJobRequestObject,
) (openapi.DeleteParkedJobResponseObject, error) {
	return openapi.DeleteParkedJob204Response{}, s.store(ctx).RemoveJob(ctx, int64(request.JobId))
}

func (s *surface) ListPeriodicJobs(ctx context.Context,
	_ openapi.ListPeriodicJobsRequestObject,
) (openapi.ListPeriodicJobsResponseObject, error) {
	periodic, err := s.Stores.PeriodicJobs(ctx)
	return openapi.ListPeriodicJobs200JSONResponse{
		Items: itemsOf(periodic, func(job *rules.Job) openapi.PeriodicJob {
			return openapi.PeriodicJob{
				Kind: job.Kind, Running: job.Running, LastRunAt: timeOrNull(job.LastRunAt),
				TookMs: job.Took.Milliseconds(), NextRunAt: timeIf(!job.Running, job.NextRunAt),
				Failures: job.Attempts, Error: job.Error, LagMs: job.Lag.Milliseconds(),
			}
		}),
	}, err
}
