package replay

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

const levelColumns = 500

// Arrival is a check of a simulation.
type Arrival struct {
	At   time.Duration // after the start, from 0 to rules.MaxTimeToFull
	Cost enforce.Tokens
}

// Simulated is the answer to an Arrival.
type Simulated struct {
	Arrival
	Allowed    bool
	Reason     enforce.Reason // "" when allowed
	Deciding   int            // -1: none
	RetryAfter time.Duration  // until the deciding rule would allow the check; 0: allowed or never
	// Delay is how long queues delay an allowed check, or the length of the queue that denied it; 0 for other rules.
	Delay time.Duration
}

// Level is a bucket's level at one moment.
type Level struct {
	At     time.Duration // after the start
	Tokens enforce.Tokens
}

// Simulation is what happened to arrivals.
type Simulation struct {
	Checks []Simulated // in order of time
	// Levels are each rule's bucket over time, until the last arrival; straight lines connect them. Blocks, bypasses,
	// and limits behind one have none.
	Levels [][]Level
}

// Simulate replays arrivals that every rule meets, whatever its pattern, plan and times. Buckets begin full. The error
// is the context's.
func Simulate(ctx context.Context, candidates []rules.Rule, arrivals []Arrival) (*Simulation, error) {
	every, err := rules.ParsePattern(string(rules.FieldGlobal))
	if err != nil {
		return nil, err
	}
	rows := snapshot.Rows{Tenants: []rules.Tenant{{ID: 1}}}
	for i := range candidates {
		rule := candidates[i]
		rule.ID, rule.TenantID, rule.Pattern, rule.Plan, rule.Active = rules.RuleID(i+1), 1, every, "", true
		rule.InForceSince, rule.ExpiresAt = time.Time{}, time.Time{}
		rule.Meter = "" // arrivals cost what the rule counts
		rows.Rules = append(rows.Rules, rule)
	}
	d := newDecider(0, 1, &course{start: rows}, 0)
	s := &Simulation{Levels: make([][]Level, len(candidates))}
	arrivals = slices.Clone(arrivals)
	slices.SortStableFunc(arrivals, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	column, read := time.Duration(0), time.Duration(0)
	if len(arrivals) > 0 {
		column = max(arrivals[len(arrivals)-1].At/levelColumns, time.Microsecond)
	}
	for _, arrival := range arrivals {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		for ; read < arrival.At; read += column {
			s.noteLevels(read, d.ask(ctx, read.Microseconds(), enforce.Check{}))
		}
		s.noteLevels(arrival.At, d.ask(ctx, arrival.At.Microseconds(), enforce.Check{}))
		decision := d.ask(ctx, arrival.At.Microseconds(), enforce.Check{Cost: arrival.Cost})
		s.noteLevels(arrival.At, decision)
		s.noteCheck(arrival, decision)
	}
	return s, nil
}

func (s *Simulation) noteLevels(at time.Duration, d *enforce.Decision) {
	for i := range d.Tiers {
		t := &d.Tiers[i]
		if !t.BucketRead {
			continue
		}
		levels := &s.Levels[t.Match.Rule.ID-1]
		level := Level{at, t.Remaining}
		if n := len(*levels); n == 0 || (*levels)[n-1] != level {
			*levels = append(*levels, level)
		}
	}
}

func (s *Simulation) noteCheck(arrival Arrival, d *enforce.Decision) {
	check := Simulated{Arrival: arrival, Allowed: d.Allowed, Reason: d.Reason, Deciding: -1, Delay: d.Delay}
	if t := d.DecidingTier(); t != nil {
		check.Deciding, check.RetryAfter = int(t.Match.Rule.ID)-1, t.RetryAfter
		if !d.Allowed {
			check.Delay = t.Delay
		}
	}
	s.Checks = append(s.Checks, check)
}
