package adminapi

import (
	"context"
	"errors"
	"strconv"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/replay"
)

// ShowEffect handles POST …/effect.
func (s *surface) ShowEffect(ctx context.Context, request openapi.ShowEffectRequestObject) (openapi.ShowEffectResponseObject, error) {
	tenant := requestOf(ctx).tenant
	candidate := new(replay.Candidate)
	var wrong []httpapi.FieldError
	for i := range request.Body.Rules {
		rule, mistakes := newRule(tenant.ID, &request.Body.Rules[i])
		mistakes = allWrong(&rule, mistakes, map[string]bool{rule.Plan: true}) // a plan may be created later
		wrong = append(wrong, pointers("/rules/"+strconv.Itoa(i), mistakes)...)
		candidate.Config.Rules = append(candidate.Config.Rules, rule)
	}
	if err := httpapi.BodyProblem(wrong); err != nil {
		return nil, err
	}
	answer := openapi.ShowEffect200JSONResponse{
		IsRecording: tenant.Settings.RecordDays > 0, Since: timeOrNull(never),
		Rules: []openapi.EffectOfRule{}, Users: []openapi.EffectOfUser{}, LeftOut: []openapi.EffectLeftOut{},
	}
	result, err := replay.Effect(ctx, s.Recorded, tenant.ID, candidate, s.Now())
	if errors.Is(err, replay.ErrNothing) {
		return answer, nil
	}
	if err != nil {
		return nil, err
	}
	answer.Since, answer.Checks, answer.Share = timeOrNull(result.Since), showFigure(result.Checks), result.Share
	answer.DeniedThen, answer.DeniedNow = showFigure(result.DeniedThen), showFigure(result.DeniedNow)
	answer.NewlyDenied, answer.NoLongerDenied = showFigure(result.NewlyDenied), showFigure(result.NoLongerDenied)
	answer.LeftOut = itemsOf(result.LeftOut, func(l *replay.LeftOut) openapi.EffectLeftOut {
		return openapi.EffectLeftOut{RuleId: l.RuleID, Rule: l.Rule, Why: l.Why}
	})
	for i := range result.Rules {
		if of := &result.Rules[i]; of.IsChanged {
			answer.Rules = append(answer.Rules, openapi.EffectOfRule{
				RuleId: orNull(of.RuleID), Rule: of.Rule, Mode: openapi.Mode(of.Mode), DeniedThen: showFigure(of.DeniedThen),
				DeniedNow: showFigure(of.DeniedNow), NewlyDenied: showFigure(of.NewlyDenied), NoLongerDenied: showFigure(of.NoLongerDenied),
			})
		}
	}
	for i := range result.Users {
		u := &result.Users[i]
		if u.NewlyDenied+u.NoLongerDenied == 0 || len(answer.Users) == effectUsers {
			break
		}
		answer.Users = append(answer.Users, openapi.EffectOfUser{
			UserId: orNull(u.UserID), Ip: orNull(u.IP), NewlyDenied: u.NewlyDenied, NoLongerDenied: u.NoLongerDenied,
		})
	}
	return answer, nil
}

// effectUsers caps the users beside an editor.
const effectUsers = 5

func showFigure(f replay.Figure) openapi.Figure {
	return openapi.Figure{Value: f.Value, Error: f.Error}
}
