package buckettest

import (
	"container/heap"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	budgetTokens  = 1_000_000
	budgetDollars = 100
	places        = 600
	callers       = 1000
	reserveTokens = 400
	streamLife    = 10 * time.Minute // a store's own clock, which is not the test's, must not end one before
)

type stream struct {
	at                   int64 // when the caller acts next
	id                   enforce.ReservationID
	left, used, reserved int64          // tokens
	price                enforce.Tokens // dollars for each token
}

type byTime []*stream

func (h byTime) Len() int           { return len(h) }
func (h byTime) Less(i, j int) bool { return h[i].at < h[j].at }
func (h byTime) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byTime) Push(s any)        { *h = append(*h, s.(*stream)) }

func (h *byTime) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	*h = (*h)[:last]
	return s
}

type streams struct {
	*testing.T
	Store
	random  *rand.Rand
	tiers   [3]enforce.Tier
	waiting byTime
	open    int // reservations that are neither settled nor ended
	killed  []*stream
	used    [2]enforce.Tokens // really, of the streams so far
	charged [2]enforce.Tokens // of settled and killed streams
	next    uint64
}

// RunStreams lets callers use up a budget with streams of random length; some are killed. Callers reserve, extend
// longer streams, and settle.
func RunStreams(t *testing.T, s Store) {
	day := enforce.Limit{Kind: rules.KindFixedWindow, Interval: 24 * time.Hour.Microseconds(), Since: epoch}
	w := &streams{T: t, Store: s, random: rand.New(rand.NewPCG(40, 5))}
	day.Burst = budgetTokens
	w.tiers[0] = enforce.Tier{Key: key(1, ""), Limit: day, Meter: "tokens"}
	day.Burst = budgetDollars
	w.tiers[1] = enforce.Tier{Key: key(2, ""), Limit: day, Meter: "usd"}
	w.tiers[2] = enforce.Tier{Key: key(3, ""), Limit: slots(places, streamLife)}
	for range callers {
		heap.Push(&w.waiting, &stream{at: w.later(after(0), streamLife/2)})
	}
	now := after(0)
	for w.waiting.Len() > 0 {
		one := heap.Pop(&w.waiting).(*stream)
		now = one.at
		if w.act(one, now) {
			heap.Push(&w.waiting, one)
		}
	}
	w.end(now)
}

func (w *streams) later(now int64, most time.Duration) int64 {
	return now + 1 + w.random.Int64N(most.Microseconds())
}

func costsOf(tokens int64, price enforce.Tokens) [2]enforce.Tokens {
	return [2]enforce.Tokens{enforce.Tokens(tokens) * enforce.Token, enforce.Tokens(tokens) * price}
}

func (w *streams) act(one *stream, now int64) bool {
	one.at = w.later(now, streamLife/10)
	if one.left == 0 {
		return w.begin(one, now)
	}
	if w.random.IntN(60) == 0 { // killed: what was reserved stays charged
		w.killed = append(w.killed, &stream{id: one.id, at: now})
		w.close(costsOf(one.reserved, one.price))
		*one = stream{at: w.later(now, 2*streamLife)}
		return true
	}
	part := min(one.left, 50+w.random.Int64N(150))
	if one.used+part > one.reserved {
		higher := one.reserved + reserveTokens
		with := settlementOf(costsOf(higher, one.price))
		with.Extend = true
		if settled := w.settle(one, now, with); settled.Denied {
			one.left = 0 // the caller ends the stream
			return w.finish(one, now)
		}
		one.reserved = higher
	}
	one.used, one.left = one.used+part, one.left-part
	for i, cost := range costsOf(part, one.price) {
		w.used[i] += cost
	}
	if w.used[0] > budgetTokens*enforce.Token || w.used[1] > budgetDollars*enforce.Token {
		w.Fatalf("%v of tokens and dollars are used, above the budget", w.used)
	}
	if one.left == 0 {
		return w.finish(one, now)
	}
	return true
}

func (w *streams) begin(one *stream, now int64) bool {
	w.next++
	one.id = enforce.ReservationID{7}
	binary.BigEndian.PutUint64(one.id[1:], w.next)
	one.price = enforce.Tokens(90 + 20*w.random.Int64N(2))
	one.used, one.reserved = 0, reserveTokens
	check := enforce.BucketCheck{
		Mixed: true, Tiers: append([]enforce.Tier(nil), w.tiers[:]...), Holder: one.id.Holder(),
		Reserve: &enforce.Reservation{ID: one.id, Life: streamLife, Key: reserver},
	}
	for i, cost := range costsOf(one.reserved, one.price) {
		check.Tiers[i].Cost, check.Cost = cost, max(check.Cost, cost)
	}
	check.Tiers[2].Cost = enforce.Token
	if !take(w.T, w.Store, now, check)[0].Allowed {
		one.at += streamLife.Microseconds() / 4
		return w.open > 0 // who settles or ends may give something back
	}
	one.left = 100 + w.random.Int64N(2000)
	w.open++
	return true
}

func (w *streams) finish(one *stream, now int64) bool {
	costs := costsOf(one.used, one.price)
	settled := w.settle(one, now, settlementOf(costs))
	if len(settled.Costs) != len(costs) || settled.Costs[0].Cost != costs[0] || settled.Costs[1].Cost != costs[1] {
		w.Fatalf("%v settled as %+v", costs, settled)
	}
	w.close(costs)
	return true
}

func (w *streams) close(costs [2]enforce.Tokens) {
	w.open--
	for i, cost := range costs {
		w.charged[i] += cost
	}
}

func settlementOf(costs [2]enforce.Tokens) enforce.Settlement {
	return enforce.Settlement{
		Key: reserver, Costs: []enforce.MeterCost{{Meter: "tokens", Cost: costs[0]}, {Meter: "usd", Cost: costs[1]}},
	}
}

func (w *streams) settle(one *stream, now int64, with enforce.Settlement) enforce.Settled {
	settled, err := w.SettleReservation(now, 1, one.id, with)
	if err != nil || !settled.Found {
		w.Fatalf("settle: %+v, %v", settled, err)
	}
	return settled
}

// At the end nothing is reserved, and the budget is used up to the micro-dollar, but for what fits no reservation.
func (w *streams) end(now int64) {
	now += streamLife.Microseconds()
	for _, one := range w.killed {
		if settled, err := w.SettleReservation(now, 1, one.id, enforce.Settlement{Key: reserver}); err != nil ||
			settled.Found {
			w.Fatalf("a killed caller's reservation is open after its time: %+v, %v", settled, err)
		}
	}
	looks := take(w.T, w.Store, now, checkOf(0, w.tiers[:]...))[0]
	for i, budget := range [...]enforce.Tokens{budgetTokens * enforce.Token, budgetDollars * enforce.Token} {
		if left := looks.Tiers[i].Bucket.Level.Micros; left != budget-w.charged[i] || left < 0 ||
			w.charged[i] < budget/100*97 {
			w.Errorf("meter %d: %s are charged and %s left of %s", i, w.charged[i], left, budget)
		}
	}
	if free := looks.Tiers[2].Bucket.Level.Micros; free != places*enforce.Token {
		w.Errorf("%s of %d places are free", free, places)
	}
	w.Logf("%d streams, %d killed; tokens and dollars charged: %s and %s", w.next, len(w.killed), w.charged[0],
		w.charged[1])
}
