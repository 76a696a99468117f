package replay

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
)

const (
	// EffectChecks is how many checks an effect counts beside an editor.
	EffectChecks = 100_000
	effectRange  = 24 * time.Hour
	// A smaller sample must have 1/sampledPart of the checks. The latest checks of a larger one say more than those of
	// hardly any users.
	sampledPart  = 10
	mostUnpacked = 2_000_000 // unpacked to find checks that count
)

// ErrNotInSample means that the only user of a candidate is not in the recorded sample.
var ErrNotInSample = errors.New("the user is not in the sample that is recorded")

// Effect replays a candidate over at most so many checks of the last day: EffectChecks beside an editor, up to ten
// times as many by the API. The difference is the candidate's alone, because the present rules and overrides are the
// other side.
//
// A sample of users and addresses is replayed if there are more checks or only a sample is recorded, without shared
// limits. A candidate that they share needs all checks, and the costs outside of the sample. A candidate of one
// override takes the checks of its user. If these are still too many, the latest are taken, and Result.First says since
// when.
//
// Without checks, Result.Read is 0 and Result.Since is the start of the search. Result.Listed stays empty.
func Effect(ctx context.Context, source Source, tenant rules.TenantID, candidate *Candidate, most int64, now time.Time,
) (*Result, error) {
	in := &Input{Tenant: tenant, Since: now.Add(-effectRange), Until: now, Candidate: candidate, User: candidate.user()}
	e := &effect{
		source: source, in: in, most: most, seen: math.MaxInt64,
		of: traffic.Range{Since: in.Since, Until: now, MostStratum: traffic.Strata - 1},
	}
	var err error
	if e.sum, err = source.Summary(ctx, tenant, e.of); err != nil {
		return nil, err
	}
	in.Level = min(e.sum.Level, traffic.Strata-1)
	switch {
	case in.User != "" && traffic.StratumOfUser(tenant, in.User) < in.Level:
		return nil, ErrNotInSample
	case in.User != "":
		in.Level = 0 // of this user everything is there, and nothing in a stratum below the user's
		e.of.LeastStratum = traffic.StratumOfUser(tenant, in.User)
	case candidate.isShared():
		e.of.MostStratum, e.seen = traffic.StratumOfSums, mostUnpacked
	case in.Level > 0 || e.sum.ChecksFrom(0) > most:
		for in.Level < traffic.Strata-1 && e.sum.ChecksFrom(in.Level) > most &&
			e.sum.ChecksFrom(in.Level+1) >= most/sampledPart {
			in.Level++
		}
		in.IsPartial, e.of.LeastStratum = true, in.Level
	}
	if e.sum.ChecksFrom(e.of.LeastStratum) == 0 {
		return &Result{Since: in.Since.UTC(), Until: now.UTC()}, nil
	}
	r, events, err := e.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.decide(ctx, events, false); err != nil {
		return nil, err
	}
	r.count(events)
	return r.result(), nil
}

type effect struct {
	source Source
	in     *Input
	sum    traffic.Summary
	of     traffic.Range // with so many checks, for sums
	seen   int64
	most   int64 // of the checks that are counted
}

// read returns the checks to decide, and their deciders. If too few are of users rather than addresses, which blocks do
// not say, it goes on to the limit.
func (e *effect) read(ctx context.Context) (r *run, events []event, err error) {
	if e.in.History, err = e.source.History(ctx, e.in.Tenant, e.in.Until); err != nil {
		return nil, nil, err
	}
	e.in.History.hold(e.in.Until)
	if e.in.User != "" {
		if e.in.Since, e.in.Blocks, err = e.source.BlocksOfUser(ctx, e.in.Tenant, e.in.User, e.of,
			mostUnpacked); err != nil {
			return nil, nil, err
		}
		r = newRun(e.in, bucketsOfOne)
		events, _, err = r.latest(ctx, int(e.most))
		return r, events, err
	}
	for _, enough := range []int64{e.most, mostUnpacked} {
		since, err := e.since(ctx, enough)
		if err != nil {
			return nil, nil, err
		}
		if r != nil && !since.Before(e.in.Since) {
			break
		}
		of := e.of
		of.Since, e.in.Since = since, since
		e.in.Blocks = e.source.Blocks(ctx, e.in.Tenant, of)
		r = newRun(e.in, bucketsOfOne)
		var isFull bool
		if events, isFull, err = r.latest(ctx, int(e.most)); err != nil {
			return nil, nil, err
		}
		if isFull {
			break
		}
	}
	return r, events, nil
}

func (e *effect) since(ctx context.Context, checks int64) (time.Time, error) {
	if e.sum.ChecksFrom(e.of.LeastStratum) <= checks && e.sum.Seen <= e.seen {
		return e.of.Since, nil
	}
	return e.source.Latest(ctx, e.in.Tenant, e.of, checks, e.seen)
}

func (c *Candidate) user() string {
	if c.Prune || c.Plan != "" || len(c.Remove)+len(c.Config.Rules) > 0 || len(c.Config.Overrides) != 1 {
		return ""
	}
	return c.Config.Overrides[0].UserID
}

// IsOfUser reports whether a candidate concerns one user.
func (c *Candidate) IsOfUser() bool { return c.user() != "" }

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
