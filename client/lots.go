package sluice

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// Amounts of tokens are in millionths here, so that all are exact.
const (
	oneToken = 1_000_000

	// clockDrift: the clocks of this machine may run slower than the store's by 1/clockDrift.
	clockDrift = 1000
	// lotLife is how long lent tokens are spent, from when they were asked for.
	lotLife = time.Second - time.Second/clockDrift
	// idleAfter is how long a bucket goes without a check before its tokens are given back.
	idleAfter = 100 * time.Millisecond
	// averaged is the time over which demand is averaged.
	averaged = 500 * time.Millisecond
	// A bucket should hold tokens for shortHorizon of its demand, and for longer the more others hold tokens of it, because
	// a store that serves many serves each seldom.
	shortHorizon, longHorizon = 250 * time.Millisecond, time.Second
	fewHolders                = 10 // a shortHorizon's
	// leastWanted and longestLot bound what a bucket should hold: in tokens, and in time of its rate.
	leastWanted = 4 * oneToken
	longestLot  = 5 * time.Second
	// mostLent is the share of a burst that all holders together should want, less than what the server lends.
	mostLent = 0.4
	// rest is how long a bucket is not asked for that lent nothing.
	rest = 50 * time.Millisecond
	// maxParts is over how many lots the cost of a check is spread at most.
	maxParts = 4
)

// instant is one reading of this machine's clocks, in nanoseconds. The monotonic clock may stand still while the machine is
// suspended, and the wall clock may be set back, so either ends what was lent.
type instant struct{ mono, wall int64 }

func (i instant) plus(d time.Duration) instant { return instant{i.mono + int64(d), i.wall + int64(d)} }

// isBefore reports whether both clocks are before a time.
func (i instant) isBefore(other instant) bool { return i.mono < other.mono && i.wall < other.wall }

// lot is what one grant lent.
type lot struct {
	left  atomic.Int64 // can be spent
	spent atomic.Int64 // not reported yet
	slot  int64
	epoch int64
	since int64 // of the limit in force when it was lent
	from  int64 // when the answer came, on the monotonic clock
	ends  instant
}

// take takes up to an amount, and returns how much.
func (l *lot) take(amount int64) int64 {
	for {
		left := l.left.Load()
		if left <= 0 {
			return 0
		}
		taken := min(left, amount)
		if l.left.CompareAndSwap(left, left-taken) {
			return taken
		}
	}
}

// heldBucket is what this process holds of one bucket. take, held and miss are safe for concurrent use and wait for nothing.
// The other methods are for the client's one background goroutine.
//
// It follows the same rules as the server's own processes (internal/lease), whose code a client cannot use: that reaches the
// rule engine, and with it modules and the time zone database, and this package needs the standard library only.
type heldBucket struct {
	id     string
	lots   atomic.Pointer[[]*lot] // the oldest first; replaced, never changed
	missed atomic.Int64           // what checks asked for that lots did not have
	pause  atomic.Int64           // until when an empty bucket denies without asking, on the monotonic clock
	level  atomic.Int64           // in the store, after the last grant
	rule   atomic.Pointer[leaseRule]

	// Of the background goroutine:
	isAsking bool
	reported int64 // of what was spent, ever
	presence int64 // the slot of the last grant; 0 after an answer that was lost
	epoch    int64 // of the last grant
	holders  int64
	largest  int64   // cost of a check
	seen     int64   // spent and missed when demand was last computed
	demand   float64 // per second
	measured instant // when demand was computed
	began    instant // the end of the last idle time
	active   instant // when a check last asked
	resting  instant // until when it is not asked for
}

// leaseRule is the rule of a bucket or of a block, with the limit in force.
type leaseRule struct {
	RuleID        int64   `json:"rule_id"`
	Name          string  `json:"name"`
	Scope         string  `json:"scope"`
	KeyPattern    string  `json:"key_pattern"`
	Mode          string  `json:"mode"`
	RatePerSecond float64 `json:"rate_per_second"`
	Burst         int64   `json:"burst_capacity"`
	Since         int64   `json:"since"`
}

func (r *leaseRule) isEnforced() bool { return r.Mode == "enforce" }

func newHeldBucket(id string, rule *leaseRule, now instant) *heldBucket {
	b := &heldBucket{id: id, holders: 1, measured: now, began: now, active: now}
	b.rule.Store(rule)
	return b
}

// taken is what take took, until it is spent or put back.
type taken struct {
	n     int
	parts [maxParts]takenPart
}

type takenPart struct {
	lot    *lot
	amount int64
}

// take takes a cost from the oldest lots that have not ended, or takes nothing and reports false.
func (b *heldBucket) take(now instant, cost int64, t *taken) bool {
	t.n = 0
	lots := b.lots.Load()
	if lots == nil {
		return false
	}
	missing := cost
	for _, l := range *lots {
		// A check that began before the answer came would count as admitted before the bucket had earned the tokens.
		if now.mono < l.from || !now.isBefore(l.ends) {
			continue
		}
		if amount := l.take(missing); amount > 0 {
			t.parts[t.n] = takenPart{l, amount}
			t.n++
			missing -= amount
		}
		if missing == 0 {
			return true
		}
		if t.n == maxParts {
			break
		}
	}
	t.putBack()
	return false
}

func (t *taken) spend() {
	for i := range t.n {
		t.parts[i].lot.spent.Add(t.parts[i].amount)
	}
}

// putBack returns what was taken to its lots. If one was reported meanwhile, it is lost.
func (t *taken) putBack() {
	for i := range t.n {
		t.parts[i].lot.left.Add(t.parts[i].amount)
	}
	t.n = 0
}

// held returns what can be spent at a time.
func (b *heldBucket) held(now instant) (sum int64) {
	if lots := b.lots.Load(); lots != nil {
		for _, l := range *lots {
			if now.isBefore(l.ends) {
				sum += max(0, l.left.Load())
			}
		}
	}
	return sum
}

// isPaused reports whether the bucket was empty so recently that checks are denied without asking.
func (b *heldBucket) isPaused(now instant) bool { return now.mono < b.pause.Load() }

// bucketAsk is what is asked of the server for a bucket.
type bucketAsk struct {
	Bucket   string         `json:"bucket"`
	Epoch    int64          `json:"epoch"`
	Presence int64          `json:"presence"`
	Held     decimal        `json:"held"`
	Want     decimal        `json:"want"`
	Returns  []bucketReturn `json:"returns,omitempty"`
}

type bucketReturn struct {
	Slot  int64   `json:"slot"`
	Spent decimal `json:"spent"`
	Back  decimal `json:"back"`
}

// bucketGrant is the server's answer to a bucketAsk.
type bucketGrant struct {
	Amount  decimal `json:"amount"`
	Slot    int64   `json:"slot"`
	Epoch   int64   `json:"epoch"`
	Level   decimal `json:"level"`
	Holders int64   `json:"holders"`
	PauseUS int64   `json:"pause_us"`
}

// wanted returns what the bucket should hold, and computes the demand.
func (b *heldBucket) wanted(now instant) int64 {
	asked := b.missed.Load() + b.reported
	if lots := b.lots.Load(); lots != nil {
		for _, l := range *lots {
			asked += l.spent.Load()
		}
	}
	if elapsed := float64(now.mono - b.measured.mono); elapsed > 0 {
		recent := float64(asked-b.seen) / elapsed * float64(time.Second)
		if asked != b.seen && now.mono-b.active.mono >= int64(idleAfter) {
			b.began = b.measured
		}
		// What the bucket did before it was idle says little, so the average begins anew.
		weight := max(1-math.Exp(-elapsed/float64(averaged)), elapsed/float64(now.mono-b.began.mono))
		b.demand += (recent - b.demand) * weight
		b.measured = now
	}
	if asked != b.seen {
		b.seen, b.active = asked, now
	}
	rule := b.rule.Load()
	rate, burst := rule.RatePerSecond*oneToken, float64(rule.Burst)*oneToken
	horizon := min(shortHorizon*time.Duration(max(b.holders, fewHolders))/fewHolders, longHorizon).Seconds()
	want := max(b.demand*min(horizon, mostLent*burst/rate), leastWanted, 2*float64(b.largest))
	return int64(min(want, rate*longestLot.Seconds()))
}

// ask returns what to ask now, and whether to ask at all. It deducts what it reports, because a report whose answer is lost is
// never repeated: the store then counts too much as lent for a second. Each ask is followed by granted or lost.
func (b *heldBucket) ask(now instant) (ask bucketAsk, ok bool) {
	if b.isAsking {
		return ask, false
	}
	want, held := b.wanted(now), b.held(now)
	isIdle := now.mono-b.active.mono >= int64(idleAfter)
	switch {
	case isIdle:
		return b.giveBack(now)
	case held >= want/2 && !b.hasOlder() || b.isPaused(now) || now.mono < b.resting.mono:
		return ask, false
	}
	ask = bucketAsk{Bucket: b.id, Epoch: b.epoch, Presence: b.presence, Want: decimal(want)}
	ask.Returns = b.report(now, false)
	ask.Held = decimal(b.held(now))
	b.isAsking = true
	return ask, true
}

// giveBack returns an ask that gives everything back, and false if there is nothing.
func (b *heldBucket) giveBack(now instant) (ask bucketAsk, ok bool) {
	if b.isAsking || b.isEmpty() {
		return ask, false
	}
	b.isAsking = true
	return bucketAsk{Bucket: b.id, Epoch: b.epoch, Presence: b.presence, Returns: b.report(now, true)}, true
}

func (b *heldBucket) isEmpty() bool {
	lots := b.lots.Load()
	return lots == nil || len(*lots) == 0
}

// hasOlder reports whether tokens were lent under an older limit than the one known.
func (b *heldBucket) hasOlder() bool {
	lots := b.lots.Load()
	return lots != nil && slices.ContainsFunc(*lots, func(l *lot) bool { return l.since < b.rule.Load().Since && l.left.Load() > 0 })
}

// report returns what was spent, and what is given back: everything, or what was lent under an older limit. It drops lots
// that have neither tokens nor anything to report.
func (b *heldBucket) report(now instant, everything bool) (returns []bucketReturn) {
	lots := b.lots.Load()
	if lots == nil {
		return nil
	}
	var kept []*lot
	for _, l := range *lots {
		r := bucketReturn{Slot: l.slot}
		if everything || l.since < b.rule.Load().Since {
			r.Back = decimal(max(0, l.left.Swap(0)))
		}
		r.Spent = decimal(l.spent.Swap(0))
		b.reported += int64(r.Spent)
		if l.epoch == b.epoch && (r.Spent > 0 || r.Back > 0) {
			if i := slices.IndexFunc(returns, func(other bucketReturn) bool { return other.Slot == l.slot }); i >= 0 {
				returns[i].Spent += r.Spent
				returns[i].Back += r.Back
			} else {
				returns = append(returns, r)
			}
		}
		// A check in flight may still put tokens back into a lot that is dropped here. They are lost.
		if l.left.Load() > 0 && now.isBefore(l.ends) {
			kept = append(kept, l)
		}
	}
	b.lots.Store(&kept)
	return returns[max(0, len(returns)-maxReturns):]
}

// maxReturns is how many slots a report may name. More are never alive.
const maxReturns = 6

// granted takes a grant in. The ask was sent at a time.
func (b *heldBucket) granted(sent, now instant, rule *leaseRule, grant *bucketGrant) {
	b.isAsking = false
	b.presence, b.epoch, b.holders = grant.Slot, grant.Epoch, max(1, grant.Holders)
	b.level.Store(int64(grant.Level))
	if grant.Amount > 0 {
		l := &lot{slot: grant.Slot, epoch: grant.Epoch, since: rule.Since, from: now.mono, ends: sent.plus(lotLife)}
		l.left.Store(int64(grant.Amount))
		var lots []*lot
		if former := b.lots.Load(); former != nil {
			lots = append(lots, *former...)
		}
		lots = append(lots, l)
		b.lots.Store(&lots)
	} else {
		b.resting = now.plus(rest)
	}
	b.pause.Store(now.mono + int64(time.Duration(min(max(0, grant.PauseUS), longestPauseUS))*time.Microsecond))
}

// longestPauseUS caps a pause, in microseconds, whatever the server says.
const longestPauseUS = 100_000

// unanswered says that the server counted the report and granted nothing, because it was asked too soon or its store is away.
func (b *heldBucket) unanswered() { b.isAsking = false }

// lost says that nobody knows what the server did.
func (b *heldBucket) lost() { b.isAsking, b.presence = false, 0 }

// drop forgets all tokens. They are not reported, so the store keeps them as lent for a second.
func (b *heldBucket) drop() {
	if lots := b.lots.Load(); lots != nil {
		for _, l := range *lots {
			l.left.Store(0)
		}
	}
	b.lots.Store(nil)
	b.pause.Store(0)
	b.presence = 0
}
