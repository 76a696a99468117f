package adminapi

import (
	"context"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adapt"
	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
)

func (s *surface) ListAdapting(ctx context.Context,
	_ openapi.ListAdaptingRequestObject,
) (openapi.ListAdaptingResponseObject, error) {
	standing, err := s.Stores.Adapting(ctx, requestOf(ctx).tenant.ID)
	return openapi.ListAdapting200JSONResponse{Items: itemsOf(standing, showAdapting)}, err
}

func showAdapting(s *adapt.Standing) openapi.Adapting {
	shown := openapi.Adapting{
		RuleId: openapi.ID(s.Rule.ID), Backend: s.Rule.Adapt.Backend, SharePercent: 100,
		LimitText: s.Rule.DescribeLimit(),
		Since:     timeOrNull(never), EndsAt: timeOrNull(never), Cause: orNull(""),
		Seen: nullable.NewNullNullable[openapi.BackendSeen](),
	}
	if step := s.Step; step != nil && step.Percent < 100 {
		limit := s.Rule.Limit()
		limit.Rate = step.Rate(limit.Rate)
		shown.SharePercent, shown.LimitText = step.Percent, s.Rule.Describe(limit)
		shown.Since, shown.EndsAt, shown.Cause = timeOrNull(step.SteppedAt), timeOrNull(step.EndsAt), orNull(step.Cause)
	}
	if s.Seen != nil {
		seen := openapi.BackendSeen{
			Requests: s.Seen.Requests, Errors: s.Seen.Errors,
			P99Ms: orNullIf(s.Seen.Latency.Count() > 0, millis(s.Seen.Latency.P99())),
		}
		shown.Seen.Set(seen)
	}
	return shown
}
