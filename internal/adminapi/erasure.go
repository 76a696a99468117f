package adminapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func (s *surface) EraseUser(ctx context.Context,
	request openapi.EraseUserRequestObject,
) (openapi.EraseUserResponseObject, error) {
	userID, tenant := request.UserId, requestOf(ctx).tenant
	if err := wrongUser(userID); err != nil {
		return nil, err
	}
	if request.Body.Confirm != userID {
		return nil, wrongBody("/confirm", "must be the user's id")
	}
	erasure, err := s.store(ctx).EraseUser(ctx, tenant.ID, userID)
	switch {
	case errors.Is(err, rules.ErrTooManyErasures):
		return nil, httpapi.Conflict.Problem(fmt.Sprintf("%d users are being erased. Wait until some have finished.",
			rules.MaxOpenErasures))
	case err != nil:
		return nil, err
	}
	address := "/api/v1/tenants/" + tenant.Slug + "/erasures/" + erasure.ID
	return openapi.EraseUser202JSONResponse{
		Body: showErasure(&erasure), Headers: openapi.EraseUser202ResponseHeaders{Location: &address},
	}, nil
}

func (s *surface) GetErasure(ctx context.Context,
	request openapi.GetErasureRequestObject,
) (openapi.GetErasureResponseObject, error) {
	erasure, err := s.Stores.Erasure(ctx, requestOf(ctx).tenant.ID, request.ReceiptId)
	return openapi.GetErasure200JSONResponse(showErasure(&erasure)), err
}

func showErasure(e *rules.Erasure) openapi.Erasure {
	return openapi.Erasure{
		ReceiptId: e.ID, RequestedAt: e.RequestedAt, FinishedAt: orNull(e.FinishedAt),
		Error: e.Error, NextTryAt: orNull(e.NextTryAt),
		Steps: itemsOf(e.Steps, func(step *rules.ErasureStep) openapi.ErasureStep {
			return openapi.ErasureStep{
				Name: openapi.ErasureStepName(step.Name), Rows: step.Rows, FinishedAt: orNull(step.FinishedAt),
			}
		}),
		Rules: itemsOf(e.Rules, func(id *rules.RuleID) int64 { return int64(*id) }),
	}
}
