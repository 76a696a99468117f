package adminapi

import (
	"context"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func (s *surface) ListParkedJobs(ctx context.Context,
	request openapi.ListParkedJobsRequestObject,
) (openapi.ListParkedJobsResponseObject, error) {
	before, err := afterNumber(ctx)
	if err != nil {
		return nil, err
	}
	limit := limitOf(request.Params.Limit)
	parked, err := s.Stores.ParkedJobs(ctx, before, limit+1)
	if err != nil {
		return nil, err
	}
	items, cursor := page(ctx, parked, limit, func(job *rules.Job) openapi.ParkedJob {
		return openapi.ParkedJob{
			JobId: openapi.ID(job.ID), Kind: job.Kind, Tenant: orNull(job.Tenant), About: job.About,
			Attempts: job.Attempts,
			Error:    job.Error, LastRunAt: timeOrNull(job.LastRunAt),
		}
	}, func(job *rules.Job) string { return formatInt(job.ID) })
	return openapi.ListParkedJobs200JSONResponse{Items: items, NextCursor: cursor}, nil
}

func (s *surface) RetryParkedJob(ctx context.Context,
	request openapi.RetryParkedJobRequestObject,
) (openapi.RetryParkedJobResponseObject, error) {
	if err := s.store(ctx).RetryJob(ctx, int64(request.JobId)); err != nil {
		return nil, err
	}
	return openapi.RetryParkedJob204Response{}, nil
}

func (s *surface) DeleteParkedJob(ctx context.Context,
	request openapi.DeleteParkedJobRequestObject,
) (openapi.DeleteParkedJobResponseObject, error) {
	if err := s.store(ctx).RemoveJob(ctx, int64(request.JobId)); err != nil {
		return nil, err
	}
	return openapi.DeleteParkedJob204Response{}, nil
}

func (s *surface) ListPeriodicJobs(ctx context.Context,
	_ openapi.ListPeriodicJobsRequestObject,
) (openapi.ListPeriodicJobsResponseObject, error) {
	periodic, err := s.Stores.PeriodicJobs(ctx)
	if err != nil {
		return nil, err
	}
	return openapi.ListPeriodicJobs200JSONResponse{
		Items: itemsOf(periodic, func(job *rules.Job) openapi.PeriodicJob {
			next := nullable.NewNullNullable[time.Time]()
			if !job.Running {
				next = timeOrNull(job.NextRunAt)
			}
			return openapi.PeriodicJob{
				Kind: job.Kind, Running: job.Running, LastRunAt: timeOrNull(job.LastRunAt),
				TookMs: job.Took.Milliseconds(), NextRunAt: next, Failures: job.Attempts, Error: job.Error,
				LagMs: job.Lag.Milliseconds(),
			}
		}),
	}, nil
}
