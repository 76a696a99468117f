package redisbucket

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// The buckets of a spread tenant are in several slots of a Redis Cluster, and a script reaches one slot alone. A check whose buckets
// are in several shards is decided all or nothing and never above a limit:
//
//  1. Of each bucket its cost is borrowed: lease.lua lends it to this process, all shards at the same time. Lent tokens occupy the
//     burst, so it is safe to give them back. To take and give back plainly would not be: the bucket would fill up meanwhile, and
//     tokens given back to a full bucket that was then emptied would come on top of the burst.
//  2. The check is allowed if no enforced bucket refused. That is one round trip.
//
// Nothing is borrowed of one shard, the last, if it has buckets that cannot lend tokens, which the rules of a spread tenant keep in
// one shard, or if the check comes alone and has several buckets there. Then take.lua takes from these once all others have lent, in
// a second round trip, and that decides. If one has not, it only looks.
//
// What was borrowed counts as spent if the check is allowed, or if nobody knows, and else goes back. Either is reported within
// reportAfter, or by the next call about the bucket. If a report is lost, Redis forgets the loan as it forgets every lease, which admits
// less for a moment and never more.

// loanLife is how long borrowed tokens count, from when they were asked for; see lease.Bucket.
const loanLife = enforce.LeaseLife - enforce.LeaseLife/1000

var (
	errReserveSpread = fmt.Errorf("a check of a tenant whose buckets are spread cannot reserve, and %w", enforce.ErrNothingTaken)
	errLimitsSpread  = fmt.Errorf("buckets that cannot be lent are in several shards, and %w", enforce.ErrNothingTaken)
	errCannotLend    = errors.New("the limit was edited to one whose tokens cannot be lent, which this process does not know yet")
	errLateLoan      = errors.New("this process stood still for longer than borrowed tokens live")
)

// isSpread reports whether no one script can decide a check.
func isSpread(check enforce.BucketCheck) bool {
	if len(check.Tiers) == 0 {
		return false
	}
	shard := check.Tiers[0].Key.Shard
	return shard > 0 && check.Reserve != nil ||
		slices.ContainsFunc(check.Tiers, func(t enforce.Tier) bool { return t.Key.Shard != shard })
}

// spreadTake is one Take with checks of spread tenants.
type spreadTake struct {
	store    *Store
	queuedAt time.Time
	checks   []enforce.BucketCheck
	plans    []spreadPlan // of each check
	loans    map[enforce.Key]*loan
	order    []*loan
	parts    []enforce.BucketCheck // what scripts decide
	partOf   []int                 // the check of each
}

// spreadPlan is how a check is decided.
type spreadPlan struct {
	last      uint8 // the shard of which a script takes
	isWhole   bool  // all buckets are there
	isLent    bool  // of that shard is borrowed too, so no script takes
	isRefused bool  // an enforced bucket lent nothing
	err       error // why there is no answer
}

// loan is what is borrowed from a bucket for the checks of a call.
type loan struct {
	lease enforce.Lease
	left  enforce.Tokens // not needed, or back
	spent enforce.Tokens
	err   error
}

func (s *Store) takeSpread(checks []enforce.BucketCheck) error {
	t := &spreadTake{
		store: s, queuedAt: time.Now(), checks: checks, plans: make([]spreadPlan, len(checks)), loans: map[enforce.Key]*loan{},
	}
	for i := range checks {
		if !checks[i].Answered {
			t.plan(i)
		}
	}
	t.borrow()
	for i := range checks {
		if !checks[i].Answered && t.plans[i].err == nil {
			t.assign(i)
		}
	}
	err := t.decide()
	errs := []error{err}
	for i := range checks {
		if err := t.plans[i].err; err != nil && !slices.Contains(errs, err) {
			errs = append(errs, err)
		}
	}
	for _, l := range t.order {
		if l.err == nil {
			s.loans.add(s, &l.lease, l.spent)
		}
	}
	return joinErrors(errs)
}

// costOf returns what a check takes from a tier.
func costOf(check *enforce.BucketCheck, tier *enforce.Tier) enforce.Tokens {
	if check.Mixed {
		return tier.Cost
	}
	return check.Cost
}

// isLook reports whether a check takes nothing.
func isLook(check *enforce.BucketCheck) bool { return check.Look || check.Cost == 0 }

// borrows reports whether a check borrows the cost of a tier.
func (p *spreadPlan) borrows(check *enforce.BucketCheck, tier *enforce.Tier) bool {
	return (p.isLent || tier.Key.Shard != p.last) && !isLook(check) && costOf(check, tier) > 0
}

// plan finds the last shard of a check, and notes what it borrows.
func (t *spreadTake) plan(i int) {
	check, p := &t.checks[i], &t.plans[i]
	p.last, p.isWhole = check.Tiers[0].Key.Shard, !isSpread(*check)
	switch {
	case p.isWhole && (p.last == 0 || check.Reserve != nil):
		return
	case check.Reserve != nil:
		p.err = errReserveSpread
		return
	}
	var buckets [256]uint16 // by shard
	isFixed := false
	for j := range check.Tiers {
		tier := &check.Tiers[j]
		shard := tier.Key.Shard
		buckets[shard]++
		switch cannotLend := !enforce.CanLease(tier.Limit) && !isLook(check) && costOf(check, tier) > 0; {
		case cannotLend && isFixed && shard != p.last:
			p.err = errLimitsSpread
			return
		case cannotLend:
			p.last, isFixed = shard, true
		case !isFixed && buckets[shard] > buckets[p.last]:
			p.last = shard
		}
	}
	// Checks of one call share loans, and get them in order. So none of them takes from a bucket that lends to another.
	p.isLent = !isFixed && (len(t.checks) > 1 || buckets[p.last] == 1)
	p.isWhole = p.isWhole && !p.isLent
	for j := range check.Tiers {
		tier := &check.Tiers[j]
		if !p.borrows(check, tier) {
			continue
		}
		cost, l := costOf(check, tier), t.loans[tier.Key]
		if l == nil {
			l = &loan{lease: enforce.Lease{Key: tier.Key, Limit: tier.Limit, Ask: enforce.Ask{Need: cost, Loan: true}}}
			t.loans[tier.Key] = l
			t.order = append(t.order, l)
		}
		l.lease.Ask.Need = min(l.lease.Ask.Need, cost)
		l.lease.Ask.Want += cost
	}
}

// borrow asks for all loans, in one round trip.
func (t *spreadTake) borrow() {
	if len(t.order) == 0 {
		return
	}
	leases := make([]enforce.Lease, len(t.order))
	for i, l := range t.order {
		t.store.loans.report(&l.lease)
		leases[i] = l.lease
	}
	sent := time.Now()
	err := t.store.leaseApart(leases, t.queuedAt)
	now := time.Now()
	isLate := max(now.Sub(sent), now.Round(0).Sub(sent.Round(0))) >= loanLife
	for i, l := range t.order {
		l.lease = leases[i]
		switch {
		case !l.lease.Answered:
			if l.err = err; errors.Is(err, enforce.ErrNothingTaken) {
				t.store.loans.keep(t.store, &l.lease)
			}
		case isLate:
			l.err = errLateLoan
		case !enforce.CanLease(l.lease.Grant.Limit):
			l.err = errCannotLend
		}
		if l.err == nil {
			l.left = l.lease.Grant.Amount
		}
	}
}

// assign gives a check what it borrows, or nothing if a bucket lacks it.
func (t *spreadTake) assign(i int) {
	check, p := &t.checks[i], &t.plans[i]
	for j := range check.Tiers {
		tier := &check.Tiers[j]
		if p.borrows(check, tier) && tier.Key.Shard == p.last && errors.Is(t.loans[tier.Key].err, errCannotLend) {
			p.isLent = false // take.lua knows all limits
		}
	}
	for j := range check.Tiers {
		tier := &check.Tiers[j]
		if !p.borrows(check, tier) {
			continue
		}
		l, cost := t.loans[tier.Key], costOf(check, tier)
		if l.err != nil {
			p.err = l.err
		}
		if tier.Holds = l.left >= cost; tier.Holds {
			l.left -= cost
			l.spent += cost
		} else if !tier.Shadow {
			p.isRefused = true
		}
	}
	if p.isRefused || p.err != nil {
		t.putBack(i)
	}
}

// putBack undoes assign; the tiers still say that they hold the cost.
func (t *spreadTake) putBack(i int) {
	check, p := &t.checks[i], &t.plans[i]
	for j := range check.Tiers {
		if tier := &check.Tiers[j]; p.borrows(check, tier) && tier.Holds {
			l, cost := t.loans[tier.Key], costOf(check, tier)
			l.left += cost
			l.spent -= cost
		}
	}
}

// decide has scripts decide the buckets that are not borrowed, in order, and answers the checks.
func (t *spreadTake) decide() error {
	for i := range t.checks {
		if !t.checks[i].Answered && t.plans[i].err == nil {
			t.addParts(i)
		}
	}
	var err error
	if len(t.parts) > 0 {
		err = t.store.submitAt(t.parts, t.queuedAt)
	}
	first := 0
	for i := range t.checks {
		if t.checks[i].Answered || t.plans[i].err != nil {
			continue
		}
		last := first
		for last < len(t.parts) && t.partOf[last] == i {
			last++
		}
		t.answer(i, t.parts[first:last], err)
		first = last
	}
	return err
}

// addParts adds what scripts decide of a check: the last shard and, of other shards, buckets that are only looked at.
func (t *spreadTake) addParts(i int) {
	check, p := &t.checks[i], &t.plans[i]
	var space [8]uint8
	done := space[:0]
	if !p.isLent {
		t.add(i, p.last)
		done = append(done, p.last)
	}
	if p.isWhole {
		return
	}
	for j := range check.Tiers {
		tier := &check.Tiers[j]
		if shard := tier.Key.Shard; !p.borrows(check, tier) && !slices.Contains(done, shard) {
			t.add(i, shard)
			done = append(done, shard)
		}
	}
}

func (t *spreadTake) add(i int, shard uint8) {
	check, p := &t.checks[i], &t.plans[i]
	part := *check
	if !p.isWhole {
		part.Tiers = nil
		for j := range check.Tiers {
			if tier := &check.Tiers[j]; tier.Key.Shard == shard && !p.borrows(check, tier) {
				part.Tiers = append(part.Tiers, *tier)
			}
		}
		part.Look = part.Look || p.isRefused || shard != p.last
	}
	t.parts, t.partOf = append(t.parts, part), append(t.partOf, i)
}

// answer answers a check from its parts.
func (t *spreadTake) answer(i int, parts []enforce.BucketCheck, err error) {
	check, p := &t.checks[i], &t.plans[i]
	if p.isWhole {
		tiers := check.Tiers // the part's own
		*check = parts[0]
		check.Tiers = tiers
		return
	}
	check.Answered, check.Allowed = true, !p.isRefused
	for k := range parts {
		check.Answered = check.Answered && parts[k].Answered
		check.Allowed = check.Allowed && parts[k].Allowed
	}
	check.Allowed = check.Allowed && check.Answered
	isLost := !check.Answered && !errors.Is(err, enforce.ErrNothingTaken) // perhaps the last shard was taken from
	if !check.Allowed && !p.isRefused && !isLost {
		t.putBack(i)
	}
	if !check.Answered {
		return
	}
	stamp := time.Now().UnixMicro()
	for j := range check.Tiers {
		tier := &check.Tiers[j]
		if p.borrows(check, tier) {
			t.loans[tier.Key].answer(tier, costOf(check, tier), check.Allowed, stamp)
			continue
		}
		for k := range parts { // each has its tiers in the order of the check
			if own := parts[k].Tiers; len(own) > 0 && own[0].Key.Shard == tier.Key.Shard {
				*tier, parts[k].Tiers = own[0], own[1:]
				break
			}
		}
	}
}

// answer answers a tier from its loan.
func (l *loan) answer(tier *enforce.Tier, cost enforce.Tokens, isAllowed bool, stamp int64) {
	g := &l.lease.Grant
	bucket := enforce.Bucket{Level: g.Level, Stamp: stamp, Limit: g.Limit}
	if tier.Holds {
		if !isAllowed {
			bucket.Level.Micros += cost // it goes back
		}
		tier.Serve(bucket)
		return
	}
	out, full := g.Out-g.Amount, enforce.Tokens(g.Limit.Burst)*enforce.Token // what is borrowed here is back at once
	bucket.Level.Micros += l.left
	tier.Bucket, tier.Out = bucket, out
	// Lent tokens can come back earlier than reckoned here, which is enough. Without holders all is borrowed for checks, and about to be
	// reported.
	areHeld := g.Holders > 1 && out > 0
	untilForgotten := (enforce.LeaseLife + enforce.SlotLength + enforce.SlotGuard).Microseconds()
	earning := func(amount enforce.Tokens) int64 {
		micros := int64(min(math.Ceil(float64(amount-bucket.Level.Micros)/g.Limit.Rate), 1e15))
		if areHeld && amount > full-out {
			micros += untilForgotten
		}
		return max(micros, 0)
	}
	wait := earning(cost)
	if g.Refused && cost == l.lease.Ask.Need && g.Wait > 0 && (areHeld || out == 0) {
		wait = g.Wait
	}
	tier.SetWaits(wait, earning(full))
}
