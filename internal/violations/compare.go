package violations

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// Comparison shows a live rule and its candidate on the same checks.
type Comparison struct {
	Steps
	// Points has one for each step.
	Points []ComparedPoint
	// Live and Candidate are the totals. The candidate's denials are those that it would have made.
	Live, Candidate Verdicts
	Differing       Differing
}

// ComparedPoint is one step of a Comparison.
type ComparedPoint struct {
	At time.Time
	// Checks are those that the live rule matched.
	Checks, LiveDenied, CandidateDenied int64
}

// Differing has the subjects that one rule denied and the other did not.
type Differing struct {
	// Live has subjects that the live rule alone denied, Candidate those that only the candidate would have.
	Live, Candidate Subjects
	// LookedBackTo is set if the counts before it were too many to be read.
	LookedBackTo time.Time
}

// Subjects are subjects of a rule.
type Subjects struct {
	// Subjects is their number, and Most those that were denied most often.
	Subjects int64
	Most     []DeniedSubject
}

// DeniedSubject is how often a subject was denied.
type DeniedSubject struct {
	Subject string
	Denied  int64
}

// Compare compares a live rule with its candidate; up to limit subjects are listed on each side. A candidate takes tokens
// only for checks that pass. So a candidate that is looser than the live rule hardly ever denies.
func Compare(
	ctx context.Context, store Store, tenant rules.TenantID, live, candidate rules.RuleID, since, until time.Time, limit int,
) (c Comparison, err error) {
	c.Steps = StepsFor(since, until)
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
	c.Differing, err = store.Differing(ctx, tenant, live, candidate, c.Steps, limit)
	return c, err
}
