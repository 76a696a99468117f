package replay

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
)

const (
	// effectRange is the time that an effect looks at, and effectChecks caps the checks: about a second.
	effectRange  = 24 * time.Hour
	effectChecks = 100_000
)

// Effect replays a candidate over at most 100,000 checks of the last day, fast enough to stand beside an editor.
//
// If there are more, it takes a sample of the users and addresses, without the limits that they share. A candidate that they
// share needs all checks, so then it takes the latest ones, and Result.Since says since when. Buckets begin full.
func Effect(ctx context.Context, source Source, tenant rules.TenantID, candidate *Candidate, now time.Time) (*Result, error) {
	in := &Input{Tenant: tenant, Since: now.Add(-effectRange), Until: now, Candidate: candidate}
	sum, err := source.Summary(ctx, tenant, traffic.Range{Since: in.Since, Until: now})
	if err != nil {
		return nil, err
	}
	if sum.Checks == 0 {
		return nil, ErrNothing
	}
	in.Level = min(sum.Level, traffic.Strata-1)
	checks := sum.Checks
	for level := range in.Level {
		checks -= sum.Strata[level]
	}
	isShared := false
	for i := range candidate.Config.Rules {
		isShared = isShared || kindOf(&candidate.Config.Rules[i]) == byAll
	}
	switch {
	case checks <= effectChecks:
	case isShared:
		span := now.Sub(sum.Oldest)
		in.Since = now.Add(-time.Duration(float64(span) * effectChecks / float64(sum.Checks)))
	default:
		for ; checks > effectChecks && in.Level < traffic.Strata-1; in.Level++ {
			checks -= sum.Strata[in.Level]
			in.IsPartial = true
		}
	}
	if in.History, err = source.History(ctx, tenant, in.Since); err != nil {
		return nil, err
	}
	of := traffic.Range{Since: in.Since, Until: now}
	if in.IsPartial {
		of.LeastStratum = in.Level
	}
	in.Blocks = source.Blocks(ctx, tenant, of)
	return Run(ctx, in, Options{})
}
