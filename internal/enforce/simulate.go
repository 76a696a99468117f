package enforce

import (
	"context"
	"fmt"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// MaxCandidates is how many rules a simulation can have.
const MaxCandidates = 64

// Candidate is one rule of a simulation, which every arrival meets.
type Candidate struct {
	Limit  Limit // meaningless for block and bypass
	Mode   rules.Mode
	Action rules.Action
	// Level is what the bucket holds at the start; nil for a full one.
	Level *Tokens
}

// Simulation is what happened in one.
type Simulation struct {
	Verdicts []Verdict // one for each arrival
	Tiers    []Outcome // one for each candidate
	// Allowed and Denied count arrivals.
	Allowed, Denied int
	// FirstDenied is the index of the first arrival that was denied; -1 if none was.
	FirstDenied int
	// LongestWait is the longest that a denied arrival was told to wait; see Verdict.Wait.
	LongestWait time.Duration
}

// Verdict is the answer to one arrival.
type Verdict struct {
	At      time.Duration // since the start
	Allowed bool
	Reason  Reason // "" when allowed
	// Deciding is the index of the candidate that decided, as Decision.Deciding says it; -1 for none.
	Deciding int
	// Wait is how long until the deciding candidate would have allowed the arrival; 0 if it was
	// allowed or never would be, because of a block or a cost above the limit.
	Wait time.Duration
}

// Outcome is what happened to one candidate.
type Outcome struct {
	// Violations counts those that would have been recorded: arrivals that the candidate denied by
	// deciding or, in shadow mode, would have denied though they were allowed.
	Violations int
	// Curve is what the bucket held from the start to the end; nil for block and bypass.
	Curve []CurvePoint
}

// Simulate answers arrivals in order of time as a Limiter over an empty store would. It runs the very
// code: decisions are those of Limiter.Decide, and buckets those of membucket. Candidates are in the
// order of rule ids; limits have been in force since before the start. Curves end at the last arrival
// or, if that is later, at until.
//
// There can be MaxCandidates and MaxArrivals; errors are rules.FieldErrors about rules, timestamps
// and duration, or the context's when it ends. The most that can be asked for takes about a second and 20 MB.
func Simulate(ctx context.Context, candidates []Candidate, arrivals []Arrival, until time.Duration) (*Simulation, error) {
	errs := append(wrongCandidates(candidates), wrongArrivals(arrivals)...)
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
		s.arrive(arrival)
	}
	for i := range s.check.Tiers {
		s.drawTo(i, s.until)
		s.outcome(i).Curve = s.curves[i].all()
	}
	return &s.result, nil
}

func wrongCandidates(candidates []Candidate) rules.FieldErrors {
	if len(candidates) < 1 || len(candidates) > MaxCandidates {
		return rules.FieldErrors{{Field: "rules", Message: fmt.Sprintf("must be 1 to %d, got %d", MaxCandidates, len(candidates))}}
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
			bad := c.Limit.Validate()
			for _, e := range bad {
				wrong(e.Field, e.Message)
			}
			if full := capacity(c.Limit); len(bad) == 0 && c.Level != nil && (*c.Level < 0 || *c.Level > full) {
				wrong("level", fmt.Sprintf("must be from 0 to the burst, which is %v, got %v", full, *c.Level))
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

// simulator is a simulation under way. Its slices by tier are those of the buckets that are asked:
// none behind a block or a bypass.
type simulator struct {
	result Simulation
	until  time.Duration
	begun  Decision       // what every decision begins with
	tiers  []TierDecision // of the decision at hand
	check  BucketCheck    // of the arrival at hand
	held   []*Bucket      // by tier
	drawn  []Bucket       // by tier, as its curve ends
	curves []curve        // by tier
}

func newSimulator(candidates []Candidate, until time.Duration) *simulator {
	s := &simulator{until: until}
	s.result.FirstDenied = -1
	s.result.Tiers = make([]Outcome, len(candidates))
	matches := make([]rules.Match, len(candidates))
	for i, c := range candidates {
		// The id is the index, by which everything below finds its candidate.
		matches[i] = rules.Match{Rule: &rules.Rule{ID: rules.RuleID(i), Action: c.Action}, Mode: c.Mode, Limit: c.Limit}
		matches[i].Limit.Since = 0
	}
	s.begun.matches = matches
	s.begun.begin("")
	s.tiers = make([]TierDecision, len(s.begun.Tiers))
	s.check.Tiers = bucketTiers(&snapshot.Tenant{}, s.begun.Tiers, make([]Tier, 0, len(candidates)))
	s.curves = make([]curve, len(s.check.Tiers))
	for i := range s.check.Tiers {
		tier := &s.check.Tiers[i]
		bucket := NewBucket(tier.Limit, 0)
		if level := candidates[tier.Key.Rule].Level; level != nil {
			bucket.Level.Micros = *level
		}
		s.held = append(s.held, &bucket)
		s.drawn = append(s.drawn, bucket)
		s.curves[i].until = until
		s.curves[i].add(CurvePoint{0, bucket.Level.Micros})
	}
	return s
}

func (s *simulator) outcome(tier int) *Outcome { return &s.result.Tiers[s.check.Tiers[tier].Key.Rule] }

// arrive answers one arrival.
func (s *simulator) arrive(arrival Arrival) {
	s.check.Cost = arrival.Cost
	if s.check.TakeFrom(s.held, arrival.At.Microseconds()) {
		s.drawTake(arrival.At)
	}
	d := s.begun
	d.Tiers = s.tiers
	copy(d.Tiers, s.begun.Tiers)
	d.read(s.check.Tiers, arrival.Cost)
	d.conclude()
	s.count(&d, arrival.At)
}

func (s *simulator) count(d *Decision, at time.Duration) {
	r := &s.result
	v := Verdict{At: at, Allowed: d.Allowed, Reason: d.Reason, Deciding: -1}
	if t := d.DecidingTier(); t != nil {
		v.Deciding, v.Wait = int(t.Match.Rule.ID), t.RetryAfter
	}
	if d.Allowed {
		r.Allowed++
		for i := range d.Tiers {
			if t := &d.Tiers[i]; !t.Allowed {
				r.Tiers[t.Match.Rule.ID].Violations++
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

// drawTake draws what the ask at hand took.
func (s *simulator) drawTake(at time.Duration) {
	for i := range s.check.Tiers {
		if s.check.Tiers[i].Holds {
			s.drawTo(i, at)
			s.drawn[i] = *s.held[i]
			s.curves[i].add(CurvePoint{at, s.drawn[i].Level.Micros})
		}
	}
}

// drawTo draws a tier's bucket up to a moment before which nothing was taken since it was last drawn.
func (s *simulator) drawTo(i int, at time.Duration) {
	bucket := s.drawn[i]
	drawn := time.Duration(bucket.Stamp) * time.Microsecond
	if full := drawn + bucket.TimeToFull(); drawn < full && full < at {
		s.curves[i].add(CurvePoint{full, capacity(bucket.Limit)})
	}
	bucket.Settle(bucket.Limit, 0, at.Microseconds())
	s.curves[i].add(CurvePoint{at, bucket.Level.Micros})
}
