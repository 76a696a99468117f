package enforce

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// denialLife is how long a DenialCache keeps an entry. Resets, credits, edits that other processes read first, and
	// lost buckets can go unnoticed for as long.
	denialLife    = time.Second
	denialEntries = 1 << 14
	// clockDrift: the store's clock may drift from this one by 1/clockDrift; NTP slews each by at most 1/2000.
	clockDrift = 1000
	// returnPause: for this long after a denial, lent tokens are assumed not to come back. Owners spend rather than
	// return an empty bucket's tokens, and without the pause a caller over its limit always asks the store.
	returnPause = 100 * time.Millisecond
	clockGrain  = 2
)

// DenialCache denies checks that the store would deny, without a round trip.
//
// An entry keeps, for a second, the level of a bucket that lacked a cost. While the level and the most it can have
// earned are below a check's cost, the store would deny the check.
//
// The level was read between question and answer: denials assume the earlier time, reported waits the later.
//
// A recalled denial answers only the tiers that lack tokens. The cache never denies, or denies by
//
//   - a look, or a cost of 0 unless a tier has After;
//   - a Record;
//   - a cost above the burst of an enforced tier, which has another reason;
//   - by a shadow tier;
//   - by another limit than the caller's, which may have been edited since;
//   - by a concurrency limit, whose slots can be released at any time.
//
// For a sliding window, whose level does not determine the wait, only checks of the same amount are denied.
//
// A nil cache keeps nothing.
type DenialCache struct {
	clock      func() time.Duration // monotonic
	seed       maphash.Seed
	lastStored atomic.Int64
	entries    [denialEntries]atomic.Pointer[denial]
}

type denial struct {
	key Key
	TierAnswer
	needed          Tokens // what the denied check lacked
	asked, answered time.Duration
}

// NewDenialCache returns an empty cache; a nil clock is this process's monotonic one.
func NewDenialCache(clock func() time.Duration) *DenialCache {
	if clock == nil {
		start := time.Now()
		clock = func() time.Duration { return time.Since(start) }
	}
	c := &DenialCache{clock: clock, seed: maphash.MakeSeed()}
	c.lastStored.Store(int64(-2 * denialLife))
	return c
}

// Take answers checks from the cache, and passes the others to the store's own take.
func (c *DenialCache) Take(checks []BucketCheck, take func([]BucketCheck) error) error {
	if c == nil {
		return take(checks)
	}
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
		err := take(checks)
		c.remember(checks, now, err)
		return err
	}
	// Denied checks take nothing, so leaving them out changes no other answer.
	rest := make([]BucketCheck, 0, len(checks)-recalled)
	for i := range checks {
		if !checks[i].Recalled {
			rest = append(rest, checks[i])
		}
	}
	err := take(rest)
	c.remember(rest, now, err)
	for i := range checks {
		if !checks[i].Recalled {
			checks[i], rest = rest[0], rest[1:]
		}
	}
	return err
}

func (c *DenialCache) denyFromCache(check *BucketCheck, now time.Duration) bool {
	if check.Look || check.Record || now-time.Duration(c.lastStored.Load()) > denialLife {
		return false
	}
	lacking := false
	for i := range check.Tiers {
		tier := &check.Tiers[i]
		tier.Holds, tier.Charged = true, 0
		if tier.Shadow || check.needed(tier, tier.Limit) == 0 {
			continue
		}
		if check.isAboveBurst(tier, tier.Limit) {
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

// A bucket that has just given its last token is not remembered: the store's next denial lists every tier.
func (c *DenialCache) remember(checks []BucketCheck, asked time.Duration, failed error) {
	answered := time.Duration(-1)
	for i := range checks {
		check := &checks[i]
		if failed != nil && !check.Answered {
			continue
		}
		for j := range check.Tiers {
			tier := &check.Tiers[j]
			if tier.Holds || tier.Shadow || tier.Limit.Kind == rules.KindConcurrency ||
				tier.Former > 0 && !tier.hasWaits ||
				!tier.Bucket.Limit.SameAmounts(tier.Limit) {
				continue
			}
			if answered < 0 {
				answered = c.clock()
				c.lastStored.Store(int64(answered))
			}
			denied := &denial{
				key: tier.Key, TierAnswer: tier.TierAnswer, needed: check.needed(tier, tier.Limit), asked: asked,
				answered: answered,
			}
			denied.Bucket.Limit = tier.Limit
			c.entryOf(tier.Key).Store(denied)
		}
	}
}

func (c *DenialCache) lookUp(tier *Tier, now time.Duration) *denial {
	s := c.entryOf(tier.Key).Load()
	if s == nil || now-s.asked > denialLife || s.key != tier.Key || s.Bucket.Limit != tier.Limit {
		return nil
	}
	return s
}

func (c *DenialCache) entryOf(key Key) *atomic.Pointer[denial] {
	return &c.entries[maphash.Comparable(c.seed, key)%denialEntries]
}

// denies assumes that nobody has taken since, and answers the tier if the bucket still lacks the cost.
func (s *denial) denies(check *BucketCheck, tier *Tier, now time.Duration) bool {
	longest, shortest := (now - s.asked).Microseconds(), (now - s.answered).Microseconds()
	longest += longest/clockDrift + clockGrain
	shortest = max(0, shortest-shortest/clockDrift-clockGrain)
	if s.Out > 0 {
		most := s.Bucket
		if longest >= returnPause.Microseconds() {
			most.Level.Micros += s.Out
		}
		if most.earned(longest).Level.Holds(s.needed) {
			return false
		}
	}
	needed := check.needed(tier, s.Bucket.Limit)
	if s.hasWaits {
		if needed != s.needed || longest >= s.retry.Microseconds() {
			return false
		}
		tier.Bucket = s.Bucket
		tier.SetWaits(s.retry.Microseconds()-shortest, s.reset.Microseconds()-shortest)
		return true
	}
	if s.Bucket.earned(longest).Level.Holds(needed) {
		return false
	}
	tier.Bucket = s.Bucket.earned(shortest)
	return true
}

func (b Bucket) earned(elapsed int64) Bucket {
	s := State{Bucket: b}
	s.earnUntil(b.Stamp + elapsed)
	return s.Bucket
}
