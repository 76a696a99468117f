package violations

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

const takesEffect = 2 * time.Second

// Comparison compares a live rule with its candidate on the same checks. Steps begin once both rules are in force
// everywhere.
type Comparison struct {
	Steps
	Points []ComparedPoint
	// Live counts the checks that the live rule matched. Candidate counts the allowed ones, since its denials are
	// additional.
	Live, Candidate Verdicts
	Additional      Additional
}

// ComparedPoint is a step of a Comparison.
type ComparedPoint struct {
	At time.Time
	// Checks are those that the live rule matched, CandidateDenied the allowed ones that the candidate would have
	// denied.
	Checks, LiveDenied, CandidateDenied int64
}

// Additional are the subjects of allowed checks that a candidate would have denied.
type Additional struct {
	Subjects     int64 // Most are those with the most such checks
	Most         []ComparedSubject
	LookedBackTo time.Time // set if older counts were too many to read
}

// ComparedSubject counts the checks that the live rule denied, and those that only the candidate would have denied.
type ComparedSubject struct {
	Subject                     string
	LiveDenied, CandidateDenied int64
}

// Compare compares a live rule with its candidate, both in force since a time, with up to limit subjects. A candidate
// only sees allowed checks, so the result lacks what the candidate would allow.
func Compare(
	ctx context.Context, store Store, tenant rules.TenantID, live, candidate rules.RuleID, since, until time.Time,
	limit int,
) (c Comparison, err error) {
	c.Steps = StepsFor(since, until)
	if ready := since.Add(takesEffect); c.Since.Before(ready) {
		c.Since = StepsOf(ready, ready, c.Step).Until
	}
	if !c.Since.Before(until) {
		c.Until = c.Since
		return c, nil
	}
	c.Points = make([]ComparedPoint, c.Count())
	for i := range c.Points {
		c.Points[i].At = c.Since.Add(time.Duration(i) * c.Step)
	}
	add := func(rule rules.RuleID, total *Verdicts, note func(*ComparedPoint, *Verdicts)) error {
		known, err := store.Decisions(ctx, tenant, rule, c.Steps)
		for i := range known {
			total.add(known[i].Verdicts)
			if at := int(known[i].At.Sub(c.Since) / c.Step); at >= 0 && at < len(c.Points) {
				note(&c.Points[at], &known[i].Verdicts)
			}
		}
		return err
	}
	err = add(live, &c.Live, func(p *ComparedPoint, v *Verdicts) { p.Checks, p.LiveDenied = v.Checks(), v.Denied })
	if err != nil {
		return c, err
	}
	err = add(candidate, &c.Candidate, func(p *ComparedPoint, v *Verdicts) { p.CandidateDenied = v.Denied })
	if err != nil {
		return c, err
	}
	c.Additional, err = store.Additional(ctx, tenant, live, candidate, c.Steps, limit)
	return c, err
}
