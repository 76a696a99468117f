package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// ListScheduledChanges handles GET …/scheduled-changes.
func (s *surface) ListScheduledChanges(ctx context.Context, request openapi.ListScheduledChangesRequestObject) (openapi.ListScheduledChangesResponseObject, error) {
	place, err := afterNumber(ctx)
	if err != nil {
		return nil, err
	}
	p := request.Params
	limit := limitOf(p.Limit)
	found, err := s.Stores.ScheduledChanges(ctx, requestOf(ctx).tenant.ID, rules.RuleID(valueOf(p.RuleId)), valueOf(p.Open), place, limit+1)
	if err != nil {
		return nil, err
	}
	answer := openapi.ListScheduledChanges200JSONResponse{Items: []openapi.ScheduledChange{}, NextCursor: next(ctx)}
	if len(found) > limit {
		found = found[:limit]
		answer.NextCursor = next(ctx, formatInt(found[limit-1].ID))
	}
	for i := range found {
		shown, err := showScheduled(&found[i])
		if err != nil {
			return nil, err
		}
		answer.Items = append(answer.Items, shown)
	}
	return answer, nil
}

// GetScheduledChange handles GET …/scheduled-changes/{change_id}.
func (s *surface) GetScheduledChange(ctx context.Context, request openapi.GetScheduledChangeRequestObject) (openapi.GetScheduledChangeResponseObject, error) {
	change, err := s.Stores.ScheduledChange(ctx, requestOf(ctx).tenant.ID, request.ChangeId)
	if err != nil {
		return nil, err
	}
	shown, err := showScheduled(&change)
	return openapi.GetScheduledChange200JSONResponse(shown), err
}

// ScheduleChange handles POST …/scheduled-changes.
func (s *surface) ScheduleChange(ctx context.Context, request openapi.ScheduleChangeRequestObject) (openapi.ScheduleChangeResponseObject, error) {
	tenant, body := requestOf(ctx).tenant, request.Body
	change := rules.ScheduledChange{
		TenantID: tenant.ID, RuleID: rules.RuleID(body.RuleId), StartsAt: body.StartsAt.UTC(), EndsAt: orZero(body.EndsAt).UTC(),
	}
	rule, err := s.Stores.Rule(ctx, tenant.ID, change.RuleID)
	if errors.Is(err, rules.ErrNotFound) {
		return nil, httpapi.BodyProblem([]httpapi.FieldError{{Pointer: "/rule_id", Detail: "must be the id of a rule of the tenant"}})
	}
	if err != nil {
		return nil, err
	}
	if rule.Version != body.Version {
		return nil, ruleChanged()
	}
	mistakes := patchRule(&rule, &body.Change)
	if mistakes, err = s.wrongRule(ctx, &rule, mistakes); err != nil {
		return nil, err
	}
	wrong := append(pointers("", change.Validate(s.Now())), pointers("/change", mistakes)...)
	if err := httpapi.BodyProblem(wrong); err != nil {
		return nil, err
	}
	if change.Patch, err = json.Marshal(body.Change); err != nil {
		return nil, fmt.Errorf("store a scheduled change: %w", err)
	}
	change, err = s.store(ctx).Schedule(ctx, change, rule)
	switch {
	case errors.Is(err, rules.ErrChanged):
		return nil, ruleChanged()
	case errors.Is(err, rules.ErrTooManyScheduled):
		return nil, httpapi.Conflict.Problem(fmt.Sprintf("%d changes of this tenant wait or are in force until an end; cancel one, or wait until one is over.", rules.MaxScheduled))
	case errors.Is(err, rules.ErrScheduledOverlap):
		return nil, httpapi.Conflict.Problem("Another change of this rule is scheduled for a part of this time. Choose another time, or cancel that one.")
	case err != nil:
		return nil, err
	}
	shown, err := showScheduled(&change)
	return openapi.ScheduleChange201JSONResponse{ChangeScheduledJSONResponse: openapi.ChangeScheduledJSONResponse{
		Body: shown, Headers: openapi.ChangeScheduledResponseHeaders{Location: location("tenants/%s/scheduled-changes/%s", tenant.Slug, change.ID)},
	}}, err
}

func ruleChanged() error {
	return httpapi.Changed.Problem(readAgain, httpapi.FieldError{Pointer: "/version", Detail: "is no longer the rule's version: somebody else changed it"})
}

// CancelScheduledChange handles POST …/scheduled-changes/{change_id}/cancel.
func (s *surface) CancelScheduledChange(
	ctx context.Context, request openapi.CancelScheduledChangeRequestObject,
) (openapi.CancelScheduledChangeResponseObject, error) {
	change, err := s.store(ctx).CancelScheduled(ctx, requestOf(ctx).tenant.ID, request.ChangeId)
	if err != nil {
		return nil, err
	}
	shown, err := showScheduled(&change)
	return openapi.CancelScheduledChange200JSONResponse(shown), err
}

func showScheduled(c *rules.ScheduledChange) (openapi.ScheduledChange, error) {
	shown := openapi.ScheduledChange{
		ChangeId: c.ID, RuleId: int64(c.RuleID), StartsAt: c.StartsAt, EndsAt: timeOrNull(c.EndsAt), State: openapi.ScheduledState(c.State),
		RequestedAt: c.RequestedAt, RequestedBy: c.By.Name, AppliedAt: timeOrNull(c.AppliedAt), EndedAt: timeOrNull(c.EndedAt),
		Failure: orNull(c.Failure),
	}
	if err := json.Unmarshal(c.Patch, &shown.Change); err != nil {
		return shown, fmt.Errorf("read the scheduled change %d: %w", c.ID, err)
	}
	return shown, nil
}
