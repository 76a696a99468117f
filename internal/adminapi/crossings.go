package adminapi

import (
	"context"
	"strconv"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func (s *surface) ListCrossings(ctx context.Context,
	request openapi.ListCrossingsRequestObject,
) (openapi.ListCrossingsResponseObject, error) {
	place, err := after(ctx, 2)
	if err != nil {
		return nil, err
	}
	before, err := parseCrossingPlace(place[0], place[1])
	if err != nil {
		return nil, errCursor
	}
	p := request.Params
	filter := violations.CrossingFilter{Rule: rules.RuleID(valueOf(p.RuleId)), UserID: valueOf(p.UserId)}
	limit := limitOf(p.Limit)
	found, err := s.Violations.Crossings(ctx, requestOf(ctx).tenant.ID, filter, before, limit+1)
	if err != nil {
		return nil, err
	}
	answer := openapi.ListCrossings200JSONResponse{NextCursor: next(ctx)}
	if len(found) > limit {
		found = found[:limit]
		last := found[limit-1].Place()
		answer.NextCursor = next(ctx, last.At.Format(time.RFC3339Nano), strconv.FormatInt(last.Number, 10))
	}
	answer.Items = itemsOf(found, showCrossing)
	return answer, nil
}

// parseCrossingPlace reads a place of a cursor; empty texts are the zero place.
func parseCrossingPlace(at, number string) (place violations.CrossingPlace, err error) {
	if at == "" {
		return place, nil
	}
	if place.At, err = time.Parse(time.RFC3339Nano, at); err != nil {
		return place, err
	}
	place.Number, err = strconv.ParseInt(number, 10, 64)
	return place, err
}

func showCrossing(c *violations.Crossing) openapi.Crossing {
	return openapi.Crossing{
		CrossingId: openapi.ID(c.Number), RuleId: openapi.ID(c.Rule), KeyPattern: c.Pattern, Name: c.RuleName,
		Mode:    openapi.Mode(c.Mode),
		Subject: c.Subject, UserId: orNull(c.UserID), Share: c.Share, Used: c.Used.Float(), BurstCapacity: c.Burst,
		WindowStartsAt: c.WindowStart, WindowEndsAt: c.WindowEnd, CrossedAt: c.At, Meter: c.Meter.Word(),
	}
}
