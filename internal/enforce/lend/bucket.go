package lend

import (
	"slices"
	"sync/atomic"
	"time"
)

const (
	// horizon is how much demand an owner wants to hold; more would end before it is spent.
	horizon     = 800 * time.Millisecond
	leastWanted = 4 * Token
	longestLot  = 5 * time.Second
	// mostLent is the share of a burst that all owners want, less than the store lends.
	mostLent = 0.4
	rest     = 50 * time.Millisecond
)

// Shares of the wanted tokens, for Bucket.Ask; a request costs the store more than a check.
const (
	TopUp = 0.25
	// AlongUp is the share below which a bucket joins another's round trip: at 0.5 three groups remained, at 0.75 they
	// merge.
	AlongUp = 0.75
)

// Bucket is this process's lease on one bucket. Spend, Take, Miss, Held and IsPaused are safe for concurrent use and
// never block; the rest is for one goroutine.
type Bucket struct {
	lots   atomic.Pointer[[]*Lot] // the oldest first; replaced, never changed
	missed atomic.Int64           // what checks asked for that lots did not have, in millionths
	paused atomic.Int64           // until when the bucket is empty, on the monotonic clock

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
	Forfeited         Tokens
}

// Moved counts since its last call.
func (b *Bucket) Moved() (moved Moved) {
	moved, b.moved = b.moved, Moved{}
	return moved
}

// New returns a bucket without tokens.
func New(limit Limit, now Instant) *Bucket {
	return &Bucket{known: limit, inForce: limit, holders: 1, demand: newDemand(now), want: leastWanted}
}

// Pending holds tokens until Spend or PutBack.
type Pending struct {
	n     int
	parts [maxParts]part
}

const maxParts = 4

type part struct {
	lot    *Lot
	amount int64
}

// Spend spends a cost, or takes nothing and returns false.
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
	var taken Pending
	if !b.Take(now, cost, &taken) {
		return false
	}
	taken.Spend()
	return true
}

// isAlive: a check that began before the answer came would count as admitted before the bucket earned the tokens.
func (l *Lot) isAlive(now Instant) bool { return now.Mono >= l.from && now.IsBefore(l.ends) }

// Take takes from the oldest live grants, or takes nothing and returns false.
func (b *Bucket) Take(now Instant, cost Tokens, taken *Pending) bool {
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

// Spend ends a Take.
func (t *Pending) Spend() {
	for i := range t.n {
		t.parts[i].lot.own().ended.Add(t.parts[i].amount)
	}
	t.n = 0
}

// PutBack returns the tokens, lost if their grant has ended.
func (t *Pending) PutBack() {
	for i := range t.n {
		t.parts[i].lot.own().putBack(t.parts[i].amount)
	}
	t.n = 0
}

// Parts yields the grants of a Take, for models.
func (t *Pending) Parts(f func(*Lot, Tokens)) {
	for i := range t.n {
		f(t.parts[i].lot, Tokens(t.parts[i].amount))
	}
}

// Miss counts a cost that more tokens would have served.
func (b *Bucket) Miss(cost Tokens) {
	b.missed.Add(int64(cost))
}

// Held returns the tokens that can be spent now.
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

// Lots yields each grant's spendable, unreported and undecided tokens, for models.
func (b *Bucket) Lots(now Instant, f func(l *Lot, isAlive bool, left, spent, undecided Tokens)) {
	for _, l := range b.all() {
		left, held, spent := l.unreported(false)
		f(l, now.IsBefore(l.ends), Tokens(left), Tokens(spent), Tokens(held))
	}
}

// Edited sets the known limit; the next request gives back tokens of an older one.
func (b *Bucket) Edited(limit Limit) { b.known = limit }

// Expect announces a check's cost: the bucket wants two such, and asks once it has less than one.
func (b *Bucket) Expect(cost Tokens) {
	b.largest = max(b.largest, cost)
	b.want = max(b.want, 2*b.largest)
}

// wanted is the horizon's demand, up to the larger of an equal share of the lendable burst and its share of the
// earnings.
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

// Ask returns a request if less than below × wanted is held, after idleness, or to return tokens of an older limit.
// Reported tokens are deducted. Answered, Unanswered or Lost must follow before the next.
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

func (b *Bucket) isShort(held Tokens, share float64) bool {
	return held < max(Tokens(float64(b.want)*share), min(b.largest, b.want))
}

// Return requests to give everything back; false if there is nothing.
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

// report also drops a grant once all its tokens are accounted for; a check in flight may still hold some.
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

// Answered adds the grant of a request.
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

// Unanswered ends a request whose report was counted without a grant: too soon, or the store is down.
func (b *Bucket) Unanswered() { b.isAsking, b.isVoid = false, false }

// Lost ends a request without an answer.
func (b *Bucket) Lost() { b.isAsking, b.isVoid, b.presence = false, false, 0 }

// IsAsking reports an unanswered request.
func (b *Bucket) IsAsking() bool { return b.isAsking }

// Forfeit drops all tokens unreported, and those under way; the store counts them as lent until it forgets them.
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

// IsPaused lets an owner deny without asking: the bucket was empty a moment ago.
func (b *Bucket) IsPaused(now Instant) bool { return now.Mono < b.paused.Load() }

// PausedUntil is on the monotonic clock.
func (b *Bucket) PausedUntil() int64 { return b.paused.Load() }
