package adminapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// moment is an hour in which a rule denied a user, or an entry of the audit log.
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
	place, err := after(ctx, 2)
	if err != nil {
		return nil, err
	}
	since, until, err := s.span(request.Params.From, request.Params.Until)
	if err != nil {
		return nil, err
	}
	shown := int64(0) // how many moments at the end of the time were on pages before
	if place[0] != "" {
		last, timeErr := time.Parse(time.RFC3339Nano, place[0])
		number, numberErr := parseInt(place[1])
		if errors.Join(timeErr, numberErr) != nil || number < 0 || number > maxAtOnce {
			return nil, errCursor
		}
		until, shown = last.Add(time.Microsecond), number
	}
	limit := limitOf(request.Params.Limit)
	moments, err := s.userStory(ctx, request.UserId, since.Truncate(time.Hour), until, limit+int(shown)+1)
	if err != nil {
		return nil, err
	}
	moments = moments[min(int(shown), len(moments)):]
	answer := openapi.GetUserStory200JSONResponse{NextCursor: next(ctx)}
	if len(moments) > limit {
		moments = moments[:limit]
		last := moments[limit-1].at
		same := int64(0)
		for i := range moments {
			if moments[i].at.Equal(last) {
				same++
			}
		}
		if place[0] != "" && last.Add(time.Microsecond).Equal(until) {
			same += shown
		}
		answer.NextCursor = next(ctx, last.Format(time.RFC3339Nano), formatInt(same))
	}
	answer.Items, err = s.showMoments(ctx, moments)
	return answer, err
}

// userStory returns the latest moments of a time, at most limit.
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
	found, err := s.Stores.RulesEver(ctx, requestOf(ctx).tenant.ID, ids)
	if err != nil {
		return nil, fmt.Errorf("name the rules of a story: %w", err)
	}
	slices.SortFunc(found, func(a, b rules.Rule) int { return cmp.Compare(a.ID, b.ID) })
	shown := make([]openapi.UserMoment, len(moments))
	for i := range moments {
		shown[i] = openapi.UserMoment{
			At: moments[i].at, Denials: nullable.NewNullNullable[openapi.UserDenials](),
			Entry: nullable.NewNullNullable[openapi.AuditEntry](),
		}
		if d := moments[i].denial; d != nil {
			denials := openapi.UserDenials{
				RuleId: openapi.ID(d.Rule), Rule: nullable.NewNullNullable[openapi.RuleName](),
				Mode:   openapi.Mode(d.Mode),
				Denied: d.Denied, Exact: d.Exact,
			}
			at, isFound := slices.BinarySearchFunc(found, d.Rule,
				func(r rules.Rule, id rules.RuleID) int { return cmp.Compare(r.ID, id) })
			if isFound {
				denials.Rule.Set(nameRule(&found[at]))
			}
			shown[i].Denials.Set(denials)
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
