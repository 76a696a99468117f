package adminapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

// scheduledPerPage bounds a page, since each change can be of rules.MaxScheduledRules.
const scheduledPerPage = 50

func (s *surface) ListScheduledChanges(ctx context.Context,
	request openapi.ListScheduledChangesRequestObject,
) (openapi.ListScheduledChangesResponseObject, error) {
	p := request.Params
	limit := min(limitOf(p.Limit), scheduledPerPage)
	found, cursor, err := list(ctx, &limit, func(before int64, limit int) ([]rules.ScheduledChange, error) {
		return s.Stores.ScheduledChanges(ctx, requestOf(ctx).tenant.ID, rules.RuleID(valueOf(p.RuleId)),
			valueOf(p.Open), before, limit)
	}, func(c *rules.ScheduledChange) int64 { return c.ID })
	if err != nil {
		return nil, err
	}
	items, err := tryItems(found, showScheduled)
	return openapi.ListScheduledChanges200JSONResponse{Items: items, NextCursor: cursor}, err
}

func (s *surface) GetScheduledChange(ctx context.Context,
	request openapi.GetScheduledChangeRequestObject,
) (openapi.GetScheduledChangeResponseObject, error) {
	change, err := s.Stores.ScheduledChange(ctx, requestOf(ctx).tenant.ID, int64(request.ChangeId))
	if err != nil {
		return nil, err
	}
	shown, err := showScheduled(&change)
	return openapi.GetScheduledChange200JSONResponse(shown), err
}

func (s *surface) ScheduleChange(ctx context.Context,
	request openapi.ScheduleChangeRequestObject,
) (openapi.ScheduleChangeResponseObject, error) {
	tenant, body := requestOf(ctx).tenant, request.Body
	change := rules.ScheduledChange{
		TenantID: tenant.ID, StartsAt: orZero(body.StartsAt).UTC(),
		EndsAt: orZero(body.EndsAt).UTC(),
	}
	change.Lasts = time.Duration(valueOf(body.EndsInSeconds)) * time.Second
	change.Replaces = int64(valueOf(body.Replaces))
	wrong := change.Validate(s.Now())
	if body.EndsInSeconds != nil && body.EndsAt.IsSpecified() {
		wrong.Add("ends_in_seconds", "must be left out beside ends_at")
	}
	refused := refusals{wrong: pointers("", wrong)}
	after, err := s.scheduledRules(ctx, &change, body.Rules, &refused)
	if err != nil {
		return nil, err
	}
	if err := refused.ofSchedule(); err != nil {
		return nil, err
	}
	change, err = s.store(ctx).Schedule(ctx, change, after)
	var byRule ruleset.RuleChangeErrors
	switch {
	case errors.As(err, &byRule):
		for i, err := range byRule {
			refused.refuseScheduled(i, err)
		}
		return nil, refused.ofSchedule()
	case errors.Is(err, rules.ErrTooManyScheduled):
		return nil, httpapi.Conflict.Problem(
			fmt.Sprintf("%d changes of this tenant wait or are in force until an end; cancel one, or wait until one "+
				"is over.", rules.MaxScheduled))
	case err != nil:
		return nil, err
	}
	shown, err := showScheduled(&change)
	return openapi.ScheduleChange201JSONResponse{ChangeScheduledJSONResponse: openapi.ChangeScheduledJSONResponse{
		Body: shown, Headers: openapi.ChangeScheduledResponseHeaders{Location: location(
			"tenants/%s/scheduled-changes/%s", tenant.Slug, change.ID)},
	}}, err
}

func (s *surface) scheduledRules(
	ctx context.Context, change *rules.ScheduledChange, asked []openapi.NewScheduledRule, refused *refusals,
) (after []rules.Rule, err error) {
	var ids []rules.RuleID
	for i := range asked {
		ids = append(ids, rules.RuleID(asked[i].RuleId))
	}
	found, err := s.Stores.RulesByID(ctx, change.TenantID, ids)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		at := slices.IndexFunc(found, func(one rules.Rule) bool { return one.ID == id })
		if at < 0 {
			refused.wrong = append(refused.wrong, httpapi.FieldError{
				Pointer: fmt.Sprintf("/rules/%d/rule_id", i), Detail: "must be the id of a rule of the tenant",
			})
			continue
		}
		rule := found[at]
		if rule.Version != asked[i].Version {
			refused.refuseScheduled(i, rules.ErrChanged)
		}
		wrong := allWrong(&rule, rule.Patch(asked[i].Change), map[string]bool{rule.Plan: true})
		wrong = append(wrong, rule.WrongMeterChange(&found[at])...)
		if rule.ExpiresIn != nil {
			wrong.Add("expires_in_seconds", "must be left out of a scheduled change; send expires_at")
		}
		refused.wrong = append(refused.wrong, pointers(fmt.Sprintf("/rules/%d/change", i), wrong)...)
		change.Rules = append(change.Rules, rules.ScheduledRule{RuleID: id, Patch: asked[i].Change})
		after = append(after, rule)
	}
	return after, nil
}

func (r *refusals) refuseScheduled(i int, err error) {
	pointer := fmt.Sprintf("/rules/%d", i)
	if errors.Is(err, rules.ErrChanged) {
		r.lost = append(r.lost, httpapi.FieldError{
			Pointer: pointer + "/version", Detail: "is no longer the rule's version: somebody else changed it",
		})
		return
	}
	r.add(pointer, err)
}

func (r *refusals) ofSchedule() error {
	return r.problem("Nothing was scheduled.",
		"Another change of a rule is scheduled for a part of this time; nothing was scheduled. Choose another time, "+
			"or cancel that one.")
}

func (s *surface) CancelScheduledChange(
	ctx context.Context, request openapi.CancelScheduledChangeRequestObject,
) (openapi.CancelScheduledChangeResponseObject, error) {
	change, err := s.store(ctx).CancelScheduled(ctx, requestOf(ctx).tenant.ID, int64(request.ChangeId))
	if err != nil {
		return nil, err
	}
	shown, err := showScheduled(&change)
	return openapi.CancelScheduledChange200JSONResponse(shown), err
}

func showScheduled(c *rules.ScheduledChange) (openapi.ScheduledChange, error) {
	shown := openapi.ScheduledChange{
		ChangeId: openapi.ID(c.ID), Title: c.Title, Rules: []openapi.ScheduledRule{}, StartsAt: c.StartsAt,
		EndsAt: timeOrNull(c.EndsAt),
		State:  openapi.ScheduledState(c.State), RequestedAt: c.RequestedAt, RequestedBy: c.By.Name,
		AppliedAt: timeOrNull(c.AppliedAt),
		EndedAt:   timeOrNull(c.EndedAt), Failure: orNull(c.Failure),
		RequesterAccountId: nullable.NewNullNullable[openapi.ID](),
	}
	for i := range c.Rules {
		shown.Rules = append(shown.Rules, openapi.ScheduledRule{
			RuleId: openapi.ID(c.Rules[i].RuleID), Change: c.Rules[i].Patch, Failure: orNull(c.Rules[i].Failure),
		})
	}
	if c.By.Kind == rules.ActorAccount {
		id, err := parseInt(c.By.ID)
		if err != nil {
			return shown, fmt.Errorf("read who scheduled the change %d: %w", c.ID, err)
		}
		shown.RequesterAccountId.Set(openapi.ID(id))
	}
	return shown, nil
}
