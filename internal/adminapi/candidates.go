package adminapi

import (
	"context"
	"errors"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
	longestComparison = 30 * 24 * time.Hour
	comparedSubjects  = 10
)

func (s *surface) CreateCandidate(ctx context.Context,
	request openapi.CreateCandidateRequestObject,
) (openapi.CreateCandidateResponseObject, error) {
	tenant := requestOf(ctx).tenant
	live, err := s.Stores.Rule(ctx, tenant.ID, rules.RuleID(request.RuleId))
	if err != nil {
		return nil, err
	}
	if !live.CanBeTried() {
		return nil, cannotBeTried
	}
	candidate := live
	wrong := candidate.Patch(*request.Body)
	wrong = append(wrong, candidate.WrongMeterChange(&live)...) // it could never be promoted
	if candidate.Action == rules.ActionBypass {
		wrong.Add("action", "must be limit or block: a bypass has no shadow mode")
	}
	candidate.Mode, candidate.Active, candidate.CandidateFor = rules.ModeShadow, true, candidate.ID
	if wrong, err = s.wrongRule(ctx, &candidate, wrong); err != nil {
		return nil, err
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	candidate, err = s.acting(ctx, "try as shadow").CreateCandidate(ctx, candidate)
	switch {
	case errors.Is(err, rules.ErrExists):
		return nil, httpapi.Conflict.Problem("The rule has a candidate already. Promote or discard that one first.")
	case errors.Is(err, rules.ErrInUse):
		return nil, cannotBeTried
	case err != nil:
		return nil, err
	}
	return openapi.CreateCandidate201JSONResponse{RuleCreatedJSONResponse: answerNewRule(ctx, &candidate)}, nil
}

var cannotBeTried = httpapi.Conflict.Problem("Only an enforced limit or block can have a candidate.")

func (s *surface) CompareCandidate(ctx context.Context,
	request openapi.CompareCandidateRequestObject,
) (openapi.CompareCandidateResponseObject, error) {
	tenant := requestOf(ctx).tenant.ID
	candidate, err := s.Stores.Rule(ctx, tenant, rules.RuleID(request.RuleId))
	if err != nil {
		return nil, err
	}
	var live rules.Rule
	if candidate.CandidateFor != 0 {
		live, err = s.Stores.Rule(ctx, tenant, candidate.CandidateFor)
	}
	if candidate.CandidateFor == 0 || errors.Is(err, rules.ErrNotFound) {
		return nil, httpapi.Conflict.Problem("This rule is no candidate of a live rule.")
	}
	if err != nil {
		return nil, err
	}
	until := s.Now().UTC()
	since := until.Add(-longestComparison)
	for _, began := range []time.Time{candidate.InForceSince, live.InForceSince} {
		if began.After(since) {
			since = began
		}
	}
	if since.After(until) { // by the database's clock
		since = until
	}
	c, err := violations.Compare(ctx, s.Violations, tenant, live.ID, candidate.ID, since, until, comparedSubjects)
	if err != nil {
		return nil, err
	}
	return openapi.CompareCandidate200JSONResponse{
		Live: showRule(&live), Since: c.Since, Until: until, StepSeconds: int(c.Step / time.Second),
		Points: itemsOf(c.Points, func(p *violations.ComparedPoint) openapi.ComparedPoint {
			return openapi.ComparedPoint{
				At: p.At, Checks: p.Checks, LiveDenied: p.LiveDenied,
				CandidateDenied: p.CandidateDenied,
			}
		}),
		LiveTotal: showVerdicts(&c.Live), CandidateTotal: showVerdicts(&c.Candidate),
		Subjects: c.Additional.Subjects,
		Items: itemsOf(c.Additional.Most, func(of *violations.ComparedSubject) openapi.ComparedSubject {
			return openapi.ComparedSubject{
				Subject: of.Subject, LiveDenied: of.LiveDenied,
				CandidateDenied: of.CandidateDenied,
			}
		}),
		LookedBackTo: timeOrNull(c.Additional.LookedBackTo),
	}, nil
}
