package adminapi

import (
	"context"
	"strconv"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
)

func (s *surface) Simulate(ctx context.Context, request openapi.SimulateRequestObject) (openapi.SimulateResponseObject,
	error,
) {
	var wrong []httpapi.FieldError
	candidates := make([]rules.Rule, len(request.Body.Rules))
	for i := range request.Body.Rules {
		rule, mistakes := newRule(requestOf(ctx).tenant.ID, &request.Body.Rules[i])
		mistakes = allWrong(&rule, mistakes, map[string]bool{rule.Plan: true}) // the plan does not matter here
		wrong = append(wrong, pointers("/rules/"+strconv.Itoa(i), mistakes)...)
		candidates[i] = rule
	}
	arrivals := make([]replay.Arrival, len(request.Body.Arrivals))
	for i, a := range request.Body.Arrivals {
		pointer, cost := "/arrivals/"+strconv.Itoa(i), or(a.Cost, 1)
		tokens, exact := exactTokens(cost)
		if !exact || cost > rules.MaxBurst {
			wrong = append(wrong, httpapi.FieldError{
				Pointer: pointer + "/cost", Detail: "must be from 0 to 1000000000, with at most 6 decimals",
			})
		}
		if a.AtMs > millis(rules.MaxTimeToFull) {
			wrong = append(wrong, httpapi.FieldError{
				Pointer: pointer + "/at_ms", Detail: "must be within a year of the start",
			})
		}
		arrivals[i] = replay.Arrival{At: time.Duration(a.AtMs*1000) * time.Microsecond, Cost: tokens}
	}
	if len(wrong) > 0 {
		return nil, httpapi.BodyProblem(wrong)
	}
	simulation, err := replay.Simulate(ctx, candidates, arrivals)
	if err != nil {
		return nil, err
	}
	return openapi.Simulate200JSONResponse(showTimeline(simulation)), nil
}

func showTimeline(s *replay.Simulation) openapi.Timeline {
	answer := openapi.Timeline{
		FirstDenialMs: nullable.NewNullNullable[float64](),
		Decisions:     []openapi.TimelineDecision{},
		Tiers:         []openapi.TimelineTier{},
	}
	for i := range s.Checks {
		c := &s.Checks[i]
		switch {
		case c.Allowed:
			answer.LongestDelayMs = max(answer.LongestDelayMs, millis(c.Delay))
		case answer.FirstDenialMs.IsNull():
			answer.FirstDenialMs.Set(millis(c.At))
		}
		answer.LongestWaitMs = max(answer.LongestWaitMs, millis(c.RetryAfter))
		answer.Decisions = append(answer.Decisions, showSimulated(c))
	}
	for _, levels := range s.Levels {
		answer.Tiers = append(answer.Tiers, openapi.TimelineTier{
			Levels: itemsOf(levels, func(l *replay.Level) openapi.Level {
				return openapi.Level{AtMs: millis(l.At), Tokens: tokens(l.Tokens)}
			}),
		})
	}
	return answer
}

func showSimulated(c *replay.Simulated) openapi.TimelineDecision {
	shown := openapi.TimelineDecision{
		AtMs: millis(c.At), Cost: tokens(c.Cost), Allowed: c.Allowed, DecidingRule: nullable.NewNullNullable[int](),
		Reason:       orNull(openapi.TimelineDecisionReason(c.Reason)),
		RetryAfterMs: nullable.NewNullableWithValue(millis(c.RetryAfter)), DelayMs: millis(c.Delay),
	}
	if !c.Allowed {
		shown.DecidingRule.Set(c.Deciding)
	}
	if c.Reason == enforce.Blocked || c.Reason == enforce.CostExceedsLimit {
		shown.RetryAfterMs.SetNull()
	}
	return shown
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (s *surface) explain(ctx context.Context, body []byte) ([]byte, error) {
	tenant, err := s.tenantRules(requestOf(ctx).tenant.ID)
	if err != nil {
		return nil, err
	}
	return s.Explain(ctx, tenant, body)
}
