package adminapi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func showPlan(p *rules.PlanUse) openapi.Plan {
	return openapi.Plan{
		Name: p.Name, Description: p.Description, Rules: p.Rules, Users: p.Users, IsDefault: p.IsDefault,
		Position: p.Position, Version: p.Revision,
	}
}

func answerPlan(p *rules.PlanUse) openapi.ThePlanJSONResponse {
	return openapi.ThePlanJSONResponse{
		Body: showPlan(p), Headers: openapi.ThePlanResponseHeaders{ETag: etag(p.Revision)},
	}
}

func (s *surface) ListPlans(ctx context.Context,
	request openapi.ListPlansRequestObject,
) (openapi.ListPlansResponseObject, error) {
	plans, cursor, err := list(ctx, request.Params.Limit, func(after string, limit int) ([]rules.PlanUse, error) {
		return s.Stores.Plans(ctx, requestOf(ctx).tenant.ID, after, limit)
	}, func(p *rules.PlanUse) string { return p.Name })
	return openapi.ListPlans200JSONResponse{Items: itemsOf(plans, showPlan), NextCursor: cursor}, err
}

func (s *surface) CreatePlan(ctx context.Context,
	request openapi.CreatePlanRequestObject,
) (openapi.CreatePlanResponseObject, error) {
	tenant := requestOf(ctx).tenant
	plan := rules.Plan{TenantID: tenant.ID, Name: request.Body.Name, Description: valueOf(request.Body.Description)}
	if wrong := plan.Validate(); len(wrong) > 0 {
		return nil, wrong
	}
	plan, err := s.store(ctx).CreatePlan(ctx, plan)
	if err != nil {
		return nil, err
	}
	return openapi.CreatePlan201JSONResponse{PlanCreatedJSONResponse: openapi.PlanCreatedJSONResponse{
		Body: showPlan(&rules.PlanUse{Plan: plan}),
		Headers: openapi.PlanCreatedResponseHeaders{
			ETag: etag(plan.Revision), Location: location("tenants/%s/plans/%s", tenant.Slug, plan.Name),
		},
	}}, nil
}

func (s *surface) GetPlan(ctx context.Context, request openapi.GetPlanRequestObject) (openapi.GetPlanResponseObject,
	error,
) {
	plan, err := s.Stores.Plan(ctx, requestOf(ctx).tenant.ID, request.Plan)
	return openapi.GetPlan200JSONResponse{ThePlanJSONResponse: answerPlan(&plan)}, err
}

func (s *surface) UpdatePlan(ctx context.Context,
	request openapi.UpdatePlanRequestObject,
) (openapi.UpdatePlanResponseObject, error) {
	at := requestOf(ctx).ifMatch
	plan, err := patched(at, func() (rules.PlanUse, error) {
		plan, err := s.Stores.Plan(ctx, requestOf(ctx).tenant.ID, request.Plan)
		if err != nil {
			return plan, err
		}
		if !holds(at, plan.Revision) {
			return plan, rules.ErrChanged
		}
		set(&plan.Description, request.Body.Description)
		set(&plan.Position, request.Body.Position)
		if wrong := plan.Validate(); len(wrong) > 0 {
			return plan, wrong
		}
		plan.Plan, err = s.store(ctx).UpdatePlan(ctx, plan.Plan)
		return plan, err
	})
	return openapi.UpdatePlan200JSONResponse{ThePlanJSONResponse: answerPlan(&plan)},
		lost(ctx, err, s.planVersion(ctx, request.Plan))
}

func (s *surface) planVersion(ctx context.Context, name string) func() (int64, error) {
	return func() (int64, error) {
		plan, err := s.Stores.Plan(ctx, requestOf(ctx).tenant.ID, name)
		return plan.Revision, err
	}
}

func (s *surface) DeletePlan(ctx context.Context,
	request openapi.DeletePlanRequestObject,
) (openapi.DeletePlanResponseObject, error) {
	tenant, at := requestOf(ctx).tenant.ID, requestOf(ctx).ifMatch
	var err error
	if to := request.Params.UsersTo; to != nil {
		err = s.store(ctx).ReplacePlan(ctx, tenant, request.Plan, *to, at)
	} else {
		err = s.store(ctx).RemovePlan(ctx, tenant, request.Plan, at)
	}
	if errors.Is(err, rules.ErrInUse) {
		plan, readErr := s.Stores.Plan(ctx, tenant, request.Plan)
		if readErr != nil {
			return nil, readErr
		}
		return nil, httpapi.InUse.Problem(whatToMove(&plan))
	}
	return openapi.DeletePlan204Response{}, lost(ctx, err, s.planVersion(ctx, request.Plan))
}

func whatToMove(p *rules.PlanUse) string {
	var needs []string
	if p.Users > 0 {
		needs = append(needs, "move its "+count(p.Users, "user")+" to another plan")
	}
	if p.Rules > 0 {
		needs = append(needs, "remove its "+count(p.Rules, "rule"))
	}
	if p.IsDefault {
		needs = append(needs, "make another plan the default")
	}
	if len(needs) == 0 {
		return "Something needed it a moment ago; try again."
	}
	return "Before it can be removed, " + strings.Join(needs, ", and ") + "."
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return formatInt(n) + " " + what + "s"
}

// mustBePlan returns a field error unless a plan of this name exists.
func (s *surface) mustBePlan(ctx context.Context, field, name string) error {
	_, err := s.Stores.Plan(ctx, requestOf(ctx).tenant.ID, name)
	if errors.Is(err, rules.ErrNotFound) {
		return rules.FieldErrors{{
			Field:   field,
			Message: fmt.Sprintf("must be a plan of the tenant, and %q is none", name),
		}}
	}
	return err
}
