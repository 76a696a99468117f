package adminapi

import (
	"context"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
	previewed    = 7 * 24 * time.Hour
	shownFirings = 100
)

func (s *surface) PreviewAlert(ctx context.Context,
	request openapi.PreviewAlertRequestObject,
) (openapi.PreviewAlertResponseObject, error) {
	q, c := requestOf(ctx), request.Body
	alert := violations.Alert{
		Tenant: q.tenant.ID, Kind: violations.AlertKind(or(c.Kind, openapi.AlertKindDenials)),
		Rule:       rules.RuleID(orZero(c.RuleId)),
		PerSubject: c.Per == openapi.AlertPerSubject, Threshold: c.Threshold,
		Window: time.Duration(c.WindowMinutes) * time.Minute,
	}
	if wrong := alert.ValidateCondition(); len(wrong) > 0 {
		return nil, wrong
	}
	if alert.Rule != 0 {
		if _, err := s.Stores.Rule(ctx, q.tenant.ID, alert.Rule); err != nil {
			return nil, err
		}
	}
	until := time.Now().UTC()
	since := until.Add(-previewed)
	counts, lookedBackTo, err := s.Alerts.AlertCounts(ctx, &alert, since, until)
	if err != nil {
		return nil, err
	}
	countedSince, err := s.Alerts.CountedSince(ctx, alert.Tenant, alert.Rule, since)
	if err != nil {
		return nil, err
	}
	shown := openapi.AlertPreview{
		Since: since, Until: until, CountedSince: timeOrNull(countedSince),
		LookedBackTo: orNullIf(lookedBackTo.After(since), lookedBackTo),
	}
	firings := alert.Preview(counts, until)
	shown.Fired = len(firings)
	shown.Firings = itemsOf(firings[:min(len(firings), shownFirings)], showFiring)
	return openapi.PreviewAlert200JSONResponse(shown), nil
}

type firing = struct {
	At      time.Time                     `json:"at"`
	Count   int64                         `json:"count"`
	RuleId  nullable.Nullable[openapi.ID] `json:"rule_id"` //nolint:revive // the generated name
	Subject nullable.Nullable[string]     `json:"subject"`
}

func showFiring(f *violations.PreviewFiring) firing {
	return firing{At: f.At, Count: f.Denied, RuleId: orNull(openapi.ID(f.Rule)), Subject: orNull(f.Subject)}
}

func (s *surface) SilenceAlert(ctx context.Context,
	request openapi.SilenceAlertRequestObject,
) (openapi.SilenceAlertResponseObject, error) {
	silence := violations.Silence{
		Until: request.Body.Until, By: requestOf(ctx).actor.Name,
		Reason: or(request.Body.Reason, ""),
	}
	if wrong := silence.Validate(time.Now()); len(wrong) > 0 {
		return nil, wrong
	}
	answer, err := s.silence(ctx, int64(request.AlertId), silence)
	return openapi.SilenceAlert200JSONResponse{TheAlertJSONResponse: answer}, err
}

func (s *surface) EndSilence(ctx context.Context,
	request openapi.EndSilenceRequestObject,
) (openapi.EndSilenceResponseObject, error) {
	answer, err := s.silence(ctx, int64(request.AlertId), violations.Silence{})
	return openapi.EndSilence200JSONResponse{TheAlertJSONResponse: answer}, err
}

func (s *surface) silence(
	ctx context.Context, id int64, silence violations.Silence,
) (openapi.TheAlertJSONResponse, error) {
	q := requestOf(ctx)
	alert, err := s.Alerts.SilenceAlert(ctx, q.actor, q.tenant.ID, id, q.ifMatch, silence)
	return answerAlert(&alert), lost(ctx, err, s.alertVersion(ctx, id))
}
