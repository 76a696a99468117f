package pgstore

import (
	"context"
	"slices"

	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// CreateCandidate creates a shadow rule that is tried for a live one. Returns rules.ErrExists if the live rule has a
// candidate, and rules.ErrInUse unless it CanBeTried.
func (s Writer) CreateCandidate(ctx context.Context, candidate rules.Rule) (created rules.Rule, err error) {
	err = s.inTenant(ctx, classWrite, candidate.TenantID, func(ctx context.Context, w write) error {
		live, err := w.ruleAt(ctx, candidate.CandidateFor, rules.AnyVersion)
		if err != nil {
			return err
		}
		if !live.CanBeTried() {
			return rules.ErrInUse
		}
		others, err := w.CandidatesOf(ctx, w.tenant, ruleNumbers([]rules.RuleID{live.ID}))
		if err != nil {
			return err
		}
		if len(others) > 0 {
			return rules.ErrExists
		}
		alike, err := w.RulesOfPatterns(ctx, w.tenant, []string{live.Pattern.String()})
		if err != nil {
			return err
		}
		candidate.Pattern, candidate.Plan, candidate.Mode = live.Pattern, live.Plan, rules.ModeShadow
		candidate.Name = live.CandidateName(func(name string) bool {
			return slices.ContainsFunc(alike,
				func(r dbsqlc.RateLimitRule) bool { return r.Name == name && orEmpty(r.Plan) == live.Plan })
		})
		if err := w.requireRoom(ctx, &candidate); err != nil {
			return err
		}
		stored, _, err := w.createRules(ctx, []rules.Rule{candidate})
		created = first(stored)
		return err
	})
	return created, wrap(err, "create a candidate for rule %d", candidate.CandidateFor)
}

func (w write) withCandidates(ctx context.Context, ids []rules.RuleID) ([]rules.RuleID, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	candidates, err := w.CandidatesOf(ctx, w.tenant, ruleNumbers(ids))
	for _, id := range candidates {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// Additional reads the newest violations.MaxTopRows counts of each rule.
func (s *Store) Additional(
	ctx context.Context, tenant rules.TenantID, live, candidate rules.RuleID, steps violations.Steps, limit int,
) (found violations.Additional, err error) {
	rows, err := s.queriesFor(classHeavy, only(tenant)).ComparedSubjects(ctx, dbsqlc.ComparedSubjectsParams{
		TenantID: tenant, Live: int64(live), Candidate: int64(candidate), Since: steps.Since,
		Until:  steps.Until,
		AtMost: int64(s.topRows), PageSize: int64(rowLimit(limit)),
	})
	if err != nil {
		return found, wrap(err, "read whom candidate %d of rule %d would deny in addition", candidate, live)
	}
	for _, row := range rows {
		found.Subjects = row.Subjects
		found.Most = append(found.Most, violations.ComparedSubject{
			Subject: row.Subject, LiveDenied: row.LiveDenied, CandidateDenied: row.CandidateDenied,
		})
		if row.LookedBackTo.After(steps.Since) {
			found.LookedBackTo = row.LookedBackTo.UTC()
		}
	}
	return found, nil
}
