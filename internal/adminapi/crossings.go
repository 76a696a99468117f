package adminapi

import (
	"context"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func (s *surface) ListCrossings(ctx context.Context,
	request openapi.ListCrossingsRequestObject,
) (openapi.ListCrossingsResponseObject, error) {
	p := request.Params
	filter := violations.CrossingFilter{Rule: rules.RuleID(valueOf(p.RuleId)), UserID: valueOf(p.UserId)}
	found, cursor, err := list(ctx, p.Limit,
		func(before violations.CrossingPlace, limit int) ([]violations.Crossing, error) {
			return s.Violations.Crossings(ctx, requestOf(ctx).tenant.ID, filter, before, limit)
		}, (*violations.Crossing).Place)
	return openapi.ListCrossings200JSONResponse{Items: itemsOf(found, showCrossing), NextCursor: cursor}, err
}

func showCrossing(c *violations.Crossing) openapi.Crossing {
	return openapi.Crossing{
		CrossingId: openapi.ID(c.Number), RuleId: openapi.ID(c.Rule), KeyPattern: c.Pattern, Name: c.RuleName,
		Mode:    openapi.Mode(c.Mode),
		Subject: c.Subject, UserId: orNull(c.UserID), Share: c.Share, Used: c.Used.Float(), BurstCapacity: c.Burst,
		WindowStartsAt: c.WindowStart, WindowEndsAt: c.WindowEnd, CrossedAt: c.At, Meter: c.Meter.Word(),
	}
}
