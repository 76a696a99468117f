package replay

import (
	"context"
	"errors"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
)

const (
	// effectRange is the time that an effect looks at, and effectChecks caps the checks: about a second.
	effectRange  = 24 * time.Hour
	effectChecks = 100_000
)

// mostUnpacked caps the checks that are unpacked to find those of one user.
const mostUnpacked = 2_000_000

// ErrNotInSample means that the only user of a candidate is not in the sample that is recorded.
var ErrNotInSample = errors.New("the user is not in the sample that is recorded")

// Effect replays a candidate over at most 100,000 checks of the last day, fast enough to stand beside an editor.
//
// If there are more, it takes a sample of the users and addresses, without the limits that they share. A candidate that they
// share needs all checks, so then it takes the latest ones, and Result.Since says since when. A candidate of one override takes
// the checks of its user. Buckets begin full.
func Effect(ctx context.Context, source Source, tenant rules.TenantID, candidate *Candidate, now time.Time) (*Result, error) {
	in := &Input{Tenant: tenant, Since: now.Add(-effectRange), Until: now, Candidate: candidate, User: candidate.user()}
	sum, err := source.Summary(ctx, tenant, traffic.Range{Since: in.Since, Until: now})
	if err != nil {
		return nil, err
	}
	if sum.Checks == 0 {
		return nil, ErrNothing
	}
	in.Level = min(sum.Level, traffic.Strata-1)
	if in.User != "" {
		return effectOnUser(ctx, source, in, &sum)
	}
	checks := sum.Checks
	for level := range in.Level {
		checks -= sum.Strata[level]
	}
	switch {
	case checks <= effectChecks:
	case candidate.isShared():
		in.Since = latest(in, &sum, effectChecks)
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

// effectOnUser replays all checks of one user.
func effectOnUser(ctx context.Context, source Source, in *Input, sum *traffic.Summary) (result *Result, err error) {
	if traffic.StratumOfUser(in.Tenant, in.User) < in.Level {
		return nil, ErrNotInSample
	}
	in.Level = 0 // of this user everything is there
	if sum.Checks > mostUnpacked {
		in.Since = latest(in, sum, mostUnpacked)
	}
	if in.History, err = source.History(ctx, in.Tenant, in.Since); err != nil {
		return nil, err
	}
	in.Blocks = source.Blocks(ctx, in.Tenant, traffic.Range{Since: in.Since, Until: in.Until, User: in.User})
	return Run(ctx, in, Options{})
}

// latest returns since when there are about so many checks.
func latest(in *Input, sum *traffic.Summary, checks int) time.Time {
	span := in.Until.Sub(sum.Oldest)
	return in.Until.Add(-time.Duration(float64(span) * float64(checks) / float64(sum.Checks)))
}

// user returns the only user whom a candidate concerns, or "".
func (c *Candidate) user() string {
	if c.Prune || c.Plan != "" || len(c.Remove)+len(c.Config.Rules) > 0 || len(c.Config.Overrides) != 1 {
		return ""
	}
	return c.Config.Overrides[0].UserID
}

// IsOfUser reports whether a candidate concerns one user only.
func (c *Candidate) IsOfUser() bool { return c.user() != "" }

// isShared reports whether some limit of a candidate may be shared by users.
func (c *Candidate) isShared() bool {
	if c.Prune || c.Plan != "" {
		return true
	}
	for i := range c.Config.Rules {
		if kindOf(&c.Config.Rules[i]) == byAll {
			return true
		}
	}
	for _, id := range c.Remove {
		pattern, err := rules.ParsePattern(id.Pattern)
		if err != nil || kindOf(&rules.Rule{Pattern: pattern}) == byAll {
			return true
		}
	}
	return false
}
