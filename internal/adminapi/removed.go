package adminapi

import (
	"context"
	"errors"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func (s *surface) ListRemovedTenants(ctx context.Context,
	request openapi.ListRemovedTenantsRequestObject,
) (openapi.ListRemovedTenantsResponseObject, error) {
	place, err := after(ctx, 1)
	if err != nil {
		return nil, err
	}
	limit := limitOf(request.Params.Limit)
	removed, err := s.Stores.RemovedTenants(ctx, place[0], limit+1)
	if err != nil {
		return nil, err
	}
	items, cursor := page(ctx, removed, limit, func(t *rules.RemovedTenant) openapi.RemovedTenant {
		return openapi.RemovedTenant{
			Slug: t.Slug, Name: t.Name, RemovedAt: t.RemovedAt, EraseAfter: t.RemovedAt.Add(s.TenantGrace),
			Restorable: t.BeganAt.IsZero(), ErasedAt: timeOrNull(t.ErasedAt), ErasedRows: t.Rows,
		}
	}, func(t *rules.RemovedTenant) string { return t.Slug })
	return openapi.ListRemovedTenants200JSONResponse{Items: items, NextCursor: cursor}, nil
}

func (s *surface) RestoreTenant(ctx context.Context,
	request openapi.RestoreTenantRequestObject,
) (openapi.RestoreTenantResponseObject, error) {
	tenant, err := s.store(ctx).RestoreTenant(ctx, request.Slug)
	if errors.Is(err, rules.ErrFinal) {
		return nil, httpapi.Conflict.Problem("Its data is being erased or is gone, so it cannot be restored.")
	}
	if err != nil {
		return nil, err
	}
	requestOf(ctx).role = auth.Owner // as of a platform admin in every tenant
	return openapi.RestoreTenant200JSONResponse{TheTenantJSONResponse: answerTenant(ctx, &tenant)}, nil
}
