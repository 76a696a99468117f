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
	removed, cursor, err := list(ctx, request.Params.Limit,
		func(after string, limit int) ([]rules.RemovedTenant, error) {
			return s.Stores.RemovedTenants(ctx, after, limit)
		}, func(t *rules.RemovedTenant) string { return t.Slug })
	return openapi.ListRemovedTenants200JSONResponse{
		Items: itemsOf(removed, func(t *rules.RemovedTenant) openapi.RemovedTenant {
			return openapi.RemovedTenant{
				Slug: t.Slug, Name: t.Name, RemovedAt: t.RemovedAt, EraseAfter: t.RemovedAt.Add(s.TenantGrace),
				Restorable: t.BeganAt.IsZero(), ErasedAt: timeOrNull(t.ErasedAt), ErasedRows: t.Rows,
			}
		}),
		NextCursor: cursor,
	}, err
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
