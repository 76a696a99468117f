package adminapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/simulate"
)

// maxTimeline caps the decisions in a timeline.
const maxTimeline = 2000

// Simulate handles POST …/simulate.
func (s *surface) Simulate(ctx context.Context, request openapi.SimulateRequestObject) (openapi.SimulateResponseObject, error) {
	candidates, err := readCandidates(requestOf(ctx).tenant.ID, request.Body)
	if err != nil {
		return nil, err
	}
	arrivals, until, err := readArrivals(request.Body)
	if err != nil {
		return nil, err
	}
	simulation, err := simulate.Run(ctx, candidates, arrivals, until)
	var wrong rules.FieldErrors
	if errors.As(err, &wrong) {
		return nil, httpapi.BodyProblem(renamed(wrong))
	}
	if err != nil {
		return nil, err
	}
	return openapi.Simulate200JSONResponse(showTimeline(simulation, arrivals)), nil
}

// renamed replaces the simulation's field names by the body's.
func renamed(wrong rules.FieldErrors) []httpapi.FieldError {
	fields := pointers("", wrong)
	for i, f := range fields {
		switch {
		case f.Pointer == "/rate":
			fields[i].Pointer = "/pattern/rate_per_second"
		case f.Pointer == "/duration":
			fields[i].Pointer = "/pattern/duration_seconds"
		case f.Pointer == "/burst_size", f.Pointer == "/cost":
			fields[i].Pointer = "/pattern" + f.Pointer
		case strings.HasPrefix(f.Pointer, "/timestamps"):
			fields[i].Pointer = "/arrivals" + strings.TrimPrefix(f.Pointer, "/timestamps")
		case strings.HasSuffix(f.Pointer, "/level"):
			fields[i].Pointer = "/start_tokens"
		}
	}
	return fields
}

func readCandidates(tenant rules.TenantID, body *openapi.Simulation) ([]simulate.Candidate, error) {
	var wrong []httpapi.FieldError
	var level *enforce.Tokens
	if body.StartTokens != nil {
		amount, ok := exactTokens(*body.StartTokens)
		if !ok || *body.StartTokens > rules.MaxBurst {
			wrong = append(wrong, httpapi.FieldError{Pointer: "/start_tokens", Detail: "must be from 0 to the burst, with at most 6 decimals"})
		}
		level = &amount
	}
	candidates := make([]simulate.Candidate, len(body.Rules))
	for i := range body.Rules {
		rule, mistakes := newRule(tenant, &body.Rules[i])
		mistakes = allWrong(&rule, mistakes, map[string]bool{rule.Plan: true}) // the plan does not matter here
		wrong = append(wrong, pointers("/rules/"+strconv.Itoa(i), mistakes)...)
		candidates[i] = simulate.Candidate{Rule: rule, Level: level}
	}
	return candidates, httpapi.BodyProblem(wrong)
}

func readArrivals(body *openapi.Simulation) (arrivals []simulate.Arrival, until time.Duration, err error) {
	if (body.Pattern == nil) == (body.Arrivals == nil) {
		return nil, 0, httpapi.BodyProblem([]httpapi.FieldError{{Pointer: "/pattern", Detail: "is needed, or else arrivals; not both"}})
	}
	var wrong []httpapi.FieldError
	read := func(pointer string, cost *float64) enforce.Tokens {
		amount, ok := exactTokens(or(cost, 1))
		if !ok || or(cost, 1) > rules.MaxBurst {
			wrong = append(wrong, httpapi.FieldError{Pointer: pointer, Detail: "must be from 0 to 1000000000, with at most 6 decimals"})
		}
		return amount
	}
	if p := body.Pattern; p != nil {
		pattern := simulate.Pattern{
			Rate: p.RatePerSecond, BurstSize: or(p.BurstSize, 1), Duration: span(p.DurationSeconds, time.Second),
			Cost: read("/pattern/cost", p.Cost),
		}
		if len(wrong) > 0 {
			return nil, 0, httpapi.BodyProblem(wrong)
		}
		arrivals, err = pattern.Arrivals()
		var mistakes rules.FieldErrors
		if errors.As(err, &mistakes) {
			err = httpapi.BodyProblem(renamed(mistakes))
		}
		return arrivals, pattern.Duration, err
	}
	for i, a := range *body.Arrivals {
		arrivals = append(arrivals, simulate.Arrival{
			At: span(a.AtMs, time.Millisecond), Cost: read("/arrivals/"+strconv.Itoa(i)+"/cost", a.Cost),
		})
	}
	return arrivals, 0, httpapi.BodyProblem(wrong)
}

// span reads a duration to the microsecond. One that overflows a Duration becomes longer than a simulation may be.
func span(number float64, unit time.Duration) time.Duration {
	nanos := number * float64(unit)
	if nanos >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(nanos).Round(time.Microsecond)
}

func showTimeline(s *simulate.Result, arrivals []simulate.Arrival) openapi.Timeline {
	answer := openapi.Timeline{
		Checks: len(s.Verdicts), Allowed: s.Allowed, Denied: s.Denied, FirstDenialMs: nullable.NewNullNullable[float64](),
		LongestWaitMs: millis(s.LongestWait), LongestDelayMs: millis(s.LongestDelay), Decisions: []openapi.TimelineDecision{},
		Tiers: itemsOf(s.Tiers, func(o *simulate.Outcome) openapi.TimelineTier {
			return openapi.TimelineTier{Violations: o.Violations, Levels: itemsOf(o.Curve, func(p *simulate.Point) openapi.Level {
				return openapi.Level{AtMs: millis(p.At), Tokens: tokens(p.Level)}
			})}
		}),
	}
	if s.FirstDenied >= 0 {
		answer.FirstDenialMs.Set(millis(s.Verdicts[s.FirstDenied].At))
	}
	n := len(s.Verdicts)
	for i := range min(n, maxTimeline) {
		k := i * n / min(n, maxTimeline) // all if they are few, else evenly spread ones
		answer.Decisions = append(answer.Decisions, showVerdict(&s.Verdicts[k], arrivals[k].Cost))
	}
	return answer
}

func showVerdict(v *simulate.Verdict, cost enforce.Tokens) openapi.TimelineDecision {
	shown := openapi.TimelineDecision{
		AtMs: millis(v.At), Cost: tokens(cost), Allowed: v.Allowed, DecidingRule: nullable.NewNullNullable[int](),
		Reason: orNull(openapi.TimelineDecisionReason(v.Reason)), RetryAfterMs: nullable.NewNullableWithValue(millis(v.Wait)), DelayMs: millis(v.Delay),
	}
	if !v.Allowed {
		shown.DecidingRule.Set(v.Deciding)
	}
	if v.Reason == enforce.Blocked || v.Reason == enforce.CostExceedsLimit {
		shown.RetryAfterMs.SetNull()
	}
	return shown
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// explainCheck handles POST …/explain, by the code of /v1/explain.
func (s *surface) explainCheck(w http.ResponseWriter, r *http.Request) {
	explanation, err := s.explanation(r)
	if err != nil {
		s.handlerFailed(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(explanation)))
	_, _ = w.Write(explanation) // a caller that went away needs no answer
}

func (s *surface) explanation(r *http.Request) ([]byte, error) {
	tenant, err := s.tenantRules(requestOf(r.Context()).tenant.ID)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r.Body) // from memory: checkBody has read it
	if err != nil {
		return nil, fmt.Errorf("read a body that is in memory: %w", err)
	}
	return s.Explain(r.Context(), tenant, body)
}
