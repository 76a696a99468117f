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
// share needs all checks. A candidate of one override takes the checks of its user. Of what is still too much it takes the latest
// checks, and Result.First says since when. Buckets begin full.
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
	of, checks := traffic.Range{Since: in.Since, Until: now}, sum.Checks
	if checks > effectChecks && !candidate.isShared() {
		for level := range in.Level {
			checks -= sum.Strata[level]
		}
		for ; checks > effectChecks && in.Level < traffic.Strata-1; in.Level++ {
			checks -= sum.Strata[in.Level]
		}
		in.IsPartial, of.LeastStratum = true, in.Level
	}
	return effectOf(ctx, source, in, of, checks > effectChecks, effectChecks)
}

// effectOf replays the latest checks of a range. If there are too many, blocks are read that have at least enough of them.
func effectOf(ctx context.Context, source Source, in *Input, of traffic.Range, tooMany bool, enough int64) (result *Result, err error) {
	if tooMany {
		if of.Since, err = source.Latest(ctx, in.Tenant, of, enough); err != nil {
			return nil, err
		}
		in.Since = of.Since
	}
	if in.History, err = source.History(ctx, in.Tenant, in.Since); err != nil {
		return nil, err
	}
	in.Blocks, in.Most = source.Blocks(ctx, in.Tenant, of), effectChecks
	return Run(ctx, in, Options{})
}

// effectOnUser replays the checks of one user.
func effectOnUser(ctx context.Context, source Source, in *Input, sum *traffic.Summary) (*Result, error) {
	if traffic.StratumOfUser(in.Tenant, in.User) < in.Level {
		return nil, ErrNotInSample
	}
	in.Level = 0 // of this user everything is there
	of := traffic.Range{Since: in.Since, Until: in.Until, User: in.User}
	return effectOf(ctx, source, in, of, sum.Checks > mostUnpacked, mostUnpacked)
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
