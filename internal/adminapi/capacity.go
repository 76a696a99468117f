package adminapi

import (
	"context"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func (s *surface) GetCapacity(ctx context.Context,
	_ openapi.GetCapacityRequestObject,
) (openapi.GetCapacityResponseObject, error) {
	capacity, err := s.Stores.Capacity(ctx, requestOf(ctx).tenant.ID)
	return openapi.GetCapacity200JSONResponse{TheCapacityJSONResponse: answerCapacity(&capacity)}, err
}

func (s *surface) PutCapacity(ctx context.Context,
	request openapi.PutCapacityRequestObject,
) (openapi.PutCapacityResponseObject, error) {
	exceptions := rules.Exceptions{}
	for thing, given := range map[rules.Thing]*openapi.CapacityLimit{
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
	capacity, err := s.Stores.PutCapacity(ctx, q.actor, q.tenant.ID, exceptions, q.ifMatch)
	return openapi.PutCapacity200JSONResponse{TheCapacityJSONResponse: answerCapacity(&capacity)},
		lost(ctx, err, func() (int64, error) {
			capacity, err := s.Stores.Capacity(ctx, q.tenant.ID)
			return capacity.Version, err
		})
}

func answerCapacity(capacity *rules.Capacity) openapi.TheCapacityJSONResponse {
	items := itemsOf(capacity.Of, func(c *rules.ThingCapacity) openapi.ThingCapacity {
		return openapi.ThingCapacity{
			Thing: openapi.CapacityThing(c.Thing), Held: c.Held, Allowed: c.Allowed, Default: c.Default,
			IsDefault: c.IsDefault,
		}
	})
	return openapi.TheCapacityJSONResponse{
		Headers: openapi.TheCapacityResponseHeaders{ETag: etag(capacity.Version)},
		Body:    openapi.Capacity{Version: capacity.Version, Items: items},
	}
}

func (s *surface) requireRoom(ctx context.Context, added map[rules.Thing]int64) error {
	capacity, err := s.Stores.Capacity(ctx, requestOf(ctx).tenant.ID)
	if err != nil {
		return err
	}
	for i := range capacity.Of {
		if err := capacity.Of[i].Room(added[capacity.Of[i].Thing]); err != nil {
			return err
		}
	}
	return nil
}
