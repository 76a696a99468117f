package replay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"iter"
	"slices"
	"sort"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
	"github.com/sluicegate/sluice/internal/traffic"
)

type event struct {
	at      int64 // in milliseconds
	subject *subject
	cost    int64   // of requests
	others  []int64 // of the meters of the subject's run
}

type subject struct {
	run   traffic.Run // a copy, so that the other runs of its block need not be kept
	name  string      // whose checks they are
	group uint8       // of a tally: the same for all checks of a name, else by chance
	role  role
	in    [kindsOfBuckets]bool
	stays [2]bool // sets of rules by which the checks stay denied, as a left-out rule denied them
}

type role uint8

const (
	counted role = iota
	fed          // outside of the sample: it only takes from buckets that users share
	listedOnly
	ignored
)

// bucketKind is how a rule divides its checks, which decides the sample on which the rule is judged.
type bucketKind uint8

const (
	byAll bucketKind = iota // users, and addresses of checks without user
	byUser
	byIP
	kindsOfBuckets
)

func (s *subject) isIn(kind bucketKind) bool { return s.in[kind] }

type outcome struct {
	rule    rules.RuleID // that denies; 0 for none
	kind    bucketKind   // of that rule
	shadows []rules.RuleID
}

func (o *outcome) isDenied() bool { return o.rule != 0 }

func (r *run) newSubject(b *traffic.Block, of *traffic.Run) *subject {
	s := &subject{run: *of, name: "user " + of.UserID}
	if of.UserID == "" {
		s.name = "address " + of.IP.String()
	}
	if r.share < 1 {
		s.group = sha256.Sum256([]byte(s.name))[0]
	}
	for side, w := range r.world {
		_, s.stays[side] = w.leftOut[of.Decider]
	}
	switch {
	case of.Flags.Is(traffic.Sum):
		s.role = fed
		return s
	case of.IsExtra():
		s.role = listedOnly
		return s
	case r.share == 1:
		s.in = [kindsOfBuckets]bool{true, true, true}
		return s
	}
	settings := &r.in.History.Start.Tenants[0].Settings
	tenant, draw := r.in.Tenant, r.in.Draw
	s.in[byUser] = of.UserID != "" && traffic.StratumOfUser(tenant, of.UserID) >= r.in.Level &&
		draw.HasUser(tenant, of.UserID)
	s.in[byIP] = of.IP.IsValid() && traffic.StratumOfIP(tenant, of.IP, settings) >= r.in.Level &&
		draw.HasIP(tenant, of.IP, settings)
	switch {
	case of.UserID != "":
		s.in[byAll] = s.in[byUser]
	case of.IP.IsValid():
		s.in[byAll] = s.in[byIP]
	default:
		at := b.First.UnixMilli()
		isRecorded := traffic.StratumOfEndpoint(tenant, of.Endpoint, at) >= r.in.Level || b.Level < r.in.Level &&
			b.Stratum >= r.in.Level
		s.in[byAll] = isRecorded && draw.HasEndpoint(tenant, of.Endpoint, at)
	}
	if !s.in[byAll] && !s.in[byUser] && !s.in[byIP] {
		s.role = fed
		if kind := r.as[0].kindOf(of.Decider); of.Decider != 0 && kind != byAll {
			s.role = ignored // its user's own limit denied it, so it took nothing that is shared
		}
	}
	return s
}

// windows returns all checks in order of time, by windows, which are shorter if they have many checks. Its work, and
// its caller's with a window, is done in turns, but it waits for blocks outside of them.
func (r *run) windows(ctx context.Context, turns *Turns) iter.Seq2[[]event, error] {
	return func(yield func([]event, error) bool) {
		var open []*cursor
		var events []event
		next, stop := iter.Pull2(r.in.Blocks)
		defer stop()
		block, err, more := next()
		if !more {
			return
		}
		for more || len(open) > 0 {
			if err != nil {
				yield(nil, err)
				return
			}
			start := time.Time{}
			for _, c := range open {
				if at := c.earliest(); start.IsZero() || at.Before(start) {
					start = at
				}
			}
			if more && (start.IsZero() || block.First.Before(start)) {
				start = block.First
			}
			if r.began.IsZero() {
				r.began = start
			}
			end, due := narrow(open, start, start.Truncate(window).Add(window))
			for more && block.First.Before(end) {
				opened, wrong := r.open(ctx, turns, block)
				if wrong != nil {
					yield(nil, wrong)
					return
				}
				open = append(open, opened)
				if due += opened.dueBefore(end); due > mostAtOnce && end.Sub(start) > leastWindow {
					end, due = narrow(open, start, end)
				}
				if block, err, more = next(); err != nil {
					yield(nil, err)
					return
				}
			}
			done, wrong := turns.take(ctx)
			if wrong != nil {
				yield(nil, wrong)
				return
			}
			events = events[:0]
			for _, c := range open {
				events = c.until(end.UnixMilli(), events)
			}
			open = slices.DeleteFunc(open, func(c *cursor) bool { return c.left == 0 })
			slices.SortStableFunc(events, func(a, b event) int {
				if order := cmp.Compare(a.at, b.at); order != 0 {
					return order
				}
				return cmp.Compare(b.subject.role, a.subject.role) // what is fed comes first
			})
			goesOn := yield(events, nil)
			done()
			if !goesOn {
				return
			}
		}
	}
}

type cursor struct {
	first    int64
	subjects []*subject
	at       []int // in the times of each
	left     int   // subjects with more times
}

func (r *run) open(ctx context.Context, turns *Turns, b traffic.Block) (*cursor, error) {
	done, err := turns.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	unpack := b.Runs
	if r.in.User != "" {
		unpack = func() ([]traffic.Run, error) { return b.RunsOf(r.in.User) }
	}
	runs, err := unpack()
	if err != nil {
		return nil, err
	}
	c := &cursor{first: b.First.UnixMilli(), at: make([]int, len(runs))}
	for i := range runs {
		c.subjects = append(c.subjects, r.newSubject(&b, &runs[i]))
		if len(runs[i].Times) > 0 {
			c.left++
		}
	}
	return c, nil
}

func (c *cursor) earliest() time.Time {
	earliest := int64(-1)
	for i, s := range c.subjects {
		if c.at[i] < len(s.run.Times) {
			if at := c.first + int64(s.run.Times[c.at[i]]); earliest < 0 || at < earliest {
				earliest = at
			}
		}
	}
	return time.UnixMilli(max(earliest, 0))
}

// leastWindow is not narrowed, because narrowing looks at all open blocks.
const leastWindow = 2 * time.Second

// narrow returns the end of a window with at most mostAtOnce events, or of about a second, and their number.
func narrow(open []*cursor, start, end time.Time) (narrowed time.Time, due int) {
	for {
		due = 0
		for _, c := range open {
			due += c.dueBefore(end)
		}
		if due <= mostAtOnce || end.Sub(start) <= leastWindow {
			return end, due
		}
		end = start.Add(end.Sub(start) / 2).Truncate(time.Second)
	}
}

func (c *cursor) dueBefore(end time.Time) (due int) {
	for i, s := range c.subjects {
		left := s.run.Times[c.at[i]:]
		n := sort.Search(len(left), func(i int) bool { return c.first+int64(left[i]) >= end.UnixMilli() })
		if s.run.Flags.Is(traffic.Sum) {
			n *= mostParts
		}
		due += n
	}
	return due
}

const mostParts = 50

func (c *cursor) until(end int64, events []event) []event {
	for i, s := range c.subjects {
		times := s.run.Times
		if c.at[i] >= len(times) {
			continue
		}
		for c.at[i] < len(times) {
			at := c.first + int64(times[c.at[i]])
			if at >= end {
				break
			}
			switch {
			case s.run.Costs == nil:
				events = append(events, event{at: at, subject: s, cost: s.run.Cost})
			case s.run.Flags.Is(traffic.Sum):
				events = appendParts(events, at, s, s.run.CostsAt(c.at[i]))
			default:
				costs := s.run.CostsAt(c.at[i])
				events = append(events, event{at: at, subject: s, cost: costs[0], others: costs[1:]})
			}
			c.at[i]++
		}
		if c.at[i] == len(times) {
			c.left--
		}
	}
	return events
}

// appendParts spreads the costs of a second over it, a part for each request.
func appendParts(events []event, at int64, s *subject, costs []int64) []event {
	parts := min(mostParts, max(1, costs[0]/int64(enforce.Token)))
	each := make([]int64, 0, parts*int64(len(costs)))
	for i := range parts {
		start := len(each)
		for _, cost := range costs {
			part := cost / parts
			if i == 0 {
				part += cost % parts
			}
			each = append(each, part)
		}
		part := each[start:]
		events = append(events, event{at: at + i*1000/parts, subject: s, cost: part[0], others: part[1:]})
	}
	return events
}

func (r *run) decide(ctx context.Context, events []event, parallel bool) error {
	var both panics.Group
	for side, d := range r.as {
		if side == 1 && r.in.Candidate == nil {
			d.decided = r.as[0].decided
			break
		}
		if parallel && side == 0 && r.in.Candidate != nil {
			both.Go(nil, "one side of a replay", func() { d.decide(ctx, events) })
			continue
		}
		d.decide(ctx, events)
	}
	return cmp.Or(both.Wait(), ctx.Err())
}

type decider struct {
	side     int // 0 for the rules as they were, 1 for those with the candidate
	tenant   rules.TenantID
	course   *course
	limiter  *enforce.Limiter
	store    *membucket.Store
	now      int64 // in microseconds
	kinds    map[rules.RuleID]bucketKind
	check    [1]enforce.Check
	costs    []enforce.MeterCost // of check
	decision [1]enforce.Decision
	decided  []outcome // of the last events
}

func newDecider(side int, tenant rules.TenantID, of *course, maxBuckets int) *decider {
	d := &decider{side: side, tenant: tenant, course: of, kinds: map[rules.RuleID]bucketKind{}}
	d.store = membucket.New(membucket.Options{MaxBuckets: maxBuckets, Clock: func() int64 { return d.now }})
	d.limiter = enforce.NewLimiter(d.store, d.store, unobserved{}, func() time.Time { return time.UnixMicro(d.now) })
	for rule := range of.rules() {
		d.kinds[rule.ID] = kindOf(rule)
	}
	return d
}

func (d *decider) kindOf(id rules.RuleID) bucketKind { return d.kinds[id] }

func kindOf(rule *rules.Rule) bucketKind {
	kind := byAll
	for _, s := range rule.Pattern.Segments() {
		switch s.Field {
		case rules.FieldUser:
			return byUser
		case rules.FieldIP:
			kind = byIP
		}
	}
	return kind
}

type unobserved struct{}

func (unobserved) Decided(*snapshot.Tenant, *enforce.Check, *enforce.Decision) {}
func (unobserved) StoreAnswered(time.Duration, error)                          {}

func (d *decider) decide(ctx context.Context, events []event) {
	d.decided = slices.Grow(d.decided[:0], len(events))[:len(events)]
	for i := range events {
		e := &events[i]
		if e.subject.role == listedOnly || e.subject.role == ignored {
			continue
		}
		if i%1024 == 0 && ctx.Err() != nil {
			return
		}
		run := &e.subject.run
		if e.subject.stays[d.side] {
			d.decided[i] = outcome{rule: run.Decider}
			continue
		}
		c := enforce.Check{
			EffectivePlan: run.Plan, Cost: enforce.Tokens(e.cost), Costs: d.costs[:0],
			Proxied: run.Flags.Is(traffic.Proxied), Record: run.Flags.Is(traffic.Record),
		}
		for j, cost := range e.others {
			c.Costs = append(c.Costs, enforce.MeterCost{Meter: run.Meters[j], Cost: enforce.Tokens(cost)})
		}
		d.costs = c.Costs
		c.Method, c.Endpoint = run.Method, run.Endpoint
		if e.subject.role == counted {
			c.UserID, c.IP, c.Attributes = run.UserID, run.IP, run.Attributes
		}
		d.ask(ctx, e.at*1000, c)
		d.note(&d.decided[i])
	}
}

// ask decides one check at a time. at, in microseconds, must not go back, and the next call overwrites the decision.
func (d *decider) ask(ctx context.Context, at int64, check enforce.Check) *enforce.Decision {
	d.now, d.check[0] = at, check
	d.limiter.Decide(ctx, d.course.at(d.tenant, at), d.check[:], d.decision[:])
	return &d.decision[0]
}

func (d *decider) note(o *outcome) {
	*o = outcome{}
	decision := &d.decision[0]
	if t := decision.DecidingTier(); t != nil && !decision.Allowed {
		o.rule = t.Match.Rule.ID
		o.kind = d.kinds[o.rule]
		return
	}
	if decision.Bypassed {
		return
	}
	for i := range decision.Tiers {
		if t := &decision.Tiers[i]; !t.Allowed && t.Match.Mode == rules.ModeShadow {
			o.shadows = append(o.shadows, t.Match.Rule.ID)
		}
	}
}
