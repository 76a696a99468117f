package enforce

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// MaxTogether is how many buckets the checks of one DecideTogether may reach: as many as a script of many checks, so that no
// caller holds the store for longer than others do.
const MaxTogether = 256

// ErrTooManyBuckets means that checks which are decided together reach more than MaxTogether buckets. Nothing was taken.
var ErrTooManyBuckets = errors.New("the checks reach too many buckets")

// ErrSpreadLimits means that checks which are decided together reach limits of several users that cannot be lent, in a tenant whose
// buckets are spread. Nothing was taken.
var ErrSpreadLimits = errors.New("the checks reach limits of several users that cannot be lent")

// DecideTogether decides checks of one tenant that are parts of one request: tokens are taken for all of them or, if one is
// denied, for none, and allowed reports which. decisions[i] answers checks[i] as if it were alone: of a denied request it
// says which checks would pass. It reuses the memory of the decisions.
//
// A bucket that several checks reach is taken from once, at the largest of their costs. A bypass or a block decides its own
// check. The observer is told of all checks of a request that passes, and of the denied ones of another; the others took
// nothing and did not pass.
//
// It answers within the time budget of the shared buckets, as Decide does. The error is ErrTooManyBuckets or ErrSpreadLimits.
func (l *Limiter) DecideTogether(
	ctx context.Context, tenant *snapshot.Tenant, checks []Check, decisions []Decision,
) (allowed bool, err error) {
	u := units.Get().(*unit)
	defer u.release()
	now := l.now()
	for i := range checks {
		d := &decisions[i]
		d.matches = tenant.Match(&checks[i].Request, checks[i].EffectivePlan, now, d.matches[:0])
		d.begin(&checks[i])
		d.failUnknown(checks[i].Cost)
	}
	if u.gather(tenant, checks, decisions); len(u.take[0].Tiers) > MaxTogether {
		return false, ErrTooManyBuckets
	}
	if areSpread(u.take[0].Tiers) {
		return false, ErrSpreadLimits
	}
	if len(u.take[0].Tiers) > 0 {
		ctx = context.WithoutCancel(ctx)
		err := l.takeShared(ctx, u.take[:])
		switch {
		case u.take[0].Recalled:
			u.answer(tenant, decisions, (*Decision).recall)
		case err == nil || u.take[0].Answered:
			u.answer(tenant, decisions, (*Decision).read)
		default:
			l.degradeTogether(ctx, tenant, checks, decisions, u)
		}
	}
	allowed = true
	for i := range decisions {
		decisions[i].conclude()
		allowed = allowed && decisions[i].Allowed
	}
	for i := range decisions {
		if allowed || !decisions[i].Allowed {
			l.observer.Decided(tenant, &checks[i], &decisions[i])
		}
	}
	return allowed, nil
}

// areSpread reports whether tiers that cannot be lent are in several shards.
func areSpread(tiers []Tier) bool {
	shard := uint8(0)
	for i := range tiers {
		own := tiers[i].Key.Shard
		if own == 0 || CanLease(tiers[i].Limit) {
			continue
		}
		if shard > 0 && own != shard {
			return true
		}
		shard = own
	}
	return false
}

// degradeTogether is degrade for the checks of one request.
func (l *Limiter) degradeTogether(ctx context.Context, tenant *snapshot.Tenant, checks []Check, decisions []Decision, u *unit) {
	for i := range decisions {
		if d := &decisions[i]; slices.ContainsFunc(d.Tiers, func(t TierDecision) bool { return isLimit(t.Match) }) {
			d.failOver(checks[i].Cost)
		}
	}
	u.gather(tenant, checks, decisions)
	if len(u.take[0].Tiers) == 0 {
		return
	}
	if err := l.local.Take(ctx, u.take[:]); err != nil {
		for i := range decisions {
			denyWhere(decisions[i].Tiers, StoreUnavailable, func(t *TierDecision) bool { return isLimit(t.Match) && t.Allowed })
		}
		return
	}
	u.answer(tenant, decisions, (*Decision).read)
}

// unit is the reusable memory of one DecideTogether.
type unit struct {
	take   [1]BucketCheck // of all checks
	tiers  []Tier         // the distinct ones of all decisions
	places map[Key]int    // in tiers
	own    []Tier         // of one decision
}

var units = sync.Pool{New: func() any { return &unit{places: map[Key]int{}} }}

// release gives the memory back.
func (u *unit) release() {
	clear(u.tiers)
	clear(u.own)
	clear(u.places)
	u.take, u.tiers, u.own = [1]BucketCheck{}, u.tiers[:0], u.own[:0]
	units.Put(u)
}

// gather makes one check of the limits of all decisions that are still open. It takes nothing if one is denied already.
func (u *unit) gather(tenant *snapshot.Tenant, checks []Check, decisions []Decision) {
	u.tiers = u.tiers[:0]
	clear(u.places)
	all := BucketCheck{ReadAt: tenant.ReadAt()}
	for i := range decisions {
		all.NoDelay = all.NoDelay || checks[i].Proxied
		if decisions[i].isDenied() {
			all.Look = true
			continue
		}
		u.own = bucketTiers(tenant, decisions[i].Tiers, u.own[:0])
		for j := range u.own {
			place, found := u.places[u.own[j].Key]
			if !found {
				place = len(u.tiers)
				u.places[u.own[j].Key] = place
				u.tiers = append(u.tiers, u.own[j])
			}
			u.tiers[place].Cost = max(u.tiers[place].Cost, checks[i].Cost)
		}
	}
	for i := range u.tiers {
		all.Cost = max(all.Cost, u.tiers[i].Cost)
		all.Mixed = all.Mixed || u.tiers[i].Cost != u.tiers[0].Cost
	}
	all.Tiers = u.tiers
	u.take[0] = all
}

// answer gives each open decision the answers of its own tiers.
func (u *unit) answer(tenant *snapshot.Tenant, decisions []Decision, read func(*Decision, *BucketCheck)) {
	part := u.take[0]
	part.Mixed = true
	for i := range decisions {
		d := &decisions[i]
		if d.isDenied() {
			continue
		}
		u.own = bucketTiers(tenant, d.Tiers, u.own[:0])
		for j := range u.own {
			u.own[j] = u.tiers[u.places[u.own[j].Key]]
		}
		if len(u.own) > 0 {
			part.Tiers = u.own
			read(d, &part)
		}
	}
}

// isDenied reports whether a tier denies the check before any bucket was read.
func (d *Decision) isDenied() bool {
	return slices.ContainsFunc(d.Tiers, func(t TierDecision) bool { return t.Enforced() && !t.Allowed })
}

// Refund gives the check's cost back to the buckets of the limits that it meets, at most up to their bursts. It is for
// callers whose earlier checks took it. The decision has those buckets after it; blocks and bypasses are none.
//
// Buckets get it one by one: after an error some may have it.
func (l *Limiter) Refund(ctx context.Context, to Creditor, tenant *snapshot.Tenant, check *Check) (d Decision, err error) {
	d = Decision{Plan: check.EffectivePlan, matches: tenant.Match(&check.Request, check.EffectivePlan, l.now(), nil)}
	apply := met(check)
	d.keepMatches(func(m *rules.Match) bool { return isLimit(m) && apply(m) })
	given := BucketCheck{Tiers: bucketTiers(tenant, d.Tiers, nil)}
	for i := range given.Tiers {
		tier := &given.Tiers[i]
		if _, tier.Bucket, err = to.Credit(ctx, tier.Key, tier.Limit, check.Cost); err != nil {
			return d, err
		}
		tier.Holds = true
	}
	d.read(&given)
	d.conclude()
	return d, nil
}
