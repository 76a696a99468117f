package lease

import (
	"errors"
	"sync"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/lend"
)

const maxTiers = 8

type split struct {
	of    [maxTiers]*leased // nil if the store decides the tier
	views [maxTiers]*view
	taken [maxTiers]lend.Pending
	count int // of the leased tiers
}

var noSplit split

type sent struct {
	checks  []enforce.BucketCheck // as the store decides them
	origins []origin              // of each
	splits  []split
	tiers   []enforce.Tier // of the splits
}

type origin struct {
	check int // among the caller's
	split int // among the splits; -1 for none
}

var sentPool = sync.Pool{New: func() any { return new(sent) }}

// keptSent is the largest call whose memory is kept: about 2 MB.
const keptSent = 1000

func (s *sent) release() {
	if cap(s.checks) > keptSent {
		return
	}
	clear(s.checks)
	clear(s.splits)
	clear(s.tiers)
	s.checks, s.origins, s.splits, s.tiers = s.checks[:0], s.origins[:0], s.splits[:0], s.tiers[:0]
	sentPool.Put(s)
}

func canServe(check *enforce.BucketCheck) bool {
	return !check.Look && !check.Record && !check.Mixed && check.Reserve == nil && check.Cost > 0 &&
		len(check.Tiers) <= maxTiers
}

func canServeTier(tier *enforce.Tier) bool { return !isNeverLeased(tier) && canLease(tier.Limit) }

func isNeverLeased(tier *enforce.Tier) bool { return tier.NeverLease || tier.After }

func (s *split) take(check *enforce.BucketCheck, held map[enforce.Key]*leased, now lend.Instant) {
	s.count = 0
	isServable := canServe(check)
	for i := range min(len(check.Tiers), maxTiers) {
		tier := &check.Tiers[i]
		s.of[i] = nil
		if !isServable {
			continue
		}
		e := held[tier.Key]
		if e == nil {
			continue
		}
		v := e.see(tier)
		if v != nil && e.Take(now, check.Cost, &s.taken[i]) {
			s.of[i], s.views[i] = e, v
			s.count++
		}
	}
}

func (e *leased) see(tier *enforce.Tier) *view {
	if isNeverLeased(tier) {
		e.isLeaving.Store(true)
		return nil
	}
	v := e.view.Load()
	switch {
	case v == nil:
	case v.limit == tier.Limit:
		return v
	case tier.Limit.Since > v.limit.Since:
		limit := tier.Limit
		e.edited.Store(&limit)
	}
	return nil
}

func (s *split) spend(check *enforce.BucketCheck, now lend.Instant) {
	for i := range s.of[:min(len(check.Tiers), maxTiers)] {
		if e := s.of[i]; e != nil {
			e.count.Add(1)
			s.taken[i].Spend()
			s.fill(check, i, now, check.Cost)
		}
	}
}

func (e *leased) miss(cost enforce.Tokens) {
	e.count.Add(1)
	e.Miss(cost)
}

func (s *split) putBack(check *enforce.BucketCheck, now lend.Instant) {
	for i := range s.of[:min(len(check.Tiers), maxTiers)] {
		if s.of[i] != nil {
			s.taken[i].PutBack()
			s.fill(check, i, now, 0)
		}
	}
}

func (s *split) fill(check *enforce.BucketCheck, i int, now lend.Instant, cost enforce.Tokens) {
	tier, v := &check.Tiers[i], s.views[i]
	left := min(v.level+s.of[i].Held(now), enforce.Tokens(v.limit.Burst)*enforce.Token-cost)
	tier.Serve(enforce.Bucket{Level: enforce.Level{Micros: max(0, left)}, Stamp: now.Wall / 1000, Limit: v.limit}, cost)
}

func (s *sent) add(check *enforce.BucketCheck, at int, part *split) {
	s.checks = append(s.checks, *check)
	if part.count == 0 {
		s.origins = append(s.origins, origin{at, -1})
		return
	}
	s.origins = append(s.origins, origin{at, len(s.splits)})
	s.splits = append(s.splits, *part)
	own := &s.splits[len(s.splits)-1]
	for i := range check.Tiers {
		if own.of[i] == nil {
			s.tiers = append(s.tiers, check.Tiers[i])
		}
	}
}

// point runs once appending no longer moves the tiers.
func (s *sent) point() {
	first := 0
	for k := range s.checks {
		if at := s.origins[k].split; at >= 0 {
			last := first + len(s.checks[k].Tiers) - s.splits[at].count
			s.checks[k].Tiers = s.tiers[first:last:last]
			first = last
		}
	}
}

// Leased tokens are spent if the check was allowed or its answer is unknown, else put back.
func (s *sent) finish(checks []enforce.BucketCheck, err error, now lend.Instant) {
	for k := range s.checks {
		answer, check := &s.checks[k], &checks[s.origins[k].check]
		tiers := check.Tiers
		*check = *answer
		check.Tiers = tiers
		if s.origins[k].split < 0 {
			continue // the store answered in the caller's tiers
		}
		part, next := &s.splits[s.origins[k].split], 0
		for i := range tiers {
			if part.of[i] == nil {
				tiers[i] = answer.Tiers[next]
				next++
			}
		}
		switch isKnown := err == nil || answer.Answered || answer.Recalled; {
		case isKnown && answer.Allowed, !isKnown && !errors.Is(err, enforce.ErrNothingTaken):
			part.spend(check, now)
		default:
			part.putBack(check, now)
		}
	}
}

// maxSampled caps a call's checks that count as demand: counting all made large calls 5 % slower.
const maxSampled = 8

func sample(checks int, now lend.Instant) (first, step int) {
	step = max(1, (checks+maxSampled-1)/maxSampled)
	return int(uint64(now.Mono) % uint64(step)), step
}

// notice counts an allowed check as demand, and offers its buckets once all are busy. The first bucket that is not busy
// ends the count, because each counter is a cache miss.
//
// A tenant with its full quota is not counted, because tenants share the counters.
func (b *Buckets) notice(check *enforce.BucketCheck, part *split, held map[enforce.Key]*leased, now lend.Instant,
	counts bool,
) {
	if len(check.Tiers) == 0 {
		return
	}
	tenant := check.Tiers[0].Key.Tenant
	counts = counts && !b.quotas.isFull(tenant)
	isHot, missing, isHeld := counts, 0, false
	for i := range check.Tiers {
		tier := &check.Tiers[i]
		if part.of[i] != nil {
			isHeld = true
			continue
		}
		if e := held[tier.Key]; e != nil {
			isHeld = true
			e.miss(check.Cost)
			continue
		}
		missing++
		isHot = isHot && canServeTier(tier) && b.recent.count(&tier.Key, now) >= hotAfter
	}
	offers := isHot && missing > 0 && b.offers.hasRoom(tenant)
	if missing == 0 || !isHeld && !offers {
		return
	}
	var together []candidate
	for i := range check.Tiers {
		tier := &check.Tiers[i]
		if e := held[tier.Key]; e != nil {
			e.partly.Add(1)
		}
		if offers {
			together = append(together, candidate{tier.Key, tier.Limit})
		}
	}
	if offers {
		b.offers.add(together)
	}
}

// freeFragments gives back tokens of the buckets that denied: too few here and in the store may together be enough.
func freeFragments(check *enforce.BucketCheck, held map[enforce.Key]*leased, now lend.Instant) {
	for i := range check.Tiers {
		tier := &check.Tiers[i]
		if tier.Holds || tier.Shadow {
			continue
		}
		if e := held[tier.Key]; e != nil && e.Held(now) > 0 {
			e.isStranded.Store(true)
		}
	}
}
