package adminapi

import (
	"context"
	"errors"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

type auditTest = struct {
	EndedAt   nullable.Nullable[time.Time] `json:"ended_at"`
	Error     string                       `json:"error"`
	IsWaiting bool                         `json:"is_waiting"`
	Status    nullable.Nullable[int]       `json:"status"`
}

func showAuditWebhook(w *auth.AuditWebhook, p *auth.AuditProgress) openapi.AuditWebhook {
	t := p.Test
	return openapi.AuditWebhook{
		Url: rules.ShownURL(w.URL), IsActive: w.Active, Version: w.Version,
		Waiting: p.Waiting, OldestWaitingAt: timeOrNull(p.OldestWaiting), Skipped: p.Skipped,
		Failures: p.Failures, IsUnderWay: p.UnderWay,
		NextAttemptAt: timeIf(w.Active && p.Waiting > 0 && !p.UnderWay, p.NextAttemptAt),
		AttemptedAt:   timeOrNull(p.AttemptedAt), SucceededAt: timeOrNull(p.SucceededAt), LastStatus: orNull(p.Status),
		LastError: p.Error,
		Test: orNullIf(t.Waits || !t.EndedAt.IsZero(), auditTest{
			IsWaiting: t.Waits, EndedAt: timeOrNull(t.EndedAt), Status: orNull(t.Status), Error: t.Error,
		}),
	}
}

func (s *surface) theAuditWebhook(ctx context.Context) (openapi.TheAuditWebhookJSONResponse, error) {
	webhook, progress, err := s.AuditWebhooks.AuditWebhook(ctx, requestOf(ctx).tenant.ID)
	return openapi.TheAuditWebhookJSONResponse{
		Body:    showAuditWebhook(&webhook, &progress),
		Headers: openapi.TheAuditWebhookResponseHeaders{ETag: etag(webhook.Version)},
	}, err
}

func (s *surface) GetAuditWebhook(
	ctx context.Context, request openapi.GetAuditWebhookRequestObject,
) (openapi.GetAuditWebhookResponseObject, error) {
	answer, err := s.theAuditWebhook(ctx)
	if errors.Is(err, rules.ErrNotFound) {
		if valueOf(request.Params.Optional) {
			return openapi.GetAuditWebhook204Response{}, nil
		}
		return nil, httpapi.NotFound.Problem("The audit log is sent nowhere; create the webhook with POST.")
	}
	return openapi.GetAuditWebhook200JSONResponse{TheAuditWebhookJSONResponse: answer}, err
}

func (s *surface) CreateAuditWebhook(
	ctx context.Context, request openapi.CreateAuditWebhookRequestObject,
) (openapi.CreateAuditWebhookResponseObject, error) {
	q := requestOf(ctx)
	webhook := auth.AuditWebhook{
		Tenant: q.tenant.ID, URL: request.Body.Url, Secret: violations.NewWebhookSecret(),
		Active: or(request.Body.IsActive, true),
	}
	if err := s.wrongAuditWebhook(ctx, &webhook, ""); err != nil {
		return nil, err
	}
	created, err := s.AuditWebhooks.CreateAuditWebhook(ctx, q.actor, webhook)
	if errors.Is(err, rules.ErrExists) {
		return nil, httpapi.Conflict.Problem("The audit log is sent to a webhook already; change that one.")
	}
	if err != nil {
		return nil, err
	}
	return openapi.CreateAuditWebhook201JSONResponse{
		AuditWebhookCreatedJSONResponse: openapi.AuditWebhookCreatedJSONResponse{
			Body: openapi.AuditWebhookWithSecret{
				Webhook: showAuditWebhook(&created, &auth.AuditProgress{}),
				Secret:  created.Secret,
			},
			Headers: openapi.AuditWebhookCreatedResponseHeaders{
				ETag: etag(created.Version), Location: location("tenants/%s/audit-webhook", q.tenant.Slug),
			},
		},
	}, nil
}

// wrongAuditWebhook judges the address of a new URL alone: one that became forbidden must not keep a webhook on.
func (s *surface) wrongAuditWebhook(ctx context.Context, w *auth.AuditWebhook, before string) error {
	wrong := w.Validate()
	if len(wrong) == 0 && w.URL != before && s.CheckTarget(ctx, w.URL) != nil {
		wrong = append(wrong, forbiddenTarget)
	}
	if len(wrong) > 0 {
		return wrong
	}
	return nil
}

func (s *surface) UpdateAuditWebhook(
	ctx context.Context, request openapi.UpdateAuditWebhookRequestObject,
) (openapi.UpdateAuditWebhookResponseObject, error) {
	q := requestOf(ctx)
	webhook, _, err := s.AuditWebhooks.AuditWebhook(ctx, q.tenant.ID)
	if err != nil {
		return nil, err
	}
	if !holds(q.ifMatch, webhook.Version) {
		return nil, lost(ctx, rules.ErrChanged, s.auditWebhookVersion(ctx))
	}
	before := webhook.URL
	if url := request.Body.Url; url != nil && *url != rules.ShownURL(before) {
		webhook.URL = *url
	}
	set(&webhook.Active, request.Body.IsActive)
	if err := s.wrongAuditWebhook(ctx, &webhook, before); err != nil {
		return nil, err
	}
	actor := q.actor
	if webhook.URL != before {
		actor.Act = actNewURL
	}
	if _, err = s.AuditWebhooks.UpdateAuditWebhook(ctx, actor, webhook); err != nil {
		return nil, lost(ctx, err, s.auditWebhookVersion(ctx))
	}
	answer, err := s.theAuditWebhook(ctx)
	return openapi.UpdateAuditWebhook200JSONResponse{TheAuditWebhookJSONResponse: answer}, err
}

func (s *surface) auditWebhookVersion(ctx context.Context) func() (int64, error) {
	return func() (int64, error) {
		webhook, _, err := s.AuditWebhooks.AuditWebhook(ctx, requestOf(ctx).tenant.ID)
		return webhook.Version, err
	}
}

func (s *surface) DeleteAuditWebhook(
	ctx context.Context, _ openapi.DeleteAuditWebhookRequestObject,
) (openapi.DeleteAuditWebhookResponseObject, error) {
	q := requestOf(ctx)
	err := s.AuditWebhooks.RemoveAuditWebhook(ctx, q.actor, q.tenant.ID, q.ifMatch)
	return openapi.DeleteAuditWebhook204Response{}, lost(ctx, err, s.auditWebhookVersion(ctx))
}

func (s *surface) RotateAuditSecret(
	ctx context.Context, _ openapi.RotateAuditSecretRequestObject,
) (openapi.RotateAuditSecretResponseObject, error) {
	q := requestOf(ctx)
	if _, err := s.AuditWebhooks.RotateAuditSecret(ctx, q.actor, q.tenant.ID, q.ifMatch,
		violations.NewWebhookSecret()); err != nil {
		return nil, lost(ctx, err, s.auditWebhookVersion(ctx))
	}
	webhook, progress, err := s.AuditWebhooks.AuditWebhook(ctx, q.tenant.ID)
	return openapi.RotateAuditSecret200JSONResponse{
		AuditWebhookSecretJSONResponse: openapi.AuditWebhookSecretJSONResponse{
			Body: openapi.AuditWebhookWithSecret{
				Webhook: showAuditWebhook(&webhook, &progress), Secret: webhook.Secret,
			},
			Headers: openapi.AuditWebhookSecretResponseHeaders{ETag: etag(webhook.Version)},
		},
	}, err
}

func (s *surface) TestAuditWebhook(
	ctx context.Context, _ openapi.TestAuditWebhookRequestObject,
) (openapi.TestAuditWebhookResponseObject, error) {
	err := s.AuditWebhooks.TestAuditWebhook(ctx, requestOf(ctx).tenant.ID)
	if errors.Is(err, rules.ErrInUse) {
		return nil, httpapi.Conflict.Problem("The previous test is still being sent; look again in a few seconds.")
	}
	if err != nil {
		return nil, err
	}
	answer, err := s.theAuditWebhook(ctx)
	return openapi.TestAuditWebhook200JSONResponse{TheAuditWebhookJSONResponse: answer}, err
}
