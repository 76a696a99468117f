package redisbucket

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// The buckets of a spread tenant are in several slots of a Redis Cluster, and a script reaches one slot alone. A check whose buckets
// are in several shards is decided all or nothing and never above a limit:
//
//  1. Of each bucket its cost is borrowed: lease.lua lends it to this process, all shards at the same time. Lent tokens occupy the
//     burst, so it is safe to give them back. To take and give back plainly would not be: the bucket would fill up meanwhile, and
//     tokens given back to a full bucket that was then emptied would come on top of the burst. Buckets that the check takes nothing
//     from are looked at by take.lua meanwhile.
//  2. The check is allowed if no enforced bucket refused. That is one round trip.
//
// Nothing is borrowed of one shard, the last, if it has buckets that cannot lend tokens, which the rules of a spread tenant keep in
// one shard, or if the check comes alone and has several buckets there. Then take.lua takes from these once all others have agreed, in
// a second round trip, and that decides. If one has not, it only looks.
//
// What was borrowed counts as spent if the check is allowed, or if nobody knows, and else goes back at once. What was spent is
// reported within reportAfter, or by the next call about the bucket. If a report is lost, Redis forgets the loan as it forgets every
// lease, which admits less for a moment and never more.

var (
	errReserveSpread = fmt.Errorf("a check of a tenant whose buckets are spread cannot reserve, and %w", enforce.ErrNothingTaken)
	errLimitsSpread  = fmt.Errorf("buckets that cannot be lent are in several shards, and %w", enforce.ErrNothingTaken)
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
	order    []*loan // by shard, once they are asked for
	stamp    int64   // of what is borrowed
}

// spreadPlan is how a check is decided.
type spreadPlan struct {
	last      uint8 // the shard of which a script takes
	isWhole   bool  // all buckets are there
	isLent    bool  // no script takes: of that shard is borrowed too, or it is a look
	isRefused bool  // an enforced bucket of another shard lacks the cost
	err       error // why there is no answer
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
	p.isLent = isLook(check) || !isFixed && (len(t.checks) > 1 || buckets[p.last] == 1)
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

// looksAt reports whether take.lua looks at a tier while others lend.
func (p *spreadPlan) looksAt(check *enforce.BucketCheck, tier *enforce.Tier) bool {
	return !p.isWhole && (p.isLent || tier.Key.Shard != p.last) && !p.borrows(check, tier)
}

// part returns the part of a check that one script decides: some of its tiers, all of one shard.
func part(check *enforce.BucketCheck, isLook bool, has func(*enforce.Tier) bool) enforce.BucketCheck {
	part := *check
	part.Tiers, part.Look = nil, isLook
	for j := range check.Tiers {
		if has(&check.Tiers[j]) {
			part.Tiers = append(part.Tiers, check.Tiers[j])
		}
	}
	return part
}

// read copies the answers of a part's tiers into the check.
func read(check, part *enforce.BucketCheck) {
	next := 0
	for j := range check.Tiers {
		if next < len(part.Tiers) && check.Tiers[j].Key == part.Tiers[next].Key {
			check.Tiers[j] = part.Tiers[next]
			next++
		}
	}
}

// decide has scripts decide the buckets that are not borrowed, in order, and answers the checks.
func (t *spreadTake) decide() error {
	var parts []enforce.BucketCheck
	for i := range t.checks {
		check, p := &t.checks[i], &t.plans[i]
		switch {
		case check.Answered || p.err != nil || p.isLent:
		case p.isWhole:
			parts = append(parts, *check)
		default:
			parts = append(parts, part(check, p.isRefused, func(tier *enforce.Tier) bool { return tier.Key.Shard == p.last }))
		}
	}
	var err error
	if len(parts) > 0 {
		err = t.store.submitAt(parts, t.queuedAt)
	}
	next := 0
	for i := range t.checks {
		switch check, p := &t.checks[i], &t.plans[i]; {
		case check.Answered || p.err != nil:
		case p.isLent:
			t.answer(i, !p.isRefused)
		default:
			t.answerAs(i, &parts[next], err)
			next++
		}
	}
	return err
}

// answerAs answers a check as a script decided the last shard.
func (t *spreadTake) answerAs(i int, decided *enforce.BucketCheck, err error) {
	check, p := &t.checks[i], &t.plans[i]
	if p.isWhole {
		tiers := check.Tiers // the part's own
		*check = *decided
		check.Tiers = tiers
		return
	}
	isAllowed := decided.Answered && decided.Allowed && !p.isRefused
	isLost := !decided.Answered && !errors.Is(err, enforce.ErrNothingTaken) // perhaps it was taken from
	if !isAllowed && !p.isRefused && !isLost {
		t.putBack(i)
	}
	if decided.Answered {
		read(check, decided)
		t.answer(i, isAllowed)
	}
}

// answer answers a check whose buckets are all known.
func (t *spreadTake) answer(i int, isAllowed bool) {
	check, p := &t.checks[i], &t.plans[i]
	check.Answered, check.Allowed = true, isAllowed
	for j := range check.Tiers {
		if tier := &check.Tiers[j]; p.borrows(check, tier) {
			isBack := !isAllowed && !p.isRefused // by answerAs
			t.loans[tier.Key].answer(tier, costOf(check, tier), isBack)
		}
	}
}
