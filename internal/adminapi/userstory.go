package adminapi

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// maxAtOnce caps the moments of one time that pages may have shown, because each page reads them again.
const maxAtOnce = 10_000

type storyPlace struct {
	At    time.Time
	Shown int
}

type moment struct {
	at     time.Time
	denial *violations.UserDenials
	entry  *auth.AuditEntry
}

func (s *surface) GetUserStory(ctx context.Context,
	request openapi.GetUserStoryRequestObject,
) (openapi.GetUserStoryResponseObject, error) {
	if err := wrongUser(request.UserId); err != nil {
		return nil, err
	}
	place, err := after[storyPlace](ctx)
	if err != nil {
		return nil, err
	}
	since, until, err := s.span(request.Params.From, request.Params.Until)
	if err != nil {
		return nil, err
	}
	if place.Shown < 0 || place.Shown > maxAtOnce {
		return nil, errCursor
	}
	isFirst := place.At.IsZero()
	if !isFirst {
		until = place.At.Add(time.Microsecond)
	}
	limit := limitOf(request.Params.Limit)
	moments, err := s.userStory(ctx, request.UserId, since.Truncate(time.Hour), until, limit+place.Shown+1)
	if err != nil {
		return nil, err
	}
	moments = moments[min(place.Shown, len(moments)):]
	var end storyPlace
	if len(moments) > limit {
		moments = moments[:limit]
		end.At = moments[limit-1].at
		for i := range moments {
			if moments[i].at.Equal(end.At) {
				end.Shown++
			}
		}
		if !isFirst && end.At.Equal(place.At) {
			end.Shown += place.Shown
		}
	}
	answer := openapi.GetUserStory200JSONResponse{NextCursor: next(ctx, end)}
	answer.Items, err = s.showMoments(ctx, moments)
	return answer, err
}

func (s *surface) userStory(ctx context.Context, userID string, since, until time.Time, limit int) ([]moment, error) {
	tenant := requestOf(ctx).tenant.ID
	// An hour is in the time if it began in it.
	denials, err := s.Violations.DenialsOfUser(ctx, tenant, userID, since,
		until.Add(-time.Nanosecond).Truncate(time.Hour).Add(time.Hour), limit)
	if err != nil {
		return nil, err
	}
	entries, err := s.Stores.UserStory(ctx, tenant, userID, since, auth.LogCursor{At: until, ID: math.MinInt64},
		limit)
	if err != nil {
		return nil, err
	}
	moments := make([]moment, 0, len(denials)+len(entries))
	for i := range denials {
		moments = append(moments, moment{at: denials[i].Hour, denial: &denials[i]})
	}
	for i := range entries {
		moments = append(moments, moment{at: entries[i].At, entry: &entries[i]})
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return b.at.Compare(a.at) })
	return moments[:min(len(moments), limit)], nil
}

func (s *surface) showMoments(ctx context.Context, moments []moment) ([]openapi.UserMoment, error) {
	var ids []rules.RuleID
	for i := range moments {
		if d := moments[i].denial; d != nil && !slices.Contains(ids, d.Rule) {
			ids = append(ids, d.Rule)
		}
	}
	named, err := rulesEver(ctx, s.Stores, requestOf(ctx).tenant.ID, ids)
	if err != nil {
		return nil, err
	}
	shown := make([]openapi.UserMoment, len(moments))
	for i := range moments {
		shown[i] = openapi.UserMoment{
			At: moments[i].at, Denials: nullable.NewNullNullable[openapi.UserDenials](),
			Entry: nullable.NewNullNullable[openapi.AuditEntry](),
		}
		if d := moments[i].denial; d != nil {
			shown[i].Denials.Set(openapi.UserDenials{
				RuleId: openapi.ID(d.Rule), Rule: nameOrNull(named[d.Rule]), Mode: openapi.Mode(d.Mode),
				Denied: d.Denied, Exact: d.Exact,
			})
			continue
		}
		entry, err := showEntry(moments[i].entry)
		if err != nil {
			return nil, err
		}
		shown[i].Entry.Set(entry)
	}
	return shown, nil
}
