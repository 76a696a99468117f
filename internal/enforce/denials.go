package enforce

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"
)

const (
	// denialLife is how long a DenialCache remembers, and so how long a reset, a credit, an edit by
	// somebody who does not share it, or a lost bucket can go unnoticed.
	denialLife = time.Second
	// denialSlots is how many buckets it remembers at most: about 3 MB.
	denialSlots = 1 << 14
	// clockDrift is the part by which the store's clock may run faster or slower than this process's.
	// NTP slews a clock by at most 1/2000, and there are two. A clock that is set anew goes unnoticed
	// for denialLife.
	clockDrift = 1000
	// clockGrain is by how many microseconds an elapsed time read off two clocks of whole
	// microseconds can be off.
	clockGrain = 2
)

// DenialCache stands in front of a store that is a round trip away, and denies what the store has
// just shown that it would. Somebody far above a limit then costs the store nothing but the few
// asks that pass.
//
// It remembers, for a second, the level of each bucket that the store was seen to deny from.
// All that can happen to a bucket's level is that it earns, and that others take from it; so while
// the level and all that it can have earned since are below the cost of an ask, the store would
// deny the ask. That holds for every cost, and for a bucket that other processes take from. What a
// bucket can have earned is counted from before the store was asked; what a denial reports, from when
// the store had answered, so that whoever waits as told has waited enough.
//
// Such a denial is marked Recalled and knows only the tiers that lack tokens. It is never given
//
//   - to a look, whose cost is 0;
//   - where a cost is above the burst of an enforced tier, which is another reason to deny;
//   - for a shadow tier's lack, which decides nothing;
//   - from a limit other than the one that the caller has, which may have been edited since.
//
// Memory is bounded: a bucket has one place where it can be remembered, and there the latest stays.
// Being pushed out costs a round trip, never a wrong answer. Nothing ever waits for a lock.
type DenialCache struct {
	store Buckets
	clock func() time.Duration // monotonic
	seed  maphash.Seed
	// latest is when something was last remembered. Where nobody is denied, nothing is looked up.
	lastStored atomic.Int64
	slots      [denialSlots]atomic.Pointer[denial]
}

// shortage is a bucket that held less than was asked for.
type denial struct {
	key   Key
	limit Limit // in force, and the caller's
	level Level // at some moment from asked to answered
	// asked and answered are on the cache's clock.
	asked, answered time.Duration
}

var _ Buckets = (*DenialCache)(nil)

// NewDenialCache returns a cache in front of a store. A nil clock, which must never go back, is this
// process's own.
func NewDenialCache(store Buckets, clock func() time.Duration) *DenialCache {
	if clock == nil {
		start := time.Now()
		clock = func() time.Duration { return time.Since(start) }
	}
	c := &DenialCache{store: store, clock: clock, seed: maphash.MakeSeed()}
	c.lastStored.Store(int64(-2 * denialLife))
	return c
}

// Take implements Buckets. It asks the store about those asks that it cannot deny by itself.
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
	// The asks that are denied take nothing, so the others' answers are the same without them.
	rest := make([]BucketCheck, 0, len(checks)-recalled)
	for i := range checks {
		if !checks[i].Recalled {
			rest = append(rest, checks[i])
		}
	}
	err := c.store.Take(ctx, rest)
	c.remember(rest, now, err)
	for i := range checks {
		if !checks[i].Recalled { // its tiers have their answers already
			checks[i].Allowed, checks[i].Answered = rest[0].Allowed, rest[0].Answered
			rest = rest[1:]
		}
	}
	return err
}

// deny answers an ask that the store would deny, and says whether it did.
func (c *DenialCache) denyFromCache(check *BucketCheck, now time.Duration) bool {
	if check.Cost == 0 || now-time.Duration(c.lastStored.Load()) > denialLife {
		return false
	}
	lacking := false
	for i := range check.Tiers {
		tier := &check.Tiers[i]
		tier.Holds = true
		if tier.Shadow {
			continue
		}
		if check.Cost > capacity(tier.Limit) {
			return false
		}
		if s := c.lookUp(tier, now); s != nil && !s.maxLevel(now).Holds(check.Cost) {
			tier.Holds, lacking = false, true
			tier.Bucket = Bucket{Level: s.minLevel(now), Limit: s.limit}
		}
	}
	if lacking {
		check.Allowed, check.Answered = false, true
	}
	return lacking
}

// learn remembers the buckets that held less than they were asked for. A bucket that has just given its
// last is not remembered, so that the first denial is the store's, with every tier as it stands. The
// store was asked at a moment, and answered all asks or, if it failed, those that say so.
func (c *DenialCache) remember(checks []BucketCheck, asked time.Duration, failed error) {
	answered := time.Duration(-1)
	for i := range checks {
		check := &checks[i]
		if failed != nil && !check.Answered {
			continue
		}
		for j := range check.Tiers {
			tier := &check.Tiers[j]
			if tier.Holds || tier.Shadow || !tier.Bucket.Limit.SameAmounts(tier.Limit) {
				continue
			}
			if answered < 0 {
				answered = c.clock()
				c.lastStored.Store(int64(answered))
			}
			c.slotOf(tier.Key).Store(&denial{tier.Key, tier.Limit, tier.Bucket.Level, asked, answered})
		}
	}
}

// recall returns what is remembered of a tier's bucket, or nil.
func (c *DenialCache) lookUp(tier *Tier, now time.Duration) *denial {
	s := c.slotOf(tier.Key).Load()
	if s == nil || now-s.asked > denialLife || s.key != tier.Key || s.limit != tier.Limit {
		return nil
	}
	return s
}

func (c *DenialCache) slotOf(key Key) *atomic.Pointer[denial] {
	return &c.slots[maphash.Comparable(c.seed, key)%denialSlots]
}

// most is what the bucket can hold by now.
func (s *denial) maxLevel(now time.Duration) Level {
	micros := (now - s.asked).Microseconds()
	return s.level.earn(micros+micros/clockDrift+clockGrain, s.limit)
}

// least is what the bucket holds by now if nobody has taken from it.
func (s *denial) minLevel(now time.Duration) Level {
	micros := (now - s.answered).Microseconds()
	return s.level.earn(max(0, micros-micros/clockDrift-clockGrain), s.limit)
}
