package adminapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
	// maxExported caps each list of an export.
	maxExported = 10_000
	// longestKept is longer than violations can be kept.
	longestKept = 401 * 24 * time.Hour
)

// ExportUserData handles GET …/users/{user_id}/data.
func (s *surface) ExportUserData(ctx context.Context,
	request openapi.ExportUserDataRequestObject,
) (openapi.ExportUserDataResponseObject, error) {
	userID, tenant, now := request.UserId, requestOf(ctx).tenant.ID, s.Now()
	if err := wrongUser(userID); err != nil {
		return nil, err
	}
	assignment, err := s.assignment(ctx, userID)
	if err != nil {
		return nil, err
	}
	overrides, err := s.Stores.OverridesOfUser(ctx, tenant, userID, 0, maxExported+1)
	if err != nil {
		return nil, err
	}
	counts, err := s.Stores.CountsOfUser(ctx, tenant, userID)
	if err != nil {
		return nil, err
	}
	entries, err := s.Stores.AuditOfUser(ctx, tenant, userID, maxExported+1)
	if err != nil {
		return nil, err
	}
	crossings, err := s.Violations.Crossings(ctx, tenant, violations.CrossingFilter{UserID: userID},
		violations.CrossingPlace{}, maxExported+1)
	if err != nil {
		return nil, err
	}
	last := monthOf(now)
	usage, err := s.Stores.MonthsOfUser(ctx, tenant, userID, monthsUntil(last.AddDate(0, 1-maxMonths, 0), last))
	if err != nil {
		return nil, err
	}
	answer := openapi.UserData{
		UserId: userID, ExportedAt: now.UTC(), Plan: orNull(assignment.Plan),
		Complete:   max(len(overrides), len(counts), len(entries), len(crossings)) <= maxExported,
		Overrides:  itemsOf(overrides[:min(len(overrides), maxExported)], s.showOverride),
		Violations: []openapi.Violation{},
		Crossings:  itemsOf(crossings[:min(len(crossings), maxExported)], showCrossing),
		Counts: itemsOf(counts[:min(len(counts), maxExported)], func(c *rules.SubjectCount) openapi.SubjectCount {
			return openapi.SubjectCount{
				RuleId: int64(c.Rule), Subject: c.Subject, FirstAt: c.First, LastAt: c.Last,
				Denied: c.Denied,
			}
		}),
		Usage: itemsOf(usage, showUserMonth),
		Audit: []openapi.AuditEntry{},
	}
	filter := violations.Filter{Since: now.Add(-longestKept), Until: now.Add(time.Hour), UserID: userID}
	for violation, err := range s.Violations.AllViolations(ctx, tenant, &filter) {
		if err != nil {
			return nil, err
		}
		if len(answer.Violations) == maxExported {
			answer.Complete = false
			break
		}
		answer.Violations = append(answer.Violations, showViolation(&violation))
	}
	for i := range entries[:min(len(entries), maxExported)] {
		shown, err := showEntry(&entries[i])
		if err != nil {
			return nil, err
		}
		answer.Audit = append(answer.Audit, shown)
	}
	return openapi.ExportUserData200JSONResponse(answer), nil
}

// EraseUser handles POST …/users/{user_id}/erase.
func (s *surface) EraseUser(ctx context.Context,
	request openapi.EraseUserRequestObject,
) (openapi.EraseUserResponseObject, error) {
	userID, tenant := request.UserId, requestOf(ctx).tenant
	if err := wrongUser(userID); err != nil {
		return nil, err
	}
	if request.Body.Confirm != userID {
		return nil, httpapi.BodyProblem([]httpapi.FieldError{{Pointer: "/confirm", Detail: "must be the user's id"}})
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
		Headers: openapi.EraseUser202ResponseHeaders{
			Location: &address,
		},
		Body: showErasure(&erasure),
	}, nil
}

// GetErasure handles GET …/erasures/{receipt_id}.
func (s *surface) GetErasure(ctx context.Context,
	request openapi.GetErasureRequestObject,
) (openapi.GetErasureResponseObject, error) {
	erasure, err := s.Stores.Erasure(ctx, requestOf(ctx).tenant.ID, request.ReceiptId)
	if err != nil {
		return nil, err
	}
	return openapi.GetErasure200JSONResponse(showErasure(&erasure)), nil
}

func showErasure(e *rules.Erasure) openapi.Erasure {
	return openapi.Erasure{
		ReceiptId: e.ID, RequestedAt: e.RequestedAt, FinishedAt: orNull(e.FinishedAt),
		Steps: itemsOf(e.Steps, func(step *rules.ErasureStep) openapi.ErasureStep {
			return openapi.ErasureStep{
				Name: openapi.ErasureStepName(step.Name), Rows: step.Rows, FinishedAt: orNull(step.FinishedAt),
			}
		}),
		Rules: itemsOf(e.Rules, func(id *rules.RuleID) int64 { return int64(*id) }),
	}
}
