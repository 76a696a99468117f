package lease

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

const (
	// clockDrift: this process's clocks may run slower than the store's by 1/clockDrift.
	clockDrift = 1000
	// life is how long lent tokens are spent, from when they were asked for.
	life = enforce.LeaseLife - enforce.LeaseLife/clockDrift
	// A holder wants tokens for horizon of its demand, and asks for more once it has less than the share topUp of that. Each ask costs
	// the store more than a check. Beyond the horizon the first tokens would end before they are spent.
	//
	// A call that is made anyway asks along for buckets that have less than the share alongUp. After a few calls all buckets of a
	// shard are due at the same time; with half instead of three quarters they would stay in up to three groups. Of a tenant whose buckets
	// are spread, other shards are asked in the same round trip if one of their buckets has less than the share soonUp.
	horizon = 800 * time.Millisecond
	topUp   = 0.25
	alongUp = 0.75
	soonUp  = 0.5
	// leastWanted and longestLot bound what a holder wants: in tokens, and in time of the bucket's rate.
	leastWanted = 4 * enforce.Token
	longestLot  = 5 * time.Second
	// mostLent is the share of a burst that all holders together should want, less than what the store lends.
	mostLent = 0.4
	// rest is how long a bucket is not asked in the background that lent nothing.
	rest = 50 * time.Millisecond
	// longestPause is how long an empty bucket is left alone at most.
	longestPause = 100 * time.Millisecond
)

// Instant is one reading of this process's clocks, in nanoseconds: the monotonic clock, and the wall clock.
type Instant struct{ Mono, Wall int64 }

func (i Instant) plus(d time.Duration) Instant { return Instant{i.Mono + int64(d), i.Wall + int64(d)} }

// isBefore reports whether both clocks are before a time.
func (i Instant) isBefore(other Instant) bool { return i.Mono < other.Mono && i.Wall < other.Wall }

// lot is what one grant lent.
type lot struct {
	left      atomic.Int64 // in millionths; can be spent
	spent     atomic.Int64 // likewise; not reported
	undecided atomic.Int64 // likewise; of checks that the store has not answered
	slot      int64
	epoch     int64
	limit     enforce.Limit // in force when it was lent
	from      int64         // when the answer came, on the monotonic clock
	ends      Instant
	due       int64 // lent and not yet reported as spent or given back; of the one goroutine
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

// Bucket is what this process holds of one bucket. Take, Held and Demand are safe for concurrent use and wait for nothing; the
// other methods are for one goroutine at a time.
type Bucket struct {
	lots  atomic.Pointer[[]*lot] // the oldest first; replaced, never changed
	asked atomic.Int64           // what checks asked for, in millionths
	count atomic.Int64           // how many checks did

	// Of the one goroutine:
	limit    enforce.Limit // as this process knows it
	inForce  enforce.Limit // as the store said
	last     Instant       // of the last ask; its zero is none
	isAsking bool
	isVoid   bool  // what the store lends by the ask under way is not kept
	presence int64 // the slot of the last grant
	epoch    int64 // likewise
	holders  int64
	demand   demand
	want     enforce.Tokens // as of the demand
	pause    Instant        // until when an empty bucket is left alone
	resting  Instant        // until when the bucket is asked only for what checks need
	moved    Moved
}

// Moved counts tokens of buckets by what became of them.
type Moved struct {
	Lent, Spent, Back enforce.Tokens
	// Forfeited is what was lent and neither spent nor given back in its life.
	Forfeited enforce.Tokens
}

// Moved returns what moved since the last call.
func (b *Bucket) Moved() (moved Moved) {
	moved, b.moved = b.moved, Moved{}
	return moved
}

// NewBucket returns a bucket of which this process holds nothing.
func NewBucket(limit enforce.Limit, now Instant) *Bucket {
	return &Bucket{limit: limit, inForce: limit, holders: 1, demand: newDemand(now), want: leastWanted}
}

// Taken is what Take took, until it is spent or put back.
type Taken struct {
	n     int
	held  bool
	parts [maxParts]part
}

// maxParts is over how many lots the cost of a check is spread at most.
const maxParts = 4

type part struct {
	lot    *lot
	amount int64
}

// Demand counts the cost of a check that lots served, or would have served with more tokens.
func (b *Bucket) Demand(cost enforce.Tokens) {
	b.asked.Add(int64(cost))
	b.count.Add(1)
}

// Take takes a cost from the oldest lots that have not ended, or takes nothing and reports false.
func (b *Bucket) Take(now Instant, cost enforce.Tokens, taken *Taken) bool {
	taken.n, taken.held = 0, false
	lots := b.lots.Load()
	if lots == nil {
		return cost == 0
	}
	missing := int64(cost)
	for _, l := range *lots {
		if missing == 0 || taken.n == maxParts {
			break
		}
		// A check that began before the answer came would count as admitted before the bucket had earned the tokens.
		if now.Mono < l.from || !now.isBefore(l.ends) {
			continue
		}
		if amount := l.take(missing); amount > 0 {
			taken.parts[taken.n] = part{l, amount}
			taken.n++
			missing -= amount
		}
	}
	if missing > 0 {
		taken.PutBack()
		return false
	}
	return true
}

// Hold keeps what was taken for a check that the store has yet to decide, until Spend or PutBack.
func (t *Taken) Hold() {
	t.held = true
	for i := range t.n {
		t.parts[i].lot.undecided.Add(t.parts[i].amount)
	}
}

// Spend makes what was taken spent.
func (t *Taken) Spend() {
	for i := range t.n {
		p := &t.parts[i]
		p.lot.spent.Add(p.amount)
		if t.held {
			p.lot.undecided.Add(-p.amount)
		}
	}
	t.n, t.held = 0, false
}

// PutBack returns what was taken to the lots that it came from. If a lot has ended meanwhile, it is lost.
func (t *Taken) PutBack() {
	for i := range t.n {
		p := &t.parts[i]
		p.lot.left.Add(p.amount)
		if t.held {
			p.lot.undecided.Add(-p.amount)
		}
	}
	t.n, t.held = 0, false
}

// Held returns what can be spent at a time.
func (b *Bucket) Held(now Instant) (sum enforce.Tokens) {
	if lots := b.lots.Load(); lots != nil {
		for _, l := range *lots {
			if now.isBefore(l.ends) {
				sum += enforce.Tokens(l.left.Load())
			}
		}
	}
	return sum
}

// undecided returns what checks hold that the store has not answered.
func (b *Bucket) undecided(now Instant) (sum enforce.Tokens) {
	if lots := b.lots.Load(); lots != nil {
		for _, l := range *lots {
			if now.isBefore(l.ends) {
				sum += enforce.Tokens(l.undecided.Load())
			}
		}
	}
	return sum
}

// Edited tells the limit that this process knows. Tokens that were lent under an older one are given back by the next ask.
func (b *Bucket) Edited(limit enforce.Limit) { b.limit = limit }

// wanted computes what the bucket should hold. If that is less than its demand for the horizon, holders share what a burst has
// for them: each wants an equal share of it, or its share of what the bucket earns.
func (b *Bucket) wanted(now Instant) enforce.Tokens {
	b.demand.measure(now, b.asked.Load(), b.count.Load())
	lendable := mostLent * float64(b.inForce.Burst) * float64(enforce.Token)
	rate := b.inForce.Rate * float64(enforce.Token)
	most := lendable * max(1/float64(b.holders), b.demand.tokens/rate)
	want := max(min(b.demand.tokens*horizon.Seconds(), most), float64(leastWanted))
	return enforce.Tokens(min(want, rate*longestLot.Seconds()))
}

// Ask returns what to ask of the store now, and whether to ask at all. need is what the first of the waiting checks costs,
// and waiting what all of them do; both are 0 if none waits. Each ask must be followed by Answered or Lost before
// the next.
func (b *Bucket) Ask(now Instant, need, waiting enforce.Tokens) (ask enforce.Ask, ok bool) {
	return b.askBelow(topUp, now, need, waiting)
}

func (b *Bucket) askBelow(share float64, now Instant, need, waiting enforce.Tokens) (ask enforce.Ask, ok bool) {
	if b.isAsking {
		return ask, false
	}
	held := b.Held(now)
	if need > 0 || held < shareOf(b.want, share) || now.Mono-b.demand.measured.Mono >= int64(measureEvery) {
		b.want = b.wanted(now)
	}
	want, isIdle := b.want, need == 0 && b.demand.isIdle(now)
	switch {
	case isIdle:
		if !b.hasReport(now) {
			return ask, false
		}
	case need > held:
	case held >= shareOf(want, share) && !b.hasOlder() || b.IsPaused(now) || now.Mono < b.resting.Mono:
		return ask, false
	}
	ask = enforce.Ask{Epoch: b.epoch, Presence: b.presence, Need: need, Want: want + waiting}
	if isIdle {
		ask.Want = 0
	}
	b.report(&ask, now, isIdle)
	ask.Held = b.Held(now) + b.undecided(now)
	if b.last != (Instant{}) {
		ask.Since = (now.Mono - b.last.Mono) / int64(time.Microsecond)
	}
	b.last, b.isAsking, b.presence = now, true, 0
	return ask, true
}

func shareOf(amount enforce.Tokens, share float64) enforce.Tokens {
	return enforce.Tokens(float64(amount) * share)
}

// Return returns an ask that gives everything back, and false if there is nothing.
func (b *Bucket) Return(now Instant) (ask enforce.Ask, ok bool) {
	if b.isAsking || !b.hasReport(now) {
		return ask, false
	}
	ask = enforce.Ask{Epoch: b.epoch, Presence: b.presence}
	b.report(&ask, now, true)
	b.last, b.isAsking, b.presence = now, true, 0
	return ask, true
}

// hasReport reports whether something was spent or can be given back.
func (b *Bucket) hasReport(now Instant) bool {
	return b.hasLot(func(l *lot) bool { return l.left.Load() > 0 || l.spent.Load() > 0 || !now.isBefore(l.ends) })
}

// isDone reports whether nothing is left to report.
func (b *Bucket) isDone() bool { return !b.isAsking && !b.hasLot(func(*lot) bool { return true }) }

func (b *Bucket) hasLot(where func(*lot) bool) bool {
	lots := b.lots.Load()
	return lots != nil && slices.ContainsFunc(*lots, where)
}

// hasOlder reports whether tokens were lent under an older limit than the one known.
func (b *Bucket) hasOlder() bool {
	return b.hasLot(func(l *lot) bool { return l.limit.Since < b.limit.Since && l.left.Load() > 0 })
}

// report moves what was spent into an ask, and what is given back: everything, or what was lent under an older limit or
// cannot be spent any more. It drops a lot once the store knows where all of the lot's tokens went; a check in flight may still have some.
func (b *Bucket) report(ask *enforce.Ask, now Instant, everything bool) {
	lots := b.lots.Load()
	if lots == nil {
		return
	}
	var kept []*lot
	for _, l := range *lots {
		r := enforce.Return{Slot: l.slot}
		isAlive := now.isBefore(l.ends)
		if everything || l.limit.Since < b.limit.Since || !isAlive {
			r.Back = enforce.Tokens(max(0, l.left.Swap(0)))
		}
		r.Spent = enforce.Tokens(l.spent.Swap(0))
		b.moved.Spent += r.Spent
		if l.epoch == ask.Epoch && now.isBefore(l.ends.plus(enforce.SlotGuard)) {
			b.moved.Back += r.Back
		} else { // the store has forgotten the slot
			b.moved.Forfeited += r.Back
		}
		if l.epoch == ask.Epoch && (r.Spent > 0 || r.Back > 0) {
			ask.Returns = addReturn(ask.Returns, r)
		}
		if l.due -= int64(r.Spent + r.Back); isAlive && l.due > 0 {
			kept = append(kept, l)
		}
	}
	b.lots.Store(&kept)
}

func addReturn(returns []enforce.Return, r enforce.Return) []enforce.Return {
	for i := range returns {
		if returns[i].Slot == r.Slot {
			returns[i].Spent += r.Spent
			returns[i].Back += r.Back
			return returns
		}
	}
	return append(returns, r)
}

// Answered takes a grant in. The ask was sent at a time.
func (b *Bucket) Answered(sent, now Instant, grant *enforce.Grant) {
	isVoid := b.isVoid
	b.isAsking, b.isVoid = false, false
	b.presence, b.epoch, b.holders, b.inForce = grant.Slot, grant.Epoch, max(1, grant.Holders), grant.Limit
	b.moved.Lent += grant.Amount
	switch {
	case isVoid:
		b.moved.Forfeited += grant.Amount
	case grant.Amount > 0:
		l := &lot{slot: grant.Slot, epoch: grant.Epoch, limit: grant.Limit, from: now.Mono, ends: sent.plus(life), due: int64(grant.Amount)}
		l.left.Store(int64(grant.Amount))
		var lots []*lot
		if former := b.lots.Load(); former != nil {
			lots = append(lots, *former...)
		}
		lots = append(lots, l)
		b.lots.Store(&lots)
	}
	if grant.Amount == 0 {
		b.resting = now.plus(rest)
	}
	if share := float64(grant.Level.Micros) / 2 / float64(b.holders); grant.Refused || share < float64(enforce.Token) {
		pause := time.Duration(float64(b.holders) / grant.Limit.Rate * float64(time.Second))
		b.pause = now.plus(min(pause, longestPause))
	}
}

// Lost says that the answer to an ask was lost.
func (b *Bucket) Lost() { b.isAsking, b.isVoid = false, false }

// Forfeit drops what is held, and what an ask under way brings. It is not reported, so the store has it as lent until it
// forgets it.
func (b *Bucket) Forfeit() {
	if lots := b.lots.Swap(nil); lots != nil {
		for _, l := range *lots {
			b.moved.Forfeited += enforce.Tokens(max(0, l.left.Swap(0)))
			b.moved.Spent += enforce.Tokens(l.spent.Swap(0))
		}
	}
	b.presence, b.pause, b.resting, b.isVoid = 0, Instant{}, Instant{}, b.isAsking
}

// IsPaused reports whether the bucket was empty so recently that checks are denied without asking.
func (b *Bucket) IsPaused(now Instant) bool { return now.Mono < b.pause.Mono }
