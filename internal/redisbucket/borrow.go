package redisbucket

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// loanLife is how long borrowed tokens count, from when they were asked for; see lease.Bucket.
const loanLife = enforce.LeaseLife - enforce.LeaseLife/1000

var (
	errCannotLend = errors.New("the limit was edited to one whose tokens cannot be lent, which this process does not know yet")
	errLateLoan   = errors.New("this process stood still for longer than borrowed tokens live")
)

// loan is what is borrowed from a bucket for the checks of a call.
type loan struct {
	lease enforce.Lease
	left  enforce.Tokens // not needed, or back
	spent enforce.Tokens
	err   error
}

// borrow asks for all loans, and has take.lua look at the buckets that nothing is taken from. That is one round trip.
func (t *spreadTake) borrow() {
	slices.SortFunc(t.order, func(a, b *loan) int { return byShard(a.lease, b.lease) })
	leases := make([]enforce.Lease, len(t.order))
	for i, l := range t.order {
		t.store.loans.report(&l.lease)
		leases[i] = l.lease
	}
	calls := leaseCalls(leases)
	first := len(calls)
	var lookOf []int // the check of each look, which come after the loans
	for i := range t.checks {
		for _, look := range t.looks(i) {
			calls, lookOf = append(calls, look), append(lookOf, i)
		}
	}
	if len(calls) == 0 {
		return
	}
	sent := time.Now()
	err := t.store.submitAt(calls, t.queuedAt)
	now := time.Now()
	t.stamp = now.UnixMicro()
	t.lend(leases, err, max(now.Sub(sent), now.Round(0).Sub(sent.Round(0))) >= loanLife)
	for k, i := range lookOf {
		look, p := &calls[first+k], &t.plans[i]
		if !look.Answered {
			p.err = err
			continue
		}
		read(&t.checks[i], look)
		p.isRefused = p.isRefused || !look.Allowed
	}
}

// looks returns the parts of a check that are looked at, one for each shard.
func (t *spreadTake) looks(i int) (looks []enforce.BucketCheck) {
	check, p := &t.checks[i], &t.plans[i]
	if check.Answered || p.err != nil {
		return nil
	}
	for j := range check.Tiers {
		shard := check.Tiers[j].Key.Shard
		isSeen := slices.ContainsFunc(looks, func(l enforce.BucketCheck) bool { return l.Tiers[0].Key.Shard == shard })
		if !isSeen && p.looksAt(check, &check.Tiers[j]) {
			looks = append(looks, part(check, true, func(tier *enforce.Tier) bool {
				return tier.Key.Shard == shard && p.looksAt(check, tier)
			}))
		}
	}
	return looks
}

// lend takes the answers to all loans in.
func (t *spreadTake) lend(leases []enforce.Lease, err error, isLate bool) {
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
	for j := range check.Tiers {
		if tier := &check.Tiers[j]; p.borrows(check, tier) {
			l := t.loans[tier.Key]
			tier.Bucket = enforce.Bucket{Level: l.lease.Grant.Level, Stamp: t.stamp, Limit: l.lease.Grant.Limit}
			tier.Bucket.Level.Micros += l.left // as the check leaves the bucket to later ones
		}
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

// answer answers a tier from its loan. Its bucket is as its turn left it; isBack says that the cost went back since.
func (l *loan) answer(tier *enforce.Tier, cost enforce.Tokens, isBack bool) {
	g, bucket := &l.lease.Grant, tier.Bucket
	if tier.Holds {
		if isBack {
			bucket.Level.Micros += cost
		}
		tier.Serve(bucket)
		return
	}
	// Earlier checks of the call may have put back what this one lacked, so it need not be waited for.
	back := max(0, g.Level.Micros+l.left-bucket.Level.Micros)
	out, full := g.Out-g.Amount, enforce.Tokens(g.Limit.Burst)*enforce.Token // what is borrowed here is back at once
	tier.Out = out + back
	// Lent tokens can come back earlier than reckoned here, which is enough. Without holders all is borrowed for checks, and about to be
	// reported.
	areHeld := g.Holders > 1 && out > 0
	untilForgotten := (enforce.LeaseLife + enforce.SlotLength + enforce.SlotGuard).Microseconds()
	earning := func(amount enforce.Tokens) int64 {
		micros := int64(min(math.Ceil(float64(amount-bucket.Level.Micros-back)/g.Limit.Rate), 1e15))
		if areHeld && amount > full-out {
			micros += untilForgotten
		}
		return max(micros, 0)
	}
	wait := max(earning(cost), 1)
	if g.Refused && cost == l.lease.Ask.Need && g.Wait > 0 && (areHeld || out == 0) {
		wait = g.Wait
	}
	tier.SetWaits(wait, earning(full))
}
