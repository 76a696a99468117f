package adminapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/traffic"
)

func (s *surface) ListReplays(ctx context.Context,
	request openapi.ListReplaysRequestObject,
) (openapi.ListReplaysResponseObject, error) {
	found, cursor, err := list(ctx, request.Params.Limit, func(before int64, limit int) ([]replay.Job, error) {
		return s.Recorded.Replays(ctx, requestOf(ctx).tenant.ID, before, limit)
	}, func(job *replay.Job) int64 { return job.ID })
	if err != nil {
		return nil, err
	}
	items, err := tryItems(found, showReplay)
	return openapi.ListReplays200JSONResponse{Items: items, NextCursor: cursor}, err
}

func (s *surface) GetReplay(ctx context.Context,
	request openapi.GetReplayRequestObject,
) (openapi.GetReplayResponseObject, error) {
	job, err := s.Recorded.Replay(ctx, requestOf(ctx).tenant.ID, int64(request.ReplayId))
	if err != nil {
		return nil, err
	}
	shown, err := showReplay(&job)
	return openapi.GetReplay200JSONResponse(shown), err
}

func (s *surface) CancelReplay(ctx context.Context,
	request openapi.CancelReplayRequestObject,
) (openapi.CancelReplayResponseObject, error) {
	job, err := s.store(ctx).CancelReplay(ctx, requestOf(ctx).tenant.ID, int64(request.ReplayId))
	if err != nil {
		return nil, err
	}
	shown, err := showReplay(&job)
	return openapi.CancelReplay200JSONResponse(shown), err
}

func (s *surface) StartReplay(ctx context.Context,
	request openapi.StartReplayRequestObject,
) (openapi.StartReplayResponseObject, error) {
	q, body := requestOf(ctx), request.Body
	asked := replay.Request{
		Title: valueOf(body.Title), Since: body.Since.UTC(), Until: body.Until.UTC(), Prune: valueOf(body.Prune),
		Plan:  valueOf(body.Plan),
		Level: valueOf(body.Sample), Seed: uint64(valueOf(body.Seed)),
	}
	wrong := pointers("", asked.Validate(s.Now()))
	found, err := s.readReplayed(ctx, &asked, body)
	if err != nil {
		return nil, err
	}
	if err := httpapi.BodyProblem(append(wrong, found...)); err != nil {
		return nil, err
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return nil, fmt.Errorf("store a request for a replay: %w", err)
	}
	job, err := s.store(ctx).RequestReplay(ctx, q.tenant.ID, text)
	if errors.Is(err, replay.ErrTooMany) {
		return nil, httpapi.Conflict.Problem(
			fmt.Sprintf("%d replays of this tenant wait or run; wait until one ends, or cancel one.", replay.MaxOpen))
	}
	if err != nil {
		return nil, err
	}
	shown, err := showReplay(&job)
	return openapi.StartReplay201JSONResponse{ReplayStartedJSONResponse: openapi.ReplayStartedJSONResponse{
		Body: shown, Headers: openapi.ReplayStartedResponseHeaders{Location: location("tenants/%s/replays/%s",
			q.tenant.Slug, job.ID)},
	}}, err
}

func (s *surface) readReplayed(ctx context.Context, asked *replay.Request,
	body *openapi.NewReplay,
) (wrong []httpapi.FieldError, err error) {
	given, removed := valueOf(body.Rules), valueOf(body.Remove)
	hasRules := len(given)+len(removed) > 0 || asked.Plan != ""
	switch {
	case hasRules == (body.File != nil):
		return []httpapi.FieldError{{
			Pointer: "/rules",
			Detail:  "send rules, remove or plan, or else a file; not both",
		}}, nil
	case hasRules && asked.Prune:
		return []httpapi.FieldError{{
			Pointer: "/prune",
			Detail:  "is for a file only; name rules to leave out in remove",
		}}, nil
	}
	plans, err := s.planNames(ctx)
	if err != nil {
		return nil, err
	}
	if asked.Plan != "" && !plans[asked.Plan] {
		wrong = append(wrong, httpapi.FieldError{Pointer: "/plan", Detail: "must be a plan of the tenant"})
	}
	if body.File != nil {
		asked.Kind, asked.File = replay.KindFile, *body.File
		_, err := asked.Candidate(slices.Collect(maps.Keys(plans)))
		var mistakes ruleset.Errors
		if errors.As(err, &mistakes) {
			return append(wrong, mistakesOf("/file", mistakes)...), nil
		}
		return wrong, err
	}
	asked.Kind = replay.KindRules
	if asked.Plan != "" {
		asked.Kind = replay.KindPlan
	}
	config, found := replayedRules(requestOf(ctx).tenant.ID, given, asked.Plan, plans)
	wrong = append(wrong, found...)
	if len(removed) > 0 {
		found, err := s.removedRules(ctx, asked, removed)
		if err != nil {
			return nil, err
		}
		wrong = append(wrong, found...)
	}
	if len(wrong) > 0 || len(config.Rules) == 0 {
		return wrong, nil
	}
	var file bytes.Buffer
	err = ruleset.Encode(&file, config)
	asked.File = file.String()
	return nil, err
}

// replayedRules reads the rules of a candidate. With a plan they must all be of it.
func replayedRules(tenant rules.TenantID, given []openapi.NewRule, plan string,
	plans map[string]bool,
) (config ruleset.Config, wrong []httpapi.FieldError) {
	places := map[rules.RuleIdentity]int{}
	for i := range given {
		rule, mistakes := newRule(tenant, &given[i])
		pointer := "/rules/" + strconv.Itoa(i)
		wrong = append(wrong, pointers(pointer, allWrong(&rule, mistakes, plans))...)
		if plan != "" && rule.Plan != plan {
			wrong = append(wrong, httpapi.FieldError{
				Pointer: pointer + "/plan",
				Detail:  "must be " + plan + ", as the plan of the whole",
			})
		}
		if earlier, ok := places[rule.Identity()]; ok {
			wrong = append(wrong, httpapi.FieldError{
				Pointer: pointer,
				Detail:  fmt.Sprintf("repeats the pattern, plan and name of /rules/%d", earlier),
			})
		}
		places[rule.Identity()] = i
		config.Rules = append(config.Rules, rule)
	}
	return config, wrong
}

func (s *surface) removedRules(ctx context.Context, asked *replay.Request, removed []openapi.ID,
) (wrong []httpapi.FieldError, err error) {
	ids := make([]rules.RuleID, len(removed))
	for i, id := range removed {
		ids[i] = rules.RuleID(id)
	}
	found, err := s.Stores.RulesByID(ctx, requestOf(ctx).tenant.ID, ids)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		at := slices.IndexFunc(found, func(r rules.Rule) bool { return r.ID == id })
		if at < 0 {
			wrong = append(wrong, httpapi.FieldError{
				Pointer: "/remove/" + strconv.Itoa(i),
				Detail:  "must be the id of a rule of the tenant",
			})
			continue
		}
		asked.Remove = append(asked.Remove, replay.RuleName(found[at].Identity()))
	}
	return wrong, nil
}

func (s *surface) GetRecording(ctx context.Context,
	_ openapi.GetRecordingRequestObject,
) (openapi.GetRecordingResponseObject, error) {
	tenant := requestOf(ctx).tenant
	use, err := s.Recorded.UsageOf(ctx, tenant.ID)
	if err != nil {
		return nil, err
	}
	return openapi.GetRecording200JSONResponse{
		RecordDays: tenant.Settings.RecordDays, Bytes: use.Bytes, BudgetBytes: s.TrafficBudget, Checks: use.Checks,
		Seen:    use.Seen,
		LeftOut: use.LeftOut, Dropped: use.Dropped, Share: traffic.Share(use.Level),
		IsStopped: use.Level >= traffic.Stopped || use.Bytes >= s.TrafficBudget,
		Oldest:    timeOrNull(use.Oldest), Newest: timeOrNull(use.Newest),
	}, nil
}

func showReplay(job *replay.Job) (openapi.Replay, error) {
	var asked replay.Request
	if err := json.Unmarshal(job.Request, &asked); err != nil {
		return openapi.Replay{}, fmt.Errorf("read the request of replay %d: %w", job.ID, err)
	}
	shown := openapi.Replay{
		ReplayId: openapi.ID(job.ID), Title: asked.Title, Kind: openapi.ReplayKind(asked.Kind),
		Plan:  orNull(asked.Plan),
		Since: asked.Since, Until: asked.Until,
		Sample: asked.Level, Seed: int64(asked.Seed), Prune: asked.Prune, RequestedAt: job.RequestedAt,
		RequestedBy: job.By,
		State:       openapi.ReplayState(job.State), Progress: job.Progress, StartedAt: timeOrNull(job.StartedAt),
		FinishedAt: timeOrNull(job.FinishedAt),
		Failure:    orNull(job.Failure), File: orNull(asked.File),
		Result: nullable.NewNullNullable[openapi.ReplayResult](),
	}
	if len(job.Result) > 0 {
		var result replay.Result
		if err := json.Unmarshal(job.Result, &result); err != nil {
			return shown, fmt.Errorf("read the result of replay %d: %w", job.ID, err)
		}
		shown.Result = nullable.NewNullableWithValue(showReplayed(&result))
	}
	return shown, nil
}

func showReplayed(r *replay.Result) openapi.ReplayResult {
	return openapi.ReplayResult{
		Since: r.Since, Until: r.Until, Read: r.Read, Share: r.Share, IsEstimate: r.IsEstimate,
		Checks:     showFigure(r.Checks),
		DeniedThen: showFigure(r.DeniedThen), DeniedNow: showFigure(r.DeniedNow),
		NewlyDenied: showFigure(r.NewlyDenied), NoLongerDenied: showFigure(r.NoLongerDenied),
		RecordedDenied: r.RecordedDenied, Agreeing: r.Agreeing, MoreRules: r.MoreRules, MoreUsers: r.MoreUsers,
		StepSeconds: r.StepSeconds,
		Reserving:   r.Reserving, Dropped: r.Dropped, RecordedSince: timeOrNull(r.RecordedSince),
		RulesKnownSince: timeOrNull(r.RulesKnownSince), Notes: append([]string{}, r.Notes...),
		Rules: itemsOf(r.Rules, func(of *replay.OfRule) openapi.ReplayOfRule {
			return openapi.ReplayOfRule{
				RuleId: orNull(openapi.ID(of.RuleID)), Rule: of.Rule, Mode: of.Mode, IsChanged: of.IsChanged,
				IsEstimate: of.IsEstimate,
				DeniedThen: showFigure(of.DeniedThen), DeniedNow: showFigure(of.DeniedNow),
				NewlyDenied: showFigure(of.NewlyDenied), NoLongerDenied: showFigure(of.NoLongerDenied),
				RecordedDenied: of.RecordedDenied,
				FromOtherRules: showFigure(of.FromOtherRules),
			}
		}),
		Plans: itemsOf(r.Plans, func(of *replay.OfPlan) openapi.ReplayOfPlan {
			return openapi.ReplayOfPlan{
				Plan: orNull(of.Plan), Checks: showFigure(of.Checks), DeniedThen: showFigure(of.DeniedThen),
				DeniedNow:   showFigure(of.DeniedNow),
				NewlyDenied: showFigure(of.NewlyDenied), NoLongerDenied: showFigure(of.NoLongerDenied),
			}
		}),
		Users: itemsOf(r.Users, func(of *replay.OfUser) openapi.ReplayOfUser {
			return openapi.ReplayOfUser{
				UserId: orNull(of.UserID), Ip: orNull(of.IP), Plan: orNull(of.Plan), DeniedThen: of.DeniedThen,
				DeniedNow:   of.DeniedNow,
				NewlyDenied: of.NewlyDenied, NoLongerDenied: of.NoLongerDenied,
			}
		}),
		Steps: itemsOf(r.Steps, func(of *replay.OfStep) openapi.ReplayStep {
			return openapi.ReplayStep{
				At: of.At, Checks: of.Checks, DeniedThen: of.DeniedThen, DeniedNow: of.DeniedNow,
				NewlyDenied: of.NewlyDenied, NoLongerDenied: of.NoLongerDenied,
			}
		}),
		Listed: itemsOf(r.Listed, func(of *replay.Listed) openapi.ReplayListed {
			return openapi.ReplayListed{UserId: orNull(of.UserID), Ip: orNull(of.IP), Denied: of.Denied}
		}),
		LeftOut: itemsOf(r.LeftOut, showLeftOut),
	}
}

func showLeftOut(l *replay.LeftOut) openapi.EffectLeftOut {
	return openapi.EffectLeftOut{RuleId: orNull(openapi.ID(l.RuleID)), Rule: l.Rule, Why: l.Why}
}
