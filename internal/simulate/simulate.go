// Package simulate answers what would have happened: it lets arrivals, recorded or made up, meet candidate rules in
// buckets of its own.
//
// Decisions are those of [enforce.Limiter], over a store that only the simulation sees. No other package is asked, so
// nothing outside of the process can fail it. maxArrivals, maxCandidates and maxPoints bound what it costs.
package simulate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// maxCandidates is how many rules a simulation can have.
const maxCandidates = 64

// maxListedWork caps the product of arrivals and of all bursts of limits that keep lists, which each arrival may copy.
const maxListedWork = 100_000 * 2 * rules.MaxListed

// Candidate is one rule of a simulation, which every arrival meets.
type Candidate struct {
	// Rule says what it does: its action, mode and limit. Its pattern and plan mean nothing, and it counts as active.
	rules.Rule
	// Level is what the bucket holds at the start; nil for a full one. A log and places begin full, since nothing says
	// when what is missing would end.
	Level *enforce.Tokens
}

// Result is what happened in a simulation.
type Result struct {
	Verdicts []Verdict // one for each arrival
	Tiers    []Outcome // one for each candidate
	// Allowed and Denied count arrivals.
	Allowed, Denied int
	// FirstDenied is the index of the first arrival that was denied; -1 if none was.
	FirstDenied int
	// LongestWait is the longest that a denied arrival was told to wait; see Verdict.Wait.
	LongestWait time.Duration
	// LongestDelay is the longest that queues make an allowed arrival wait; see Verdict.Delay.
	LongestDelay time.Duration
}

// Verdict is the answer to one arrival.
type Verdict struct {
	At      time.Duration // since the start
	Allowed bool
	Reason  enforce.Reason // "" when allowed
	// Deciding is the index of the candidate that decided, as Decision.Deciding says it; -1 for none.
	Deciding int
	// Wait is how long until the deciding candidate would have allowed the arrival; 0 if it was
	// allowed or never would be, because of a block or a cost above the limit.
	Wait time.Duration
	// Delay is how long the enforced queues make an allowed arrival wait or, if it was denied, how long the queue of the
	// deciding candidate was; 0 if that is no queue.
	Delay time.Duration
}

// Outcome is what happened to one candidate.
type Outcome struct {
	// Violations counts those that would have been recorded: arrivals that the candidate denied by
	// deciding or, in shadow mode, would have denied though they were allowed.
	Violations int
	// Curve is what the bucket held from the start to the end; nil for block and bypass.
	Curve []Point
}

// Run answers arrivals in order of time as a Limiter over an empty store would. It runs the very
// code: decisions are those of Limiter.Decide, and buckets those of membucket. Candidates are in the
// order of rule ids; limits have been in force since before the start. Curves end at the last arrival
// or, if that is later, at until.
//
// There can be maxCandidates and maxArrivals; errors are rules.FieldErrors about rules, timestamps
// and duration, or the context's when it ends. The most that can be asked for takes about a second and 25 MB.
func Run(ctx context.Context, candidates []Candidate, arrivals []Arrival, until time.Duration) (*Result, error) {
	errs := append(wrongCandidates(candidates), wrongArrivals(arrivals)...)
	listed := int64(0)
	for i := range candidates {
		if limit := candidates[i].Limit(); limit.Kind >= rules.KindSlidingWindowLog {
			listed += limit.Burst
		}
	}
	if listed > 0 && int64(len(arrivals)) > maxListedWork/listed {
		errs.Add("rules", fmt.Sprintf("must have fewer entries: logs and places of %d at %d arrivals take too long", listed, len(arrivals)))
	}
	if until > rules.MaxTimeToFull {
		errs = append(errs, rules.FieldError{Field: "duration", Message: fmt.Sprintf(
			"must be at most %.0f days, got %v", rules.MaxTimeToFull.Hours()/24, until)})
	}
	if len(errs) > 0 {
		return nil, errs
	}
	s := newSimulator(candidates, max(until, arrivals[len(arrivals)-1].At))
	s.result.Verdicts = make([]Verdict, 0, len(arrivals))
	for i, arrival := range arrivals {
		if i%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		s.arrive(ctx, arrival)
	}
	for i, candidate := range s.rules {
		s.drawTo(i, s.until)
		s.result.Tiers[candidate].Curve = s.curves[i].all()
	}
	return &s.result, nil
}

func wrongCandidates(candidates []Candidate) rules.FieldErrors {
	if len(candidates) < 1 || len(candidates) > maxCandidates {
		return rules.FieldErrors{{Field: "rules", Message: fmt.Sprintf("must be 1 to %d, got %d", maxCandidates, len(candidates))}}
	}
	var errs rules.FieldErrors
	for i, c := range candidates {
		wrong := func(field, message string) {
			errs = append(errs, rules.FieldError{Field: fmt.Sprintf("rules[%d].%s", i, field), Message: message})
		}
		if c.Mode != rules.ModeEnforce && c.Mode != rules.ModeShadow {
			wrong("mode", fmt.Sprintf("must be enforce or shadow, got %q", c.Mode))
		}
		switch c.Action {
		case rules.ActionLimit:
			limit := c.Limit()
			bad := limit.Validate()
			for _, e := range bad {
				wrong(e.Field, e.Message)
			}
			full := capacity(limit)
			switch {
			case len(bad) > 0 || c.Level == nil:
			case *c.Level < 0 || *c.Level > full:
				wrong("level", fmt.Sprintf("must be from 0 to the burst, which is %v, got %v", full, *c.Level))
			case *c.Level < full && limit.Kind >= rules.KindSlidingWindowLog:
				wrong("level", fmt.Sprintf("must be left out: nothing says when what is missing of a %s would end", c.Algorithm))
			}
		case rules.ActionBlock:
		case rules.ActionBypass:
			if c.Mode == rules.ModeShadow {
				wrong("mode", "must be enforce: a bypass rule has no shadow mode")
			}
		default:
			wrong("action", fmt.Sprintf("must be limit, block or bypass, got %q", c.Action))
		}
	}
	return errs
}

// simulator is a simulation under way, and the store of its buckets. Its slices by tier are those of the buckets that
// are asked: none behind a block or a bypass.
type simulator struct {
	result  Result
	until   time.Duration
	at      time.Duration // of the arrival at hand
	limiter *enforce.Limiter
	tenant  *snapshot.Tenant
	check   [1]enforce.Check
	answer  [1]enforce.Decision
	start   []*enforce.State // by candidate
	rules   []int            // by tier, the candidate
	held    []*enforce.State // by tier
	settled []enforce.State  // likewise; reused
	drawn   []enforce.State  // by tier, as its curve ends
	curves  []curve          // by tier
	// ends is when the places of a concurrency limit are free again, by tier and in order. Nobody releases one.
	ends [][]time.Duration
}

func newSimulator(candidates []Candidate, until time.Duration) *simulator {
	s := &simulator{until: until}
	s.result.FirstDenied = -1
	s.result.Tiers = make([]Outcome, len(candidates))
	rows := snapshot.Rows{Tenants: []rules.Tenant{{ID: 1}}}
	for i, c := range candidates {
		rule := c.Rule
		rule.ID, rule.TenantID, rule.Pattern, rule.Plan, rule.FailureMode, rule.Active = rules.RuleID(i+1), 1, everyRequest, "", "", true
		rule.InForceSince, rule.ExpiresAt = time.Time{}, time.Time{}
		rows.Rules = append(rows.Rules, rule)
		bucket := enforce.NewState(rule.Limit(), 0)
		if c.Level != nil {
			bucket.Level.Micros = *c.Level
		}
		s.start = append(s.start, &bucket)
	}
	s.tenant = snapshot.New(rows).Tenant(1)
	s.limiter = enforce.NewLimiter(s, s, unobserved{}, nil)
	return s
}

// everyRequest is the pattern of a rule that every arrival meets.
var everyRequest = func() rules.Pattern {
	pattern, err := rules.ParsePattern("global")
	if err != nil {
		panic(err)
	}
	return pattern
}()

// unobserved ignores what a Limiter reports.
type unobserved struct{}

func (unobserved) Decided(*snapshot.Tenant, *enforce.Check, *enforce.Decision) {}
func (unobserved) StoreAnswered(time.Duration, error)                          {}

// candidateOf returns the index of a candidate by its rule.
func candidateOf(id rules.RuleID) int { return int(id) - 1 }

// arrive answers one arrival.
func (s *simulator) arrive(ctx context.Context, arrival Arrival) {
	s.at = arrival.At
	s.check[0].Cost = arrival.Cost
	s.limiter.Decide(ctx, s.tenant, s.check[:], s.answer[:])
	s.count(&s.answer[0])
}

// Take is the store of the simulated buckets: it holds the check that the Limiter makes of the arrival at hand.
func (s *simulator) Take(_ context.Context, checks []enforce.BucketCheck) error {
	check := &checks[0]
	for i := len(s.held); i < len(check.Tiers); i++ { // the first arrival
		candidate := candidateOf(check.Tiers[i].Key.Rule)
		bucket := s.start[candidate]
		s.rules, s.held, s.drawn = append(s.rules, candidate), append(s.held, bucket), append(s.drawn, *bucket)
		s.curves = append(s.curves, curve{until: s.until})
		s.ends = append(s.ends, nil)
		s.curves[i].add(Point{0, left(bucket)})
	}
	s.settled = slices.Grow(s.settled[:0], len(check.Tiers))[:len(check.Tiers)]
	if !check.TakeFrom(s.held, s.settled, s.at.Microseconds()) {
		return nil
	}
	for i := range check.Tiers {
		if check.Tiers[i].Holds {
			if limit := check.Tiers[i].Limit; limit.Kind == rules.KindConcurrency {
				s.ends[i] = append(s.ends[i], s.at+time.Duration(limit.Interval)*time.Microsecond)
			}
			s.drawTo(i, s.at)
			s.drawn[i] = *s.held[i]
			s.curves[i].add(Point{s.at, left(&s.drawn[i])})
		}
	}
	return nil
}

// SettleReservation finds none: simulated checks do not reserve.
func (s *simulator) SettleReservation(context.Context, rules.TenantID, enforce.ReservationID, enforce.Settlement) (enforce.Settled, error) {
	return enforce.Settled{}, nil
}

func (s *simulator) count(d *enforce.Decision) {
	r := &s.result
	v := Verdict{At: s.at, Allowed: d.Allowed, Reason: d.Reason, Deciding: -1, Delay: d.Delay}
	if t := d.DecidingTier(); t != nil {
		v.Deciding, v.Wait = candidateOf(t.Match.Rule.ID), t.RetryAfter
		if !d.Allowed {
			v.Delay = t.Delay
		}
	}
	if d.Allowed {
		r.Allowed++
		r.LongestDelay = max(r.LongestDelay, v.Delay)
		for i := range d.Tiers {
			if t := &d.Tiers[i]; !t.Allowed {
				r.Tiers[candidateOf(t.Match.Rule.ID)].Violations++
			}
		}
	} else {
		if r.Denied == 0 {
			r.FirstDenied = len(r.Verdicts)
		}
		r.Denied++
		r.Tiers[v.Deciding].Violations++
		r.LongestWait = max(r.LongestWait, v.Wait)
	}
	r.Verdicts = append(r.Verdicts, v)
}

// capacity is what a full bucket holds.
func capacity(limit enforce.Limit) enforce.Tokens { return enforce.NewState(limit, 0).Level.Micros }
