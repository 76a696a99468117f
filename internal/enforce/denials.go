package enforce

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// denialLife is how long a DenialCache remembers. A reset, a credit, an edit that only other processes know, or the
	// loss of a bucket can go unnoticed for as long.
	denialLife = time.Second
	// denialSlots caps how many buckets it remembers: about 3 MB.
	denialSlots = 1 << 14
	// clockDrift: the store's clock may run faster or slower than this process's by 1/clockDrift. NTP slews each by at
	// most 1/2000. A clock that is set anew goes unnoticed for denialLife.
	clockDrift = 1000
	// returnPause is for how long tokens that a bucket has lent are not waited for. The bucket was empty, so its holders soon
	// spend what they have; until then a caller far above the limit would ask the store each time.
	returnPause = 100 * time.Millisecond
	// clockGrain is the error, in microseconds, of a duration between two clocks that count whole microseconds.
	clockGrain = 2
)

// DenialCache denies, in front of a store that is a round trip away, what the store has just shown that it would deny. A
// caller far above a limit then costs the store only the few checks that pass.
//
// It remembers for a second the level of each bucket that lacked a cost. A bucket's level can only earn, or be taken from,
// unless people or settled reservations give back.
// So while the level and all that it can have earned since are below the cost of a check, the store would deny the check,
// whatever its cost and whoever else takes.
//
// When the store read the level is known only to lie between asking and the answer. Whether to deny assumes the most that can
// have been earned, since asking; the wait that a denial reports assumes the least, since the answer, so that it is enough.
//
// Such a denial is marked Recalled and has an answer only for the tiers that lack tokens. It is never given
//
//   - to a look, whose cost is 0;
//   - where a cost is above the burst of an enforced tier, which is another reason to deny;
//   - for a shadow tier, which decides nothing;
//   - from another limit than the caller's, which may have been edited since;
//   - for a concurrency limit, whose places can be released at any time.
//
// What a bucket has lent can come back at any time too. It is reckoned with after returnPause.
//
// Of a window that slides it remembers the wait for a cost, because its level alone does not tell, and denies only checks of
// that cost.
//
// Memory is bounded: each bucket has one slot, where the latest entry replaces others. An eviction costs a round trip,
// never a wrong answer. Nothing waits for a lock.
type DenialCache struct {
	store ReservingBuckets
	clock func() time.Duration // monotonic
	seed  maphash.Seed
	// lastStored is when an entry was last stored. It spares look-ups while nobody is denied.
	lastStored atomic.Int64
	slots      [denialSlots]atomic.Pointer[denial]
}

// denial is the entry of a bucket that lacked a cost.
type denial struct {
	key    Key
	bucket Bucket // as the store answered between asked and answered; its limit was also the caller's
	// cost and retry are those of the check, if told: for buckets whose level does not tell.
	cost         Tokens
	told         bool
	retry, reset time.Duration
	// out is what the bucket had lent, all of which can come back.
	out Tokens
	// asked and answered are on the cache's clock.
	asked, answered time.Duration
}

var _ ReservingBuckets = (*DenialCache)(nil)

// NewDenialCache returns a cache in front of a store. The clock must never go back; nil is this process's own.
func NewDenialCache(store ReservingBuckets, clock func() time.Duration) *DenialCache {
	if clock == nil {
		start := time.Now()
		clock = func() time.Duration { return time.Since(start) }
	}
	c := &DenialCache{store: store, clock: clock, seed: maphash.MakeSeed()}
	c.lastStored.Store(int64(-2 * denialLife))
	return c
}

// Take implements Buckets. The store gets the checks that the cache cannot deny.
func (c *DenialCache) Take(ctx context.Context, checks []BucketCheck) error {
	now := c.clock()
	recalled := 0
	for i := range checks {
		checks[i].Recalled = c.denyFromCache(&checks[i], now)
		if checks[i].Recalled {
			recalled++
		}
	}
	switch recalled {
	case len(checks):
		return nil
	case 0:
		err := c.store.Take(ctx, checks)
		c.remember(checks, now, err)
		return err
	}
	// Denied checks take nothing, so the others have the same answers without them.
	rest := make([]BucketCheck, 0, len(checks)-recalled)
	for i := range checks {
		if !checks[i].Recalled {
			rest = append(rest, checks[i])
		}
	}
	err := c.store.Take(ctx, rest)
	c.remember(rest, now, err)
	for i := range checks {
		if !checks[i].Recalled {
			checks[i], rest = rest[0], rest[1:]
		}
	}
	return err
}

// SettleReservation implements Reserver. What it gives back may go unnoticed for denialLife.
func (c *DenialCache) SettleReservation(ctx context.Context, tenant rules.TenantID, id ReservationID, with Settlement) (Settled, error) {
	return c.store.SettleReservation(ctx, tenant, id, with)
}

// denyFromCache answers a check that the store would deny, and reports whether it did.
func (c *DenialCache) denyFromCache(check *BucketCheck, now time.Duration) bool {
	if check.Cost == 0 || check.Look || now-time.Duration(c.lastStored.Load()) > denialLife {
		return false
	}
	lacking := false
	for i := range check.Tiers {
		tier := &check.Tiers[i]
		tier.Holds = true
		if tier.Shadow {
			continue
		}
		if charge(tier.Limit, check.costOf(tier)) > capacity(tier.Limit) {
			return false
		}
		if s := c.lookUp(tier, now); s != nil && s.denies(check, tier, now) {
			tier.Holds, lacking = false, true
		}
	}
	if lacking {
		check.Allowed, check.Answered = false, true
	}
	return lacking
}

// remember stores the buckets that lacked a cost, from the checks that the store answered. A bucket that has just given its
// last token is not stored, so that the first denial is the store's, with every tier.
func (c *DenialCache) remember(checks []BucketCheck, asked time.Duration, failed error) {
	answered := time.Duration(-1)
	for i := range checks {
		check := &checks[i]
		if failed != nil && !check.Answered {
			continue
		}
		for j := range check.Tiers {
			tier := &check.Tiers[j]
			if tier.Holds || tier.Shadow || tier.Limit.Kind == rules.KindConcurrency || !tier.Bucket.Limit.SameAmounts(tier.Limit) {
				continue
			}
			if answered < 0 {
				answered = c.clock()
				c.lastStored.Store(int64(answered))
			}
			bucket := tier.Bucket
			bucket.Limit = tier.Limit
			c.slotOf(tier.Key).Store(&denial{
				key: tier.Key, bucket: bucket, cost: check.costOf(tier), told: tier.told, retry: tier.retry, reset: tier.reset,
				out: tier.Out, asked: asked, answered: answered,
			})
		}
	}
}

func (c *DenialCache) lookUp(tier *Tier, now time.Duration) *denial {
	s := c.slotOf(tier.Key).Load()
	if s == nil || now-s.asked > denialLife || s.key != tier.Key || s.bucket.Limit != tier.Limit {
		return nil
	}
	return s
}

func (c *DenialCache) slotOf(key Key) *atomic.Pointer[denial] {
	return &c.slots[maphash.Comparable(c.seed, key)%denialSlots]
}

// denies reports whether the bucket lacks the check's cost even if nobody has taken from it since, and then fills the
// tier's answer.
func (s *denial) denies(check *BucketCheck, tier *Tier, now time.Duration) bool {
	longest, shortest := (now - s.asked).Microseconds(), (now - s.answered).Microseconds()
	longest += longest/clockDrift + clockGrain
	shortest = max(0, shortest-shortest/clockDrift-clockGrain)
	if s.out > 0 {
		most := State{Bucket: s.bucket}
		if longest >= returnPause.Microseconds() {
			most.Level.Micros += s.out
		}
		most.advance(s.bucket.Stamp + longest)
		if most.Level.Holds(s.cost) {
			return false
		}
	}
	if s.told {
		if check.costOf(tier) != s.cost || longest >= s.retry.Microseconds() {
			return false
		}
		tier.Bucket = s.bucket
		tier.SetWaits(s.retry.Microseconds()-shortest, s.reset.Microseconds()-shortest)
		return true
	}
	most := State{Bucket: s.bucket}
	most.advance(s.bucket.Stamp + longest)
	if most.Level.Holds(check.needed(tier, s.bucket.Limit)) {
		return false
	}
	least := State{Bucket: s.bucket}
	least.advance(s.bucket.Stamp + shortest)
	tier.Bucket = least.Bucket
	return true
}
