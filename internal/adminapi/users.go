package adminapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
)

const maxOverrides = 500

func (s *surface) ListUsers(ctx context.Context,
	request openapi.ListUsersRequestObject,
) (openapi.ListUsersResponseObject, error) {
	p := request.Params
	found, cursor, err := list(ctx, p.Limit, func(after string, limit int) ([]rules.Assignment, error) {
		return s.Stores.Assignments(ctx, requestOf(ctx).tenant.ID, valueOf(p.Plan), valueOf(p.Prefix), after, limit)
	}, func(a *rules.Assignment) string { return a.UserID })
	return openapi.ListUsers200JSONResponse{
		Items: itemsOf(found, func(a *rules.Assignment) openapi.Assignment {
			return openapi.Assignment{UserId: a.UserID, Plan: a.Plan, Version: a.Revision}
		}),
		NextCursor: cursor,
	}, err
}

const defaultKnown = 10

func (s *surface) FindUsers(ctx context.Context,
	request openapi.FindUsersRequestObject,
) (openapi.FindUsersResponseObject, error) {
	p := request.Params
	found, err := s.Stores.KnownUsers(ctx, requestOf(ctx).tenant.ID, p.Prefix, monthOf(s.Now()),
		or(p.Limit, defaultKnown))
	if err != nil {
		return nil, err
	}
	return openapi.FindUsers200JSONResponse{Items: itemsOf(found, func(u *traffic.KnownUser) openapi.KnownUser {
		return openapi.KnownUser{UserId: u.ID, Plan: orNull(u.Plan)}
	})}, nil
}

func (s *surface) GetUser(ctx context.Context, request openapi.GetUserRequestObject) (openapi.GetUserResponseObject,
	error,
) {
	answer, err := s.lookUp(ctx, request.UserId)
	return openapi.GetUser200JSONResponse{TheUserJSONResponse: answer}, err
}

// lookUp shows a user. Every id that a check may carry is a user.
func (s *surface) lookUp(ctx context.Context, userID string) (answer openapi.TheUserJSONResponse, err error) {
	if err := wrongUser(userID); err != nil {
		return answer, err
	}
	tenant := requestOf(ctx).tenant
	assignment, err := s.assignment(ctx, userID)
	if err != nil {
		return answer, err
	}
	overrides, err := s.Stores.OverridesOfUser(ctx, tenant.ID, userID, 0, maxOverrides+1)
	if err != nil {
		return answer, err
	}
	hasMore := len(overrides) > maxOverrides
	overrides = overrides[:min(len(overrides), maxOverrides)]
	recent, err := s.recentViolations(ctx, userID, maxRecent)
	if err != nil {
		return answer, err
	}
	isKnown := assignment.Plan != "" || len(overrides) > 0 || len(recent) > 0
	if !isKnown {
		this := monthOf(s.Now())
		counted, err := s.Stores.MonthsOfUser(ctx, tenant.ID, userID,
			monthsUntil(this.AddDate(0, 1-defaultMonths, 0), this))
		if err != nil {
			return answer, err
		}
		isKnown = len(counted) > 0
	}
	user := openapi.User{
		UserId: userID, Known: isKnown, Plan: orNull(assignment.Plan), PlanSource: orNull(openapi.UserPlanSource("")),
		SentPlan:  orNull(""),
		Overrides: itemsOf(overrides, s.showOverride), HasMoreOverrides: hasMore,
		RecentViolations: itemsOf(recent, showViolation), Version: assignment.Revision,
	}
	switch {
	case assignment.Plan != "":
		user.PlanSource.Set("user")
	case tenant.DefaultPlan != "":
		user.Plan.Set(tenant.DefaultPlan)
		user.PlanSource.Set("tenant")
	}
	if len(recent) > 0 && recent[0].Plan != "" && recent[0].Plan != cmp.Or(assignment.Plan, tenant.DefaultPlan) {
		isSent, err := s.Stores.IsSentPlan(ctx, tenant.ID, userID, recent[0].Plan, recent[0].ID.At)
		if err != nil {
			return answer, err
		}
		if isSent {
			user.SentPlan.Set(recent[0].Plan)
		}
	}
	return openapi.TheUserJSONResponse{
		Body: user, Headers: openapi.TheUserResponseHeaders{ETag: etag(assignment.Revision)},
	}, nil
}

func wrongUser(userID string) error {
	assignment := rules.Assignment{UserID: userID}
	return fieldsProblem("/path", assignment.Validate(map[string]bool{"": true}))
}

func (s *surface) assignment(ctx context.Context, userID string) (rules.Assignment, error) {
	tenant := requestOf(ctx).tenant.ID
	assignment, err := s.Stores.Assignment(ctx, tenant, userID)
	if errors.Is(err, rules.ErrNotFound) {
		return rules.Assignment{TenantID: tenant, UserID: userID}, nil
	}
	return assignment, err
}

func (s *surface) AssignPlan(ctx context.Context,
	request openapi.AssignPlanRequestObject,
) (openapi.AssignPlanResponseObject, error) {
	if err := wrongUser(request.UserId); err != nil {
		return nil, err
	}
	assignment := rules.Assignment{
		TenantID: requestOf(ctx).tenant.ID, UserID: request.UserId, Plan: orZero(request.Body.Plan),
	}
	if assignment.Plan != "" {
		if err := s.mustBePlan(ctx, "plan", assignment.Plan); err != nil {
			return nil, err
		}
	}
	if _, err := s.store(ctx).Assign(ctx, assignment, requestOf(ctx).ifMatch); err != nil {
		return nil, lost(ctx, err, func() (int64, error) {
			present, err := s.assignment(ctx, request.UserId)
			return present.Revision, err
		})
	}
	answer, err := s.lookUp(ctx, request.UserId)
	if err != nil {
		return nil, fmt.Errorf("show the user whose plan was changed: %w", err)
	}
	return openapi.AssignPlan200JSONResponse{TheUserJSONResponse: answer}, nil
}
