package adminapi

import (
	"context"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func (s *surface) GetQuotas(ctx context.Context, _ openapi.GetQuotasRequestObject) (openapi.GetQuotasResponseObject,
	error,
) {
	quotas, err := s.Stores.Quotas(ctx, requestOf(ctx).tenant.ID)
	if err != nil {
		return nil, err
	}
	return openapi.GetQuotas200JSONResponse{TheQuotasJSONResponse: answerQuotas(&quotas)}, nil
}

func (s *surface) PutQuotas(ctx context.Context,
	request openapi.PutQuotasRequestObject,
) (openapi.PutQuotasResponseObject, error) {
	at, err := expected(request.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	exceptions := rules.Exceptions{}
	for thing, given := range map[rules.Thing]*openapi.QuotaLimit{
		rules.ThingPlans: request.Body.Plans, rules.ThingRules: request.Body.Rules,
		rules.ThingOverrides: request.Body.Overrides,
		rules.ThingUsers:     request.Body.Users, rules.ThingKeys: request.Body.ApiKeys,
		rules.ThingAlerts:  request.Body.Alerts,
		rules.ThingMembers: request.Body.Members,
	} {
		if given != nil {
			exceptions[thing] = *given
		}
	}
	if wrong := exceptions.Validate(); len(wrong) > 0 {
		return nil, wrong
	}
	q := requestOf(ctx)
	quotas, err := s.Stores.PutQuotas(ctx, q.actor, q.tenant.ID, exceptions, at)
	if err != nil {
		return nil, lost(ctx, err, func() (int64, error) {
			quotas, err := s.Stores.Quotas(ctx, q.tenant.ID)
			return quotas.Version, err
		})
	}
	return openapi.PutQuotas200JSONResponse{TheQuotasJSONResponse: answerQuotas(&quotas)}, nil
}

func answerQuotas(quotas *rules.Quotas) openapi.TheQuotasJSONResponse {
	return openapi.TheQuotasJSONResponse{
		Headers: openapi.TheQuotasResponseHeaders{ETag: etag(quotas.Version)},
		Body: openapi.Quotas{Version: quotas.Version, Items: itemsOf(quotas.Of, func(q *rules.Quota) openapi.Quota {
			return openapi.Quota{
				Thing: openapi.QuotaThing(q.Thing), Held: q.Held, Allowed: q.Allowed, Default: q.Default,
				IsDefault: q.IsDefault,
			}
		})},
	}
}

func (s *surface) requireRoom(ctx context.Context, added map[rules.Thing]int64) error {
	quotas, err := s.Stores.Quotas(ctx, requestOf(ctx).tenant.ID)
	if err != nil {
		return err
	}
	for i := range quotas.Of {
		if err := quotas.Of[i].Room(added[quotas.Of[i].Thing]); err != nil {
			return err
		}
	}
	return nil
}
