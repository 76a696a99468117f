package violations

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// takesEffect is how long a change of rules takes to reach every process.
const takesEffect = 2 * time.Second

// Comparison shows a live rule and its candidate on the same checks. Steps are those that begin when both rules are in force
// everywhere. There are none until the first of them begins.
type Comparison struct {
	Steps
	// Points has one for each step.
	Points []ComparedPoint
	// Live is of the checks that the live rule matched, Candidate of those that passed: its denials are additional.
	Live, Candidate Verdicts
	Additional      Additional
}

// ComparedPoint is one step of a Comparison.
type ComparedPoint struct {
	At time.Time
	// Checks are those that the live rule matched. CandidateDenied are checks that passed and the candidate would have denied.
	Checks, LiveDenied, CandidateDenied int64
}

// Additional has the subjects of checks that passed and a candidate would have denied.
type Additional struct {
	// Subjects is their number, and Most those with the most such checks.
	Subjects int64
	Most     []ComparedSubject
	// LookedBackTo is set if the counts before it were too many to be read.
	LookedBackTo time.Time
}

// ComparedSubject is how many checks of a subject the live rule denied, and how many others the candidate would have denied.
type ComparedSubject struct {
	Subject                     string
	LiveDenied, CandidateDenied int64
}

// Compare compares a live rule with its candidate, which are both in force since a time; up to limit subjects are listed. A
// candidate is tried on checks that pass. So it tells what it would deny in addition, and not what it would let pass.
func Compare(
	ctx context.Context, store Store, tenant rules.TenantID, live, candidate rules.RuleID, since, until time.Time, limit int,
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
