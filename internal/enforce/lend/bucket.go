package lend

import (
	"slices"
	"sync/atomic"
	"time"
)

const (
	// An owner wants tokens for horizon of its demand. More would end before they are spent.
	horizon = 800 * time.Millisecond
	// leastWanted (tokens) and longestLot (time of the bucket's rate) bound what an owner wants.
	leastWanted = 4 * Token
	longestLot  = 5 * time.Second
	// mostLent is the share of a burst that all owners together want, less than the store lends.
	mostLent = 0.4
	// rest is the pause after a grant of nothing.
	rest = 50 * time.Millisecond
)

// Shares of the wanted tokens, for Bucket.Ask. A request costs the store more than a check, so there should be few.
const (
	// TopUp is the share below which a bucket asks for more.
	TopUp = 0.25
	// AlongUp is the share below which a bucket joins a round trip that is due for another bucket. At 0.5 buckets
	// stayed in up to three groups; at 0.75 they merge.
	AlongUp = 0.75
)

// Bucket is this process's lease on one bucket. Spend, Take, Miss, Held and IsPaused are safe for concurrent use and
// never block; the other methods are for one goroutine at a time.
type Bucket struct {
	lots   atomic.Pointer[[]*Lot] // the oldest first; replaced, never changed
	missed atomic.Int64           // what checks asked for that lots did not have, in millionths
	paused atomic.Int64           // until when the bucket is empty, on the monotonic clock

	// The fields below belong to that goroutine.
	known    Limit   // as this process knows it
	inForce  Limit   // as the last grant said
	last     Instant // of the last ask; its zero is none
	isAsking bool
	isVoid   bool  // what the store lends by the ask under way is not kept
	presence int64 // the slot of the last grant
	epoch    int64 // likewise
	holders  int64
	largest  Tokens // cost of a check
	reported int64  // of what was spent, ever
	demand   demand
	want     Tokens  // as of the demand
	resting  Instant // until when the bucket is not asked
	moved    Moved
}

// Moved counts lent tokens by their end.
type Moved struct {
	Lent, Spent, Back Tokens
	// Forfeited tokens ended neither spent nor given back.
	Forfeited Tokens
}

// Moved returns the counts since the last call.
func (b *Bucket) Moved() (moved Moved) {
	moved, b.moved = b.moved, Moved{}
	return moved
}

// New returns a bucket without tokens.
func New(limit Limit, now Instant) *Bucket {
	return &Bucket{known: limit, inForce: limit, holders: 1, demand: newDemand(now), want: leastWanted}
}

// Taken holds the tokens of one Take, until Spend or PutBack.
type Taken struct {
	n     int
	parts [maxParts]part
}

const maxParts = 4

type part struct {
	lot    *Lot
	amount int64
}

// Spend takes and spends a cost, or takes nothing and returns false.
func (b *Bucket) Spend(now Instant, cost Tokens) bool {
	for _, l := range b.all() {
		if !l.isAlive(now) {
			continue
		}
		own := l.own()
		if own.spend(int64(cost)) {
			return true
		}
		if own.left.Load() > 0 {
			break // Take adds to it, so that no fraction of a cost is left behind
		}
	}
	var taken Taken
	if !b.Take(now, cost, &taken) {
		return false
	}
	taken.Spend()
	return true
}

// isAlive reports whether a check may take tokens. One that began before the answer came would count as admitted before
// the bucket had earned them.
func (l *Lot) isAlive(now Instant) bool { return now.Mono >= l.from && now.IsBefore(l.ends) }

// Take takes a cost from the oldest live grants, or takes nothing and returns false.
func (b *Bucket) Take(now Instant, cost Tokens, taken *Taken) bool {
	taken.n = 0
	missing := int64(cost)
	for _, l := range b.all() {
		if !l.isAlive(now) {
			continue
		}
		if amount := l.take(missing); amount > 0 {
			taken.parts[taken.n] = part{l, amount}
			taken.n++
			missing -= amount
		}
		if missing == 0 {
			return true
		}
		if taken.n == maxParts {
			break
		}
	}
	taken.PutBack()
	return false
}

// Spend marks the tokens as spent.
func (t *Taken) Spend() {
	for i := range t.n {
		t.parts[i].lot.own().ended.Add(t.parts[i].amount)
	}
	t.n = 0
}

// PutBack returns the tokens to their grants. Tokens of a grant that has ended are lost.
func (t *Taken) PutBack() {
	for i := range t.n {
		t.parts[i].lot.own().putBack(t.parts[i].amount)
	}
	t.n = 0
}

// Parts calls f with each grant that tokens were taken from, and is for models.
func (t *Taken) Parts(f func(*Lot, Tokens)) {
	for i := range t.n {
		f(t.parts[i].lot, Tokens(t.parts[i].amount))
	}
}

// Miss counts a cost that more tokens would have served.
func (b *Bucket) Miss(cost Tokens) {
	b.missed.Add(int64(cost))
}

// Held returns the tokens that can be spent at a time.
func (b *Bucket) Held(now Instant) (sum Tokens) {
	for _, l := range b.all() {
		if now.IsBefore(l.ends) {
			sum += Tokens(l.left())
		}
	}
	return sum
}

func (b *Bucket) all() []*Lot {
	if lots := b.lots.Load(); lots != nil {
		return *lots
	}
	return nil
}

// Lots calls f with each grant and its spendable, unreported and undecided tokens. Lots is for models.
func (b *Bucket) Lots(now Instant, f func(l *Lot, isAlive bool, left, spent, undecided Tokens)) {
	for _, l := range b.all() {
		left, held, spent := l.unreported(false)
		f(l, now.IsBefore(l.ends), Tokens(left), Tokens(spent), Tokens(held))
	}
}

// Edited sets the limit that this process knows. The next request gives back tokens of an older limit.
func (b *Bucket) Edited(limit Limit) { b.known = limit }

// Expect announces the cost of a check. The bucket then wants tokens for two such checks, and asks once it has less
// than one.
func (b *Bucket) Expect(cost Tokens) {
	b.largest = max(b.largest, cost)
	b.want = max(b.want, 2*b.largest)
}

// wanted computes the tokens that the bucket should hold: its demand for the horizon, up to an equal share of the
// lendable burst or its share of the earnings, whichever is more.
func (b *Bucket) wanted(now Instant) Tokens {
	asked := b.missed.Load() + b.reported
	for _, l := range b.all() {
		_, _, spent := l.unreported(false)
		asked += spent
	}
	b.demand.measure(now, asked)
	lendable := mostLent * float64(b.inForce.Burst) * float64(Token)
	rate := b.inForce.Rate * float64(Token)
	most := lendable * max(1/float64(b.holders), b.demand.tokens/rate)
	want := max(min(b.demand.tokens*horizon.Seconds(), most), float64(leastWanted), 2*float64(b.largest))
	return Tokens(min(want, rate*longestLot.Seconds()))
}

// Ask returns a request if the bucket has less than a share of the tokens that it wants, has a report after it became
// idle, or holds tokens of an older limit. Ask deducts what it reports. Each request must be followed by Answered,
// Unanswered or Lost before the next.
func (b *Bucket) Ask(now Instant, below float64) (ask Ask, ok bool) {
	if b.isAsking {
		return ask, false
	}
	held := b.Held(now)
	if b.isShort(held, below) || now.Mono-b.demand.measured.Mono >= int64(measureEvery) {
		b.want = b.wanted(now)
	}
	switch {
	case b.demand.isIdle(now):
		return b.Return(now)
	case !b.isShort(held, below) && !b.hasOlder() || b.IsPaused(now) || now.Mono < b.resting.Mono:
		return ask, false
	}
	return b.report(now, b.want, false), true
}

// isShort reports whether held is less than a share of the wanted tokens, or than the largest cost.
func (b *Bucket) isShort(held Tokens, share float64) bool {
	return held < max(Tokens(float64(b.want)*share), min(b.largest, b.want))
}

// Return returns a request that gives everything back, or false if there is nothing.
func (b *Bucket) Return(now Instant) (ask Ask, ok bool) {
	if b.isAsking || !b.hasReport(now) {
		return ask, false
	}
	return b.report(now, 0, true), true
}

func (b *Bucket) hasReport(now Instant) bool {
	return slices.ContainsFunc(b.all(), func(l *Lot) bool {
		left, _, spent := l.unreported(false)
		return left > 0 || spent > 0 || !now.IsBefore(l.ends)
	})
}

// IsDone reports whether nothing is left to report.
func (b *Bucket) IsDone() bool { return !b.isAsking && len(b.all()) == 0 }

func (b *Bucket) hasOlder() bool {
	return slices.ContainsFunc(b.all(), func(l *Lot) bool { return l.since < b.known.Since && l.left() > 0 })
}

// report makes a request that reports spent tokens, and gives back all tokens, or those of an older limit or past their
// end. report drops a grant once the store knows where all its tokens went; a check in flight may still hold some.
func (b *Bucket) report(now Instant, want Tokens, everything bool) Ask {
	ask := Ask{Epoch: b.epoch, Presence: b.presence, Want: want}
	var kept []*Lot
	for _, l := range b.all() {
		r := Return{Slot: l.slot}
		isAlive := now.IsBefore(l.ends)
		givesBack := everything || l.since < b.known.Since || !isAlive
		left, _, spent := l.unreported(givesBack)
		if r.Spent = Tokens(spent); givesBack {
			r.Back = Tokens(left)
		}
		b.reported += int64(r.Spent)
		b.moved.Spent += r.Spent
		if l.epoch == ask.Epoch && now.IsBefore(l.ends.Plus(SlotGuard)) {
			b.moved.Back += r.Back
		} else { // the store has forgotten the slot
			b.moved.Forfeited += r.Back
		}
		if l.epoch == ask.Epoch && (r.Spent > 0 || r.Back > 0) {
			ask.Returns = addReturn(ask.Returns, r)
		}
		if l.due -= int64(r.Spent + r.Back); isAlive && l.due > 0 {
			kept = append(kept, l)
			ask.Held += Tokens(l.due)
		}
	}
	b.lots.Store(&kept)
	ask.Returns = ask.Returns[max(0, len(ask.Returns)-MaxSlots):] // the store has forgotten older ones
	if b.last != (Instant{}) {
		ask.Since = (now.Mono - b.last.Mono) / int64(time.Microsecond)
	}
	b.last, b.isAsking = now, true
	return ask
}

func addReturn(returns []Return, r Return) []Return {
	for i := range returns {
		if returns[i].Slot == r.Slot {
			returns[i].Spent += r.Spent
			returns[i].Back += r.Back
			return returns
		}
	}
	return append(returns, r)
}

// Answered adds a grant for a request sent at a time.
func (b *Bucket) Answered(sent, now Instant, grant *Grant) {
	isVoid := b.isVoid
	b.isAsking, b.isVoid = false, false
	b.presence, b.epoch, b.holders, b.inForce = grant.Slot, grant.Epoch, max(1, grant.Holders), grant.Limit
	b.moved.Lent += grant.Amount
	switch {
	case isVoid:
		b.moved.Forfeited += grant.Amount
	case grant.Amount > 0:
		l := &Lot{
			slot: grant.Slot, epoch: grant.Epoch, since: grant.Limit.Since,
			from: now.Mono, ends: sent.Plus(OnStoresClock(Life)),
		}
		l.fill(int64(grant.Amount), int64(b.largest))
		lots := append(slices.Clone(b.all()), l)
		b.lots.Store(&lots)
	}
	if grant.Amount == 0 {
		b.resting = now.Plus(rest)
	}
	b.paused.Store(now.Mono + int64(min(max(0, grant.Pause), longestPause)))
}

// Unanswered ends a request whose report was counted without a grant: the owner asked too soon, or the store is down.
func (b *Bucket) Unanswered() { b.isAsking, b.isVoid = false, false }

// Lost ends a request whose answer was lost.
func (b *Bucket) Lost() { b.isAsking, b.isVoid, b.presence = false, false, 0 }

// IsAsking reports whether an ask is under way.
func (b *Bucket) IsAsking() bool { return b.isAsking }

// Forfeit drops all tokens, and those of a request under way, unreported: the store counts them as lent until it
// forgets them.
func (b *Bucket) Forfeit() {
	if lots := b.lots.Swap(nil); lots != nil {
		for _, l := range *lots {
			left, _, spent := l.unreported(true)
			b.reported += spent
			b.moved.Spent += Tokens(spent)
			b.moved.Forfeited += Tokens(left)
		}
	}
	b.paused.Store(0)
	b.presence, b.resting, b.isVoid = 0, Instant{}, b.isAsking
}

// IsPaused reports whether the bucket was empty a moment ago. An owner may deny checks without asking.
func (b *Bucket) IsPaused(now Instant) bool { return now.Mono < b.paused.Load() }

// PausedUntil returns when the pause ends, on the monotonic clock.
func (b *Bucket) PausedUntil() int64 { return b.paused.Load() }
