package adminapi

import (
	"context"
	"errors"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func (s *surface) showOverride(o *rules.Override) openapi.Override { return overrideAt(o, s.Now()) }

func overrideAt(o *rules.Override, now time.Time) openapi.Override {
	return openapi.Override{
		RuleId: openapi.ID(o.RuleID), UserId: o.UserID, RatePerSecond: o.RatePerSecond,
		RateUnit: openapi.RateUnit(o.RateUnit), Rate: rateOrNull(o.RatePerSecond, o.RateUnit),
		BurstCapacity: o.Burst, Reason: o.Reason, ExpiresAt: timeOrNull(o.ExpiresAt),
		Expired:      !o.ExpiresAt.IsZero() && !o.ExpiresAt.After(now),
		InForceSince: o.InForceSince.UTC(), Version: o.Revision,
	}
}

func (s *surface) ListOverrides(ctx context.Context,
	request openapi.ListOverridesRequestObject,
) (openapi.ListOverridesResponseObject, error) {
	tenant, id := requestOf(ctx).tenant.ID, rules.RuleID(request.RuleId)
	if _, err := s.Stores.Rule(ctx, tenant, id); err != nil {
		return nil, err
	}
	overrides, cursor, err := list(ctx, request.Params.Limit, func(after string, limit int) ([]rules.Override, error) {
		return s.Stores.Overrides(ctx, tenant, id, after, limit)
	}, func(o *rules.Override) string { return o.UserID })
	return openapi.ListOverrides200JSONResponse{Items: itemsOf(overrides, s.showOverride), NextCursor: cursor}, err
}

func (s *surface) ListTenantOverrides(ctx context.Context,
	request openapi.ListTenantOverridesRequestObject,
) (openapi.ListTenantOverridesResponseObject, error) {
	place, err := after[rules.OverridePlace](ctx)
	if err != nil {
		return nil, err
	}
	p := request.Params
	filter := rules.OverrideFilter{
		Rule: rules.RuleID(valueOf(p.RuleId)), User: valueOf(p.UserId), UserPrefix: valueOf(p.Prefix),
		EndsAfter: valueOf(p.EndsAfter), EndsBefore: valueOf(p.EndsBefore),
		ByEnd: valueOf(p.Sort) == openapi.ListTenantOverridesParamsSortEnd,
	}
	// An override that ends now has expired; ends are in whole microseconds.
	now := s.Now().Truncate(time.Microsecond).Add(time.Microsecond)
	switch {
	case p.Expired == nil:
	case *p.Expired && (filter.EndsBefore.IsZero() || filter.EndsBefore.After(now)):
		filter.EndsBefore = now
	case *p.Expired:
	case !filter.ByEnd:
		filter.NotEndedBefore = now
	case filter.EndsAfter.Before(now): // a list by end has those with an end, which an index finds
		filter.EndsAfter = now
	}
	found, err := s.Stores.FindOverrides(ctx, requestOf(ctx).tenant.ID, filter, place, limitOf(p.Limit))
	return openapi.ListTenantOverrides200JSONResponse{
		Items: itemsOf(found.Overrides, s.showOverride), NextCursor: next(ctx, found.Next),
	}, err
}

func (s *surface) GetOverride(ctx context.Context,
	request openapi.GetOverrideRequestObject,
) (openapi.GetOverrideResponseObject, error) {
	override, err := s.Stores.Override(ctx, requestOf(ctx).tenant.ID, rules.RuleID(request.RuleId), request.UserId)
	return openapi.GetOverride200JSONResponse{TheOverrideJSONResponse: s.answerOverride(&override)}, err
}

func (s *surface) answerOverride(o *rules.Override) openapi.TheOverrideJSONResponse {
	return openapi.TheOverrideJSONResponse{
		Body: s.showOverride(o), Headers: openapi.TheOverrideResponseHeaders{ETag: etag(o.Revision)},
	}
}

func (s *surface) PutOverride(ctx context.Context,
	request openapi.PutOverrideRequestObject,
) (openapi.PutOverrideResponseObject, error) {
	at, err := expectedOrNone(request.Params.IfMatch, request.Params.IfNoneMatch != nil)
	if err != nil {
		return nil, err
	}
	if err := wrongUser(request.UserId); err != nil {
		return nil, err
	}
	tenant, id := requestOf(ctx).tenant.ID, rules.RuleID(request.RuleId)
	rule, err := s.Stores.Rule(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	override := rules.Override{
		TenantID: tenant, RuleID: id, UserID: request.UserId,
		RatePerSecond: valueOf(request.Body.RatePerSecond),
		RateUnit:      rules.RateUnit(or(request.Body.RateUnit, openapi.Second)),
		Burst:         request.Body.BurstCapacity, Reason: request.Body.Reason,
		ExpiresAt: orZero(request.Body.ExpiresAt),
	}
	if rate := request.Body.Rate; rate != nil {
		if override.RatePerSecond, override.RateUnit, err = rules.ParseRate(*rate); err != nil {
			return nil, rules.FieldErrors{{Field: "rate", Message: err.Error()}}
		}
		if request.Body.RatePerSecond != nil || request.Body.RateUnit != nil {
			return nil, rules.FieldErrors{{
				Field: "rate", Message: "must be left out beside rate_per_second and rate_unit",
			}}
		}
	}
	wrong := override.Validate(&rule, s.Now())
	if isZeroTime(request.Body.ExpiresAt) {
		wrong = append(wrong, wrongZeroTime)
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	override, err = s.store(ctx).PutOverride(ctx, override, at)
	if err != nil {
		return nil, s.lostOverride(ctx, err, id, request.UserId)
	}
	if at == rules.NoneStored {
		return openapi.PutOverride201JSONResponse{OverrideCreatedJSONResponse: openapi.OverrideCreatedJSONResponse{
			Body:    s.showOverride(&override),
			Headers: openapi.OverrideCreatedResponseHeaders{ETag: etag(override.Revision)},
		}}, nil
	}
	return openapi.PutOverride200JSONResponse{TheOverrideJSONResponse: s.answerOverride(&override)}, nil
}

func expectedOrNone(ifMatch *string, mustCreate bool) (rules.Expected, error) {
	switch {
	case ifMatch != nil && mustCreate:
		return 0, httpapi.InvalidRequest.Problem(
			"Send either If-Match to replace or If-None-Match: * to create, not both.")
	case mustCreate:
		return rules.NoneStored, nil
	case ifMatch == nil:
		return 0, httpapi.Unconditional.Problem(
			"Send If-None-Match: * to create it, or its ETag as If-Match to replace it.")
	}
	at, err := expected(*ifMatch)
	switch {
	case err != nil:
		return 0, err
	case at == rules.AnyVersion:
		return rules.AnyStored, nil
	case at == rules.NoneStored: // no override has this version
		return 0, httpapi.Changed.Problem(readAgain)
	}
	return at, nil
}

// Replacing an override that does not exist is a lost race too.
func (s *surface) lostOverride(ctx context.Context, err error, rule rules.RuleID, userID string) error {
	err = lost(ctx, err, s.overrideVersion(ctx, rule, userID))
	if errors.Is(err, rules.ErrNotFound) || errors.Is(err, rules.ErrExists) {
		return httpapi.Changed.Problem(readAgain)
	}
	return err
}

func (s *surface) overrideVersion(ctx context.Context, rule rules.RuleID, userID string) func() (int64, error) {
	return func() (int64, error) {
		override, err := s.Stores.Override(ctx, requestOf(ctx).tenant.ID, rule, userID)
		return override.Revision, err
	}
}

func (s *surface) DeleteOverride(ctx context.Context,
	request openapi.DeleteOverrideRequestObject,
) (openapi.DeleteOverrideResponseObject, error) {
	q, id := requestOf(ctx), rules.RuleID(request.RuleId)
	err := s.store(ctx).RemoveOverride(ctx, q.tenant.ID, id, request.UserId, q.ifMatch)
	return openapi.DeleteOverride204Response{}, lost(ctx, err, s.overrideVersion(ctx, id, request.UserId))
}
