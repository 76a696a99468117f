package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
)

// Input is the data of a replay.
type Input struct {
	Tenant                         rules.TenantID
	Since, Until                   time.Time // Until is exclusive
	History                        *History
	Candidate                      *Candidate                      // nil: the rules as they were
	Blocks                         iter.Seq2[traffic.Block, error] // in order of First, also from before Since
	Level                          int                             // of the sample, at least the highest of the blocks
	Draw                           traffic.Draw                    // of the recorded checks; zero: all
	Counts                         traffic.Counts
	RecordedSince, RulesKnownSince time.Time
	Notes                          []string
	User                           string // if not "", others' checks and the limits that users share are left out
	IsPartial                      bool   // Blocks lack strata below Level, so limits that users share are left out
}

// Options bound a replay. The zero value takes one processor.
type Options struct {
	Parallel   bool               // decides the two sets of rules on two processors
	Turns      *Turns             // shared with other replays, which together take half of a processor; nil: no limit
	MaxBuckets int                // caps each set's buckets, at about 280 bytes each; 0: a million
	Progress   func(done float64) // called with the part that is done, from 0 to 1; may be nil
}

const (
	// window is decided at once, or a shorter one of mostAtOnce checks, at about 130 bytes each.
	window     = time.Minute
	mostAtOnce = 250_000
	// maxUsers caps the users in a result, maxTallied those that are counted, at about 250 bytes each. maxEntries caps
	// the counted rules and plans, at up to 8 KB each.
	maxUsers   = 100
	maxTallied = 100_000
	maxEntries = 5_000
	maxListed  = 100 // users, left-out rules and plans
	maxRules   = 500
	maxBuckets = 1_000_000
	maxSteps   = 120
)

// ErrNothing means that no checks of the range were recorded.
var ErrNothing = errors.New("no checks of this time were recorded")

// Run replays recorded checks.
func Run(ctx context.Context, in *Input, options Options) (*Result, error) {
	r := newRun(in, options.MaxBuckets)
	for events, err := range r.windows(ctx, options.Turns) {
		if err != nil {
			return nil, err
		}
		if err := r.decide(ctx, events, options.Parallel); err != nil {
			return nil, err
		}
		r.count(events)
		if options.Progress != nil && len(events) > 0 {
			at := time.UnixMilli(events[0].at)
			options.Progress(min(1, max(0, at.Sub(r.began).Seconds()/max(1, in.Until.Sub(r.began).Seconds()))))
		}
	}
	if r.read == 0 {
		return nil, ErrNothing
	}
	return r.result(), nil
}

type run struct {
	in    *Input
	share float64
	began time.Time // of the first check
	step  time.Duration
	as    [2]*decider // the rules as they were, and with the candidate
	world [2]*world

	read, recordedDenied, agreeing int64
	first, last                    int64 // times of checks that were looked at, in Unix milliseconds
	total                          tally
	byRule, byShadow               entries[rules.RuleID, ofRule] // what rules deny, and would deny in shadow mode
	byPlan                         entries[string, tally]
	byUser                         map[string]*OfUser
	moreUsers                      int
	steps                          []OfStep
	listed                         map[Listed]int64
	maxBuckets                     int
}

type ofRule struct {
	tally
	recorded int64
}

func newRun(in *Input, buckets int) *run {
	r := &run{
		in: in, share: traffic.Share(in.Level) * in.Draw.Share(), maxBuckets: cmp.Or(buckets, maxBuckets),
		byUser: map[string]*OfUser{}, listed: map[Listed]int64{}, first: math.MaxInt64,
	}
	ids := identities(in.History, in.Candidate)
	candidates := [2]*Candidate{nil, in.Candidate}
	for i := range r.as {
		w := &world{
			tenant: in.Tenant, ids: ids, leaveOut: r.leaveOut,
			leftOut: map[rules.RuleID]LeftOut{}, names: map[rules.RuleID]*rules.Rule{},
		}
		w.use(candidates[i])
		r.world[i], r.as[i] = w, newDecider(i, in.Tenant, w.course(in.History), r.maxBuckets)
	}
	length := in.Until.Sub(in.Since)
	for _, r.step = range []time.Duration{
		time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour,
		24 * time.Hour,
	} {
		if length <= maxSteps*r.step {
			break
		}
	}
	for at := in.Since.Truncate(r.step); at.Before(in.Until); at = at.Add(r.step) {
		r.steps = append(r.steps, OfStep{At: at.UTC()})
	}
	return r
}

// Warm returns how long before its range a replay begins, because buckets must fill.
func Warm(in *Input) time.Duration {
	r := newRun(in, 0)
	return max(longest(r.as[0].course), longest(r.as[1].course))
}

func (r *run) leaveOut(rule *rules.Rule) string {
	if rule.Action != rules.ActionLimit {
		return ""
	}
	if rule.Algorithm == rules.Concurrency {
		return "nobody recorded when its places were released"
	}
	if r.in.User != "" {
		if kindOf(rule) != byUser {
			return "only one user was looked at, who shares the limit with others"
		}
		return ""
	}
	if r.share == 1 {
		return ""
	}
	var attribute, network, whole bool
	for _, s := range rule.Pattern.Segments() {
		whole = whole || s.Field == rules.FieldUser || s.Field == rules.FieldIP && s.Placeholder
		attribute = attribute || s.Field == rules.FieldAttribute
		network = network || s.Field == rules.FieldIP && !s.Placeholder
	}
	switch {
	case whole:
		return ""
	case attribute:
		return "only a sample was recorded, which does not have all checks of an attribute"
	case r.in.IsPartial:
		return "only some users were looked at, who share the limit with others"
	case network:
		return "only a sample was recorded, which does not have all checks of a network"
	}
	return ""
}

func (r *run) count(events []event) {
	since, until := r.in.Since.UnixMilli(), r.in.Until.UnixMilli()
	isSample := r.share < 1
	for i := range events {
		e := &events[i]
		s := e.subject
		if e.at < since || e.at >= until || s.role == fed || s.role == ignored || s.run.Flags.Is(traffic.Record) {
			continue
		}
		r.first, r.last = min(r.first, e.at), max(r.last, e.at)
		if s.role == listedOnly {
			if l := (Listed{UserID: s.run.UserID, IP: ipText(s)}); len(r.listed) < maxTallied || r.listed[l] > 0 {
				r.listed[l]++
			}
			continue
		}
		step := &r.steps[min(len(r.steps)-1, max(0, int(time.UnixMilli(e.at).Sub(r.steps[0].At)/r.step)))]
		plan := r.byPlan.of(s.run.Plan)
		if s.isIn(byAll) {
			r.read++
			r.total.add(asked, s, isSample)
			plan.add(asked, s, isSample)
			step.Checks += 1 / r.share
			wasDenied := s.run.Flags.Is(traffic.Denied)
			if wasDenied {
				r.recordedDenied++
				if s.run.Decider != 0 {
					r.byRule.of(s.run.Decider).recorded++
				}
			}
			if wasDenied == r.as[0].decided[i].isDenied() {
				r.agreeing++
			}
		}
		then1, now1 := &r.as[0].decided[i], &r.as[1].decided[i]
		for _, id := range then1.shadows {
			r.shadow(id, then, s, r.as[0], now1)
		}
		for _, id := range now1.shadows {
			r.shadow(id, now, s, r.as[1], then1)
		}
		if !then1.isDenied() && !now1.isDenied() {
			continue
		}
		if then1.isDenied() && s.isIn(then1.kind) {
			r.note(then, then1.rule, s, plan, isSample)
			step.DeniedThen += 1 / r.share
			if !now1.isDenied() {
				r.note(noLonger, then1.rule, s, plan, isSample)
				step.NoLongerDenied += 1 / r.share
			}
		}
		if now1.isDenied() && s.isIn(now1.kind) {
			r.note(now, now1.rule, s, plan, isSample)
			step.DeniedNow += 1 / r.share
			if !then1.isDenied() {
				r.note(newly, now1.rule, s, plan, isSample)
				step.NewlyDenied += 1 / r.share
			}
		}
	}
}

func ipText(s *subject) string {
	if s.run.UserID != "" || !s.run.IP.IsValid() {
		return ""
	}
	return s.run.IP.String()
}

type entries[K comparable, V any] struct {
	all  map[K]*V
	rest *V // of those beyond maxEntries, which nobody reads; nil without any
}

func (e *entries[K, V]) of(key K) *V {
	if of := e.all[key]; of != nil {
		return of
	}
	if len(e.all) >= maxEntries {
		if e.rest == nil {
			e.rest = new(V)
		}
		return e.rest
	}
	if e.all == nil {
		e.all = map[K]*V{}
	}
	of := new(V)
	e.all[key] = of
	return of
}

func (r *run) shadow(id rules.RuleID, kind int, s *subject, by *decider, other *outcome) {
	if !s.isIn(by.kindOf(id)) {
		return
	}
	of := r.byShadow.of(id)
	of.add(kind, s, r.share < 1)
	if !slices.Contains(other.shadows, id) {
		of.add(map[int]int{then: noLonger, now: newly}[kind], s, r.share < 1)
	}
}

func (r *run) note(kind int, decider rules.RuleID, s *subject, plan *tally, isSample bool) {
	r.total.add(kind, s, isSample)
	plan.add(kind, s, isSample)
	r.byRule.of(decider).add(kind, s, isSample)
	u := r.byUser[s.name]
	if u == nil {
		if len(r.byUser) >= maxTallied {
			r.moreUsers++
			return
		}
		u = &OfUser{UserID: s.run.UserID, IP: ipText(s), Plan: s.run.Plan}
		r.byUser[s.name] = u
	}
	switch kind {
	case then:
		u.DeniedThen++
	case now:
		u.DeniedNow++
	case newly:
		u.NewlyDenied++
	case noLonger:
		u.NoLongerDenied++
	}
}

func (r *run) result() *Result {
	in := r.in
	result := &Result{
		Since: in.Since.UTC(), Until: in.Until.UTC(), Read: r.read, Share: r.share, IsEstimate: r.share < 1,
		Checks: r.total.figure(asked, r.share), Counts: r.total.counts(r.share),
		RecordedDenied: r.recordedDenied, Agreeing: r.agreeing,
		Steps: r.steps, StepSeconds: int(r.step.Seconds()),
		Reserving: in.Counts.LeftOut, Dropped: in.Counts.Dropped, Notes: slices.Clone(in.Notes),
		RecordedSince: in.RecordedSince.UTC(), RulesKnownSince: in.RulesKnownSince.UTC(),
		Rules: []OfRule{}, Plans: []OfPlan{}, Users: []OfUser{}, Listed: []Listed{}, LeftOut: []LeftOut{},
	}
	if r.last > 0 {
		result.First, result.Last = time.UnixMilli(r.first).UTC(), time.UnixMilli(r.last).UTC()
	}
	for _, id := range slices.Sorted(maps.Keys(r.byRule.all)) {
		result.Rules = append(result.Rules, r.ofRule(id, rules.ModeEnforce, r.byRule.all[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(r.byShadow.all)) {
		result.Rules = append(result.Rules, r.ofRule(id, rules.ModeShadow, r.byShadow.all[id]))
	}
	moreRules := r.byRule.rest != nil || r.byShadow.rest != nil
	if in.Candidate != nil && !moreRules { // also those that deny nothing
		for i := range in.Candidate.Config.Rules {
			rule := &in.Candidate.Config.Rules[i]
			id := r.world[1].ids[rule.Identity()]
			if r.byRule.all[id] == nil && r.byShadow.all[id] == nil && r.world[1].leftOut[id] == (LeftOut{}) {
				result.Rules = append(result.Rules, r.ofRule(id, rule.Mode, new(ofRule)))
			}
		}
	}
	slices.SortStableFunc(result.Rules, func(a, b OfRule) int {
		return cmp.Or(
			cmp.Compare(b.NewlyDenied.Value+b.NoLongerDenied.Value, a.NewlyDenied.Value+a.NoLongerDenied.Value),
			changedFirst(a.IsChanged, b.IsChanged), cmp.Compare(b.DeniedNow.Value, a.DeniedNow.Value))
	})
	result.MoreRules = max(0, len(result.Rules)-maxRules)
	result.Rules = result.Rules[:min(len(result.Rules), maxRules)]
	plans := slices.Sorted(maps.Keys(r.byPlan.all))
	for _, plan := range plans[:min(len(plans), maxListed)] {
		of := r.byPlan.all[plan]
		result.Plans = append(result.Plans,
			OfPlan{Plan: plan, Checks: of.figure(asked, r.share), Counts: of.counts(r.share)})
	}
	for _, name := range slices.Sorted(maps.Keys(r.byUser)) {
		result.Users = append(result.Users, *r.byUser[name])
	}
	slices.SortStableFunc(result.Users, func(a, b OfUser) int {
		return cmp.Or(cmp.Compare(b.NewlyDenied+b.NoLongerDenied, a.NewlyDenied+a.NoLongerDenied),
			cmp.Compare(b.DeniedNow, a.DeniedNow))
	})
	result.MoreUsers = max(0, len(result.Users)-maxUsers)
	if r.moreUsers > 0 {
		result.Notes = append(result.Notes,
			fmt.Sprintf("More than %d users and addresses were denied; the list has the first of them.", maxTallied))
	}
	if moreRules || r.byPlan.rest != nil {
		result.Notes = append(result.Notes,
			fmt.Sprintf("There were more than %d rules or plans; the lists have the first of them.", maxEntries))
	}
	result.Users = result.Users[:min(len(result.Users), maxUsers)]
	for l, n := range r.listed {
		l.Denied = n
		result.Listed = append(result.Listed, l)
	}
	slices.SortFunc(result.Listed, func(a, b Listed) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.UserID, b.UserID), cmp.Compare(a.IP, b.IP))
	})
	result.Listed = result.Listed[:min(len(result.Listed), maxListed)]
	leftOut := r.world[0].leftOut
	maps.Copy(leftOut, r.world[1].leftOut)
	for _, id := range slices.Sorted(maps.Keys(leftOut)) {
		if len(result.LeftOut) < maxListed {
			left := leftOut[id]
			if r.world[0].names[id] == nil { // the candidate's, which has a number in this replay only
				left.RuleID = 0
			}
			result.LeftOut = append(result.LeftOut, left)
		}
	}
	for _, d := range r.as {
		if d.store.Evictions() > 0 {
			result.IsEstimate = true
			result.Notes = append(result.Notes,
				fmt.Sprintf("There were more than %d buckets, so the figures are estimates.", r.maxBuckets))
			break
		}
	}
	return result
}

func changedFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (r *run) ofRule(id rules.RuleID, mode rules.Mode, of *ofRule) OfRule {
	shown := OfRule{
		RuleID: int64(id), Mode: string(mode), RecordedDenied: of.recorded, Counts: of.counts(r.share),
		FromOtherRules: of.fromOthers(r.share),
	}
	rule := r.world[1].names[id]
	if rule == nil {
		rule = r.world[0].names[id]
	}
	if rule != nil {
		shown.Rule = rule.Identity().String()
		shown.IsChanged = r.world[1].candidate != nil && r.world[1].replaces(rule.Identity())
		if r.world[0].names[id] == nil {
			shown.RuleID = 0
		}
		shown.IsEstimate = r.share < 1
	}
	return shown
}
