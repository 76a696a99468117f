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

// auditTest is the generated type of test.
type auditTest = struct {
	EndedAt   nullable.Nullable[time.Time] `json:"ended_at"`
	Error     string                       `json:"error"`
	IsWaiting bool                         `json:"is_waiting"`
	Status    nullable.Nullable[int]       `json:"status"`
}

func showAuditWebhook(w *auth.AuditWebhook, p *auth.AuditProgress) openapi.AuditWebhook {
	shown := openapi.AuditWebhook{
		Url: rules.ShownURL(w.URL), IsActive: w.Active, Version: w.Version,
		Waiting: p.Waiting, OldestWaitingAt: timeOrNull(p.OldestWaiting), Skipped: p.Skipped,
		Failures: p.Failures, IsUnderWay: p.UnderWay, NextAttemptAt: nullable.NewNullNullable[time.Time](),
		AttemptedAt: timeOrNull(p.AttemptedAt), SucceededAt: timeOrNull(p.SucceededAt), LastStatus: orNull(p.Status),
		LastError: p.Error,
	}
	if w.Active && p.Waiting > 0 && !p.UnderWay {
		shown.NextAttemptAt = timeOrNull(p.NextAttemptAt)
	}
	shown.Test.SetNull()
	if t := p.Test; t.Waits || !t.EndedAt.IsZero() {
		shown.Test.Set(auditTest{
			IsWaiting: t.Waits, EndedAt: timeOrNull(t.EndedAt), Status: orNull(t.Status),
			Error: t.Error,
		})
	}
	return shown
}

// theAuditWebhook reads the webhook again after a change.
func (s *surface) theAuditWebhook(ctx context.Context) (answer openapi.TheAuditWebhookJSONResponse, err error) {
	webhook, progress, err := s.AuditWebhooks.AuditWebhook(ctx, requestOf(ctx).tenant.ID)
	if err != nil {
		return answer, err
	}
	return openapi.TheAuditWebhookJSONResponse{
		Body:    showAuditWebhook(&webhook, &progress),
		Headers: openapi.TheAuditWebhookResponseHeaders{ETag: etag(webhook.Version)},
	}, nil
}

// GetAuditWebhook handles GET …/audit-webhook.
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
	if err != nil {
		return nil, err
	}
	return openapi.GetAuditWebhook200JSONResponse{TheAuditWebhookJSONResponse: answer}, nil
}

// CreateAuditWebhook handles POST …/audit-webhook.
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

// wrongAuditWebhook returns what is wrong with a webhook. The URL's address is judged if the URL is new: one that
// became forbidden since must not keep anybody from turning the webhook off.
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

// UpdateAuditWebhook handles PATCH …/audit-webhook.
func (s *surface) UpdateAuditWebhook(
	ctx context.Context, request openapi.UpdateAuditWebhookRequestObject,
) (openapi.UpdateAuditWebhookResponseObject, error) {
	at, err := expected(request.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	q := requestOf(ctx)
	webhook, _, err := s.AuditWebhooks.AuditWebhook(ctx, q.tenant.ID)
	if err != nil {
		return nil, err
	}
	if !holds(at, webhook.Version) {
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
	if err != nil {
		return nil, err
	}
	return openapi.UpdateAuditWebhook200JSONResponse{TheAuditWebhookJSONResponse: answer}, nil
}

func (s *surface) auditWebhookVersion(ctx context.Context) func() (int64, error) {
	return func() (int64, error) {
		webhook, _, err := s.AuditWebhooks.AuditWebhook(ctx, requestOf(ctx).tenant.ID)
		return webhook.Version, err
	}
}

// DeleteAuditWebhook handles DELETE …/audit-webhook.
func (s *surface) DeleteAuditWebhook(
	ctx context.Context, request openapi.DeleteAuditWebhookRequestObject,
) (openapi.DeleteAuditWebhookResponseObject, error) {
	at, err := expected(request.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	q := requestOf(ctx)
	if err := s.AuditWebhooks.RemoveAuditWebhook(ctx, q.actor, q.tenant.ID, at); err != nil {
		return nil, lost(ctx, err, s.auditWebhookVersion(ctx))
	}
	return openapi.DeleteAuditWebhook204Response{}, nil
}

// RotateAuditSecret handles POST …/audit-webhook/rotate.
func (s *surface) RotateAuditSecret(
	ctx context.Context, request openapi.RotateAuditSecretRequestObject,
) (openapi.RotateAuditSecretResponseObject, error) {
	at, err := expected(request.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	q := requestOf(ctx)
	if _, err := s.AuditWebhooks.RotateAuditSecret(ctx, q.actor, q.tenant.ID, at,
		violations.NewWebhookSecret()); err != nil {
		return nil, lost(ctx, err, s.auditWebhookVersion(ctx))
	}
	webhook, progress, err := s.AuditWebhooks.AuditWebhook(ctx, q.tenant.ID)
	if err != nil {
		return nil, err
	}
	return openapi.RotateAuditSecret200JSONResponse{
		AuditWebhookSecretJSONResponse: openapi.AuditWebhookSecretJSONResponse{
			Body: openapi.AuditWebhookWithSecret{
				Webhook: showAuditWebhook(&webhook, &progress),
				Secret:  webhook.Secret,
			},
			Headers: openapi.AuditWebhookSecretResponseHeaders{ETag: etag(webhook.Version)},
		},
	}, nil
}

// TestAuditWebhook handles POST …/audit-webhook/test.
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
	if err != nil {
		return nil, err
	}
	return openapi.TestAuditWebhook200JSONResponse{TheAuditWebhookJSONResponse: answer}, nil
}
