package adminapi

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func showAlert(a *violations.Alert) openapi.Alert {
	shown := openapi.Alert{
		AlertId: openapi.ID(a.ID), Name: a.Name, Kind: openapi.AlertKind(a.Kind), RuleId: orNull(openapi.ID(a.Rule)),
		Per: openapi.AlertPerRule, Threshold: a.Threshold,
		WindowMinutes: int(a.Window / time.Minute), Format: openapi.AlertFormat(a.Format), Url: orNull(a.ShownURL()),
		Email: orNull(a.Email), IsActive: a.Active, RuleRemoved: a.RuleRemoved, RaisedAt: timeOrNull(a.RaisedAt),
		Silence: orNullIf(a.Silence.Holds(time.Now()),
			openapi.Silence{Until: a.Silence.Until.UTC(), By: a.Silence.By, Reason: a.Silence.Reason}),
		Version: a.Version,
	}
	if a.PerSubject {
		shown.Per = openapi.AlertPerSubject
	}
	return shown
}

func showWithSecret(a *violations.Alert) openapi.AlertWithSecret {
	return openapi.AlertWithSecret{
		Alert: showAlert(a), Secret: orNullIf(a.Format == violations.FormatWebhook, a.Secret),
	}
}

func answerAlert(a *violations.Alert) openapi.TheAlertJSONResponse {
	return openapi.TheAlertJSONResponse{
		Body: showAlert(a), Headers: openapi.TheAlertResponseHeaders{ETag: etag(a.Version)},
	}
}

func showDelivery(d *violations.Delivery) openapi.AlertDelivery {
	shown := openapi.AlertDelivery{
		DeliveryId: openapi.ID(d.ID), IsTest: d.Test, RuleId: orNull(openapi.ID(d.Rule)), Subject: orNull(d.Subject),
		Kind: openapi.AlertKind(d.Kind), Denied: d.Denied, Since: d.Since, RaisedAt: d.RaisedAt,
		State: openapi.AlertDeliveryState(d.State), Attempts: d.Attempts, LastStatus: orNull(d.Status),
		LastError:     d.Error,
		AttemptedAt:   timeOrNull(d.AttemptedAt),
		NextAttemptAt: timeIf(d.State == violations.DeliveryPending && !d.UnderWay && !d.InMail, d.NextAttemptAt),
		IsUnderWay:    d.UnderWay || d.InMail && d.State == violations.DeliveryPending,
	}
	if d.Silenced {
		shown.State = openapi.AlertDeliveryStateSilenced
	}
	return shown
}

func (s *surface) ListAlerts(ctx context.Context,
	request openapi.ListAlertsRequestObject,
) (openapi.ListAlertsResponseObject, error) {
	alerts, cursor, err := list(ctx, request.Params.Limit, func(after int64, _ int) ([]violations.Alert, error) {
		all, err := s.Alerts.Alerts(ctx, requestOf(ctx).tenant.ID)
		return slices.DeleteFunc(all, func(a violations.Alert) bool { return a.ID <= after }), err
	}, func(a *violations.Alert) int64 { return a.ID })
	return openapi.ListAlerts200JSONResponse{Items: itemsOf(alerts, showAlert), NextCursor: cursor}, err
}

func (s *surface) CreateAlert(ctx context.Context,
	request openapi.CreateAlertRequestObject,
) (openapi.CreateAlertResponseObject, error) {
	q, n := requestOf(ctx), request.Body
	alert := violations.Alert{
		Tenant: q.tenant.ID, Name: n.Name, Kind: violations.AlertKind(or(n.Kind, openapi.AlertKindDenials)),
		Rule: rules.RuleID(orZero(n.RuleId)), PerSubject: n.Per == openapi.AlertPerSubject,
		Threshold: n.Threshold, Window: time.Duration(n.WindowMinutes) * time.Minute, Active: or(n.IsActive, true),
	}
	alert.SetFormat(violations.Format(or(n.Format, openapi.AlertFormatWebhook)))
	if err := setDestination(&alert, n.Url, n.RoutingKey, n.Email); err != nil {
		return nil, err
	}
	if err := s.wrongAlert(ctx, &alert, nil); err != nil {
		return nil, err
	}
	created, err := s.Alerts.CreateAlert(ctx, q.actor, alert)
	if err != nil {
		return nil, err
	}
	return openapi.CreateAlert201JSONResponse{AlertCreatedJSONResponse: openapi.AlertCreatedJSONResponse{
		Body: showWithSecret(&created),
		Headers: openapi.AlertCreatedResponseHeaders{
			ETag: etag(created.Version), Location: location("tenants/%s/alerts/%s", q.tenant.Slug, created.ID),
		},
	}}, nil
}

// setDestination refuses a field of another format, so that nobody believes that it counts.
func setDestination(a *violations.Alert, url, routingKey, email *string) error {
	var wrong rules.FieldErrors
	is := func(given *string, field string, formats ...violations.Format) bool {
		if given != nil && !slices.Contains(formats, a.Format) {
			wrong.Add(field, "does not belong to the format "+string(a.Format))
			return false
		}
		return given != nil
	}
	if is(url, "url", violations.FormatWebhook, violations.FormatSlack, violations.FormatPagerDuty) {
		a.SetURL(*url)
	}
	if is(routingKey, "routing_key", violations.FormatPagerDuty) {
		a.Secret = *routingKey
	}
	if is(email, "email", violations.FormatEmail) {
		a.Email = *email
	}
	if len(wrong) > 0 {
		return wrong
	}
	return nil
}

// actNewURL says in the audit log that a URL changed, because the log leaves the URL out.
const actNewURL = "new URL"

var forbiddenTarget = rules.FieldError{
	Field: "url", Message: "must lead to a public address, and this one is in a private or reserved network",
}

// wrongAlert skips fields that are as before (nil for a new alert), so that an alert whose URL has become forbidden can
// be turned off.
func (s *surface) wrongAlert(ctx context.Context, a, before *violations.Alert) error {
	wrong := a.Validate()
	isURLNew := a.Target() != "" && (before == nil || before.Target() != a.Target())
	isBad := func(f rules.FieldError) bool { return f.Field == "url" }
	if isURLNew && !slices.ContainsFunc(wrong, isBad) && s.CheckTarget(ctx, a.Target()) != nil {
		wrong = append(wrong, forbiddenTarget)
	}
	if a.Format == violations.FormatEmail && (before == nil || before.Format != a.Format) && !s.Gate.SendsMail() {
		wrong.Add("format", "cannot be email, because no mail server is configured")
	}
	if a.Rule != 0 && (before == nil || before.Rule != a.Rule) {
		_, err := s.Stores.Rule(ctx, a.Tenant, a.Rule)
		if err != nil && !errors.Is(err, rules.ErrNotFound) {
			return err
		}
		if err != nil {
			wrong = append(wrong, rules.FieldError{Field: "rule_id", Message: "must be a rule of the tenant"})
		}
	}
	if len(wrong) > 0 {
		return wrong
	}
	return nil
}

func (s *surface) GetAlert(ctx context.Context, request openapi.GetAlertRequestObject) (openapi.GetAlertResponseObject,
	error,
) {
	alert, err := s.Alerts.Alert(ctx, requestOf(ctx).tenant.ID, int64(request.AlertId))
	return openapi.GetAlert200JSONResponse{TheAlertJSONResponse: answerAlert(&alert)}, err
}

func (s *surface) UpdateAlert(ctx context.Context,
	request openapi.UpdateAlertRequestObject,
) (openapi.UpdateAlertResponseObject, error) {
	q, p := requestOf(ctx), request.Body
	alert, err := s.Alerts.Alert(ctx, q.tenant.ID, int64(request.AlertId))
	if err != nil {
		return nil, err
	}
	before := alert
	if !holds(q.ifMatch, alert.Version) {
		return nil, lost(ctx, rules.ErrChanged, s.alertVersion(ctx, alert.ID))
	}
	set(&alert.Name, p.Name)
	set(&alert.Kind, (*violations.AlertKind)(p.Kind))
	if p.RuleId.IsSpecified() {
		alert.Rule = rules.RuleID(orZero(p.RuleId))
	}
	if p.Per != nil {
		alert.PerSubject = *p.Per == openapi.AlertPerSubject
	}
	set(&alert.Threshold, p.Threshold)
	if p.WindowMinutes != nil {
		alert.Window = time.Duration(*p.WindowMinutes) * time.Minute
	}
	if p.Format != nil {
		alert.SetFormat(violations.Format(*p.Format))
	}
	if err := setDestination(&alert, p.Url, p.RoutingKey, p.Email); err != nil {
		return nil, err
	}
	set(&alert.Active, p.IsActive)
	if err := s.wrongAlert(ctx, &alert, &before); err != nil {
		return nil, err
	}
	actor := q.actor
	if alert.Target() != before.Target() {
		actor.Act = actNewURL
	}
	alert, err = s.Alerts.UpdateAlert(ctx, actor, alert)
	return openapi.UpdateAlert200JSONResponse{TheAlertJSONResponse: answerAlert(&alert)},
		lost(ctx, err, s.alertVersion(ctx, before.ID))
}

func (s *surface) alertVersion(ctx context.Context, id int64) func() (int64, error) {
	return func() (int64, error) {
		alert, err := s.Alerts.Alert(ctx, requestOf(ctx).tenant.ID, id)
		return alert.Version, err
	}
}

func (s *surface) DeleteAlert(ctx context.Context,
	request openapi.DeleteAlertRequestObject,
) (openapi.DeleteAlertResponseObject, error) {
	q, id := requestOf(ctx), int64(request.AlertId)
	err := s.Alerts.RemoveAlert(ctx, q.actor, q.tenant.ID, id, q.ifMatch)
	return openapi.DeleteAlert204Response{}, lost(ctx, err, s.alertVersion(ctx, id))
}

func (s *surface) RotateAlertSecret(ctx context.Context,
	request openapi.RotateAlertSecretRequestObject,
) (openapi.RotateAlertSecretResponseObject, error) {
	q, id := requestOf(ctx), int64(request.AlertId)
	before, err := s.Alerts.Alert(ctx, q.tenant.ID, id)
	if err != nil {
		return nil, err
	}
	if before.Format != violations.FormatWebhook {
		return nil, httpapi.Conflict.Problem("Only webhooks are signed; this alert is sent in another format.")
	}
	alert, err := s.Alerts.RotateAlertSecret(ctx, q.actor, q.tenant.ID, id, q.ifMatch, violations.NewWebhookSecret())
	return openapi.RotateAlertSecret200JSONResponse{AlertSecretJSONResponse: openapi.AlertSecretJSONResponse{
		Body: showWithSecret(&alert), Headers: openapi.AlertSecretResponseHeaders{ETag: etag(alert.Version)},
	}}, lost(ctx, err, s.alertVersion(ctx, id))
}

func (s *surface) TestAlert(ctx context.Context,
	request openapi.TestAlertRequestObject,
) (openapi.TestAlertResponseObject, error) {
	delivery, err := s.Alerts.TestAlert(ctx, requestOf(ctx).tenant.ID, int64(request.AlertId))
	if errors.Is(err, rules.ErrInUse) {
		return nil, httpapi.Conflict.Problem("The previous test is still being sent; look at the deliveries.")
	}
	return openapi.TestAlert201JSONResponse(showDelivery(&delivery)), err
}

func (s *surface) ListAlertDeliveries(ctx context.Context,
	request openapi.ListAlertDeliveriesRequestObject,
) (openapi.ListAlertDeliveriesResponseObject, error) {
	tenant, id := requestOf(ctx).tenant.ID, int64(request.AlertId)
	if _, err := s.Alerts.Alert(ctx, tenant, id); err != nil {
		return nil, err
	}
	found, cursor, err := list(ctx, request.Params.Limit, func(before int64, limit int) ([]violations.Delivery, error) {
		return s.Alerts.AlertDeliveries(ctx, tenant, id, before, limit)
	}, func(d *violations.Delivery) int64 { return d.ID })
	return openapi.ListAlertDeliveries200JSONResponse{Items: itemsOf(found, showDelivery), NextCursor: cursor}, err
}

func (s *surface) RetryAlertDelivery(ctx context.Context,
	request openapi.RetryAlertDeliveryRequestObject,
) (openapi.RetryAlertDeliveryResponseObject, error) {
	delivery, err := s.Alerts.RetryDelivery(ctx, requestOf(ctx).tenant.ID, int64(request.AlertId),
		int64(request.DeliveryId))
	switch {
	case errors.Is(err, rules.ErrInUse):
		return nil, httpapi.Conflict.Problem("It is being sent now; look again in a few seconds.")
	case errors.Is(err, rules.ErrFinal):
		return nil, httpapi.Conflict.Problem("It was delivered already.")
	}
	return openapi.RetryAlertDelivery200JSONResponse(showDelivery(&delivery)), err
}
