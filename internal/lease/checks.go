package lease

import (
	"errors"
	"sync"

	"github.com/sluicegate/sluice/internal/enforce"
)

// maxTiers caps the tiers of a check that lots can serve.
const maxTiers = 8

// split is a check whose cost lots have of some tiers, and the store decides the others.
type split struct {
	of    [maxTiers]*leased // nil for a tier that the store decides
	views [maxTiers]*view
	taken [maxTiers]Taken
	count int // of the tiers that lots have
}

// noSplit is of a check that the store decides alone.
var noSplit split

// sent are the checks of a call that lots do not serve alone. Its memory is reused.
type sent struct {
	checks []enforce.BucketCheck // as the store decides them
	places []place               // of each
	splits []split
	tiers  []enforce.Tier // of the splits
}

type place struct {
	check int // among the caller's
	split int // among the splits; -1 for none
}

var sentPool = sync.Pool{New: func() any { return new(sent) }}

// keptSent is the largest call whose memory is reused: about 2 MB.
const keptSent = 1000

func (s *sent) release() {
	if cap(s.checks) > keptSent {
		return
	}
	clear(s.checks)
	clear(s.splits)
	clear(s.tiers)
	s.checks, s.places, s.splits, s.tiers = s.checks[:0], s.places[:0], s.splits[:0], s.tiers[:0]
	sentPool.Put(s)
}

// canServe reports whether lots could serve tiers of a check.
func canServe(check *enforce.BucketCheck) bool {
	return !check.Look && !check.Mixed && check.Reserve == nil && check.Cost > 0 && len(check.Tiers) <= maxTiers
}

// canServeTier reports whether lots could serve a tier.
func canServeTier(tier *enforce.Tier) bool { return !tier.NeverLease && canLease(tier.Limit) }

// take takes the cost of a check from the lots of each tier that have it.
func (s *split) take(check *enforce.BucketCheck, held map[enforce.Key]*leased, now Instant) {
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

// see returns what checks see of a bucket, or nil if it is not known for the limit of a tier.
func (e *leased) see(tier *enforce.Tier) *view {
	if tier.NeverLease {
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

// spend allows a check: what lots have of it is spent.
func (s *split) spend(check *enforce.BucketCheck, now Instant) {
	for i := range s.of[:min(len(check.Tiers), maxTiers)] {
		if e := s.of[i]; e != nil {
			e.Demand(check.Cost)
			s.taken[i].Spend()
			s.fill(check, i, now, check.Cost)
		}
	}
}

// putBack denies a check: what lots have of it is back there.
func (s *split) putBack(check *enforce.BucketCheck, now Instant) {
	for i := range s.of[:min(len(check.Tiers), maxTiers)] {
		if s.of[i] != nil {
			s.taken[i].PutBack()
			s.fill(check, i, now, 0)
		}
	}
}

// fill answers a tier from what is held here and what the store said last.
func (s *split) fill(check *enforce.BucketCheck, i int, now Instant, cost enforce.Tokens) {
	tier, v := &check.Tiers[i], s.views[i]
	left := min(v.level+s.of[i].Held(now), enforce.Tokens(v.limit.Burst)*enforce.Token-cost)
	tier.Serve(enforce.Bucket{Level: enforce.Level{Micros: max(0, left)}, Stamp: now.Wall / 1000, Limit: v.limit})
}

// add sends the tiers of a check that lots do not have to the store.
func (s *sent) add(check *enforce.BucketCheck, at int, part *split) {
	s.checks = append(s.checks, *check)
	if part.count == 0 {
		s.places = append(s.places, place{at, -1})
		return
	}
	s.places = append(s.places, place{at, len(s.splits)})
	s.splits = append(s.splits, *part)
	own := &s.splits[len(s.splits)-1]
	for i := range check.Tiers {
		if own.of[i] != nil {
			own.taken[i].Hold()
		} else {
			s.tiers = append(s.tiers, check.Tiers[i])
		}
	}
}

// point points the checks that are split at their tiers, once appending moves these no more.
func (s *sent) point() {
	first := 0
	for k := range s.checks {
		if at := s.places[k].split; at >= 0 {
			last := first + len(s.checks[k].Tiers) - s.splits[at].count
			s.checks[k].Tiers = s.tiers[first:last:last]
			first = last
		}
	}
}

// finish answers the caller's checks as the store did, which returned an error or nil. What lots have of a check is spent if
// it was allowed, or if nobody knows, and else back in the lots.
func (s *sent) finish(checks []enforce.BucketCheck, err error, now Instant) {
	for k := range s.checks {
		answer, check := &s.checks[k], &checks[s.places[k].check]
		tiers := check.Tiers
		*check = *answer
		check.Tiers = tiers
		if s.places[k].split < 0 {
			continue // the store answered in the caller's tiers
		}
		part, next := &s.splits[s.places[k].split], 0
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

// countedOfCall is how many checks of a call are counted at most. A large call makes its round trip unless all of its checks are served
// here, which takes buckets that are busy enough to be noticed by a sample. To count each check took such calls 5 % longer.
const countedOfCall = 8

// sample returns which of the checks of a call are counted: every step-th from the first.
func sample(checks int, now Instant) (first, step int) {
	step = max(1, (checks+countedOfCall-1)/countedOfCall)
	return int(uint64(now.Mono) % uint64(step)), step
}

// notice learns from a check that the store allowed. If it counts, its buckets are counted, and leased once all of them are busy: one
// bucket after the other, and none after the first that is not busy, because each is a visit to memory that is not in the processor's
// caches.
//
// Where buckets are spread, each is leased by itself once it is busy: checks that lack its tokens would borrow them, one call each.
//
// Nothing is counted of a tenant that has its share of places, because the counters are everyone's.
func (b *Buckets) notice(check *enforce.BucketCheck, part *split, held map[enforce.Key]*leased, now Instant, counts bool) {
	if len(check.Tiers) == 0 {
		return
	}
	tenant, isSpread := check.Tiers[0].Key.Tenant, check.Tiers[0].Key.Shard > 0
	counts = counts && !b.places.isFull(tenant)
	isHot, missing, isHeld := counts, 0, false
	var busy []candidate // of those that are spread
	for i := range check.Tiers {
		tier := &check.Tiers[i]
		if part.of[i] != nil {
			isHeld = true
			continue
		}
		if e := held[tier.Key]; e != nil {
			isHeld = true
			e.Demand(check.Cost) // more tokens would have served it
			continue
		}
		if isSpread {
			if counts && canServeTier(tier) && b.recent.count(&tier.Key, now) >= hotAfter {
				busy = append(busy, candidate{tier.Key, tier.Limit})
			}
			continue
		}
		missing++
		isHot = isHot && canServeTier(tier) && b.recent.count(&tier.Key, now) >= hotAfter
	}
	if len(busy) > 0 {
		b.offers.add(busy)
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

// freeFragments has what this process holds of a bucket given back where a check lacked tokens of it: too little here, and too
// little in the store, may be enough together.
func freeFragments(check *enforce.BucketCheck, held map[enforce.Key]*leased, now Instant) {
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
