package lend

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

type history struct {
	t      *rapid.T
	now    Instant
	bucket *Bucket
	taken  []heldCost
	asked  *Ask
	sent   Instant
	epoch  int64
	since  int64
	slot   int64
	lent   Tokens
	spent  Tokens           // by checks
	told   Tokens           // reported as spent or given back
	of     map[int64]Tokens // lent, by slot of this epoch
}

type heldCost struct {
	taken *Pending
	cost  Tokens
}

func (h *history) advance(t *rapid.T) {
	by := time.Duration(rapid.IntRange(0, 400).Draw(t, "ms")) * time.Millisecond
	h.now = h.now.Plus(by)
}

func (h *history) take(t *rapid.T) {
	cost := Tokens(rapid.Int64Range(1, 5*int64(Token)).Draw(t, "cost"))
	var taken Pending
	held := h.bucket.Held(h.now)
	switch ok := h.bucket.Take(h.now, cost, &taken); {
	case ok && held < cost:
		t.Fatalf("took %v of %v", cost, held)
	case !ok:
		if got := h.bucket.Held(h.now); got != held {
			t.Fatalf("took nothing, and %v became %v", held, got)
		}
		h.bucket.Miss(cost)
	default:
		h.taken = append(h.taken, heldCost{&taken, cost})
	}
}

func (h *history) spend(t *rapid.T) {
	cost := Tokens(rapid.Int64Range(1, 5*int64(Token)).Draw(t, "cost"))
	held := h.bucket.Held(h.now)
	paid := Tokens(0)
	if h.bucket.Spend(h.now, cost) {
		h.spent, paid = h.spent+cost, cost
	}
	if got := h.bucket.Held(h.now); got != held-paid {
		t.Fatalf("a check of %v spent %v, and %v became %v", cost, paid, held, got)
	}
}

func (h *history) end(t *rapid.T) {
	if len(h.taken) == 0 {
		t.Skip("no check is under way")
	}
	first := h.taken[0]
	h.taken = h.taken[1:]
	if rapid.Bool().Draw(t, "spend") {
		first.taken.Spend()
		h.spent += first.cost
	} else {
		first.taken.PutBack()
	}
}

func (h *history) ask(t *rapid.T) {
	ask, ok := h.bucket.Ask(h.now, rapid.SampledFrom([]float64{TopUp, 0.5, AlongUp}).Draw(t, "below"))
	h.askedFor(ask, ok)
}

func (h *history) undecided() (sum Tokens) {
	h.bucket.Lots(h.now, func(_ *Lot, _ bool, _, _, undecided Tokens) { sum += undecided })
	return sum
}

func (h *history) giveBack(*rapid.T) {
	ask, ok := h.bucket.Return(h.now)
	if h.askedFor(ask, ok); ok && h.bucket.Held(h.now) != 0 {
		h.t.Fatalf("%v is held after everything was given back", h.bucket.Held(h.now))
	}
}

func (h *history) askedFor(ask Ask, ok bool) {
	if !ok {
		return
	}
	if h.asked != nil {
		h.t.Fatal("asked before the answer came")
	}
	if got, want := ask.Held, h.bucket.Held(h.now)+h.undecided(); got != want || ask.Want < 0 {
		h.t.Fatalf("it asks with %+v, and holds %v", ask, want)
	}
	if len(ask.Returns) > MaxSlots {
		h.t.Fatalf("%d slots are reported", len(ask.Returns))
	}
	for _, r := range ask.Returns {
		if h.of[r.Slot] -= r.Spent + r.Back; r.Spent < 0 || r.Back < 0 || ask.Epoch == h.epoch && h.of[r.Slot] < 0 {
			h.t.Fatalf("%+v is reported, %v more than was lent", r, -h.of[r.Slot])
		}
		h.told += r.Spent + r.Back
	}
	h.asked, h.sent = &ask, h.now
}

func (h *history) answer(t *rapid.T) {
	if h.asked == nil {
		t.Skip("nothing was asked")
	}
	if rapid.IntRange(0, 9).Draw(t, "epoch") == 0 { // the store's clock stepped back, or it lost the bucket
		h.epoch++
		clear(h.of)
	}
	h.slot = h.sent.Mono / int64(250*time.Millisecond)
	g := Grant{
		Slot: h.slot, Epoch: h.epoch, Holders: rapid.Int64Range(0, 100).Draw(t, "holders"),
		Limit: Limit{Rate: 100, Burst: 100, Since: h.since},
		Pause: time.Duration(rapid.IntRange(0, 200).Draw(t, "pause")) * time.Millisecond,
	}
	if h.asked.Want > 0 {
		g.Amount = Tokens(rapid.Int64Range(0, int64(max(0, h.asked.Want-h.asked.Held))).Draw(t, "amount"))
	}
	h.lent += g.Amount
	h.of[g.Slot] += g.Amount
	before := h.bucket.Held(h.now)
	h.bucket.Answered(h.sent, h.now, &g)
	if got := h.bucket.Held(h.now) - before; got != 0 && got != g.Amount {
		t.Fatalf("a grant of %v is %v", g.Amount, got)
	}
	h.asked = nil
}

func (h *history) lose(t *rapid.T) {
	if h.asked == nil {
		t.Skip("nothing was asked")
	}
	if h.asked = nil; rapid.Bool().Draw(t, "counted") {
		h.bucket.Unanswered()
	} else {
		h.bucket.Lost()
	}
}

func (h *history) edit(t *rapid.T) {
	h.since += rapid.Int64Range(0, 2).Draw(t, "since")
	h.bucket.Edited(Limit{Rate: 100, Burst: 100, Since: h.since})
}

func (h *history) forfeit(*rapid.T) {
	if h.bucket.Forfeit(); h.bucket.Held(h.now) != 0 {
		h.t.Fatal("tokens are held that were forfeited")
	}
}

func (h *history) check(t *rapid.T) {
	var here, undecided Tokens
	h.bucket.Lots(h.now, func(_ *Lot, _ bool, left, spent, und Tokens) {
		if left < 0 || spent < 0 || und < 0 {
			t.Fatalf("a lot has %v, spent %v, undecided %v", left, spent, und)
		}
		here, undecided = here+left+spent, undecided+und
	})
	var inFlight Tokens
	for _, c := range h.taken {
		inFlight += c.cost
	}
	if undecided > inFlight {
		t.Fatalf("%v is undecided, and checks under way took %v", undecided, inFlight)
	}
	if h.told+here > h.lent || h.spent > h.lent {
		t.Fatalf("%v was lent; %v is reported, %v is here, %v was spent", h.lent, h.told, here, h.spent)
	}
	if h.bucket.Held(h.now.Plus(Life)) != 0 {
		t.Fatal("tokens outlive what lent them")
	}
}

func TestNoTokenIsSpentOrReportedTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := Instant{Mono: int64(time.Hour), Wall: int64(time.Hour)}
		h := &history{
			t: t, now: start, bucket: New(Limit{Rate: 100, Burst: 100}, start), epoch: 1,
			of: map[int64]Tokens{},
		}
		if rapid.Bool().Draw(t, "split") {
			h.bucket.Expect(1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"advance": h.advance, "take": h.take, "spend": h.spend, "end": h.end, "ask": h.ask, "give back": h.giveBack,
			"answer": h.answer, "lose": h.lose, "edit": h.edit, "forfeit": h.forfeit, "": h.check,
		})
	})
}

func TestABucketAsksForAnExpensiveCheck(t *testing.T) {
	t.Parallel()
	now := Instant{Mono: int64(time.Hour), Wall: int64(time.Hour)}
	limit := Limit{Rate: 1000, Burst: 1000}
	b := New(limit, now)
	b.Expect(50 * Token)
	ask, ok := b.Ask(now, TopUp)
	if !ok || ask.Want != 100*Token {
		t.Fatalf("it wants %v, %t", ask.Want, ok)
	}
	b.Answered(now, now, &Grant{Amount: 90 * Token, Slot: 1, Epoch: 1, Limit: limit})
	var taken Pending
	if !b.Take(now, 50*Token, &taken) {
		t.Fatal("there are no tokens")
	}
	taken.Spend()
	if ask, ok = b.Ask(now, TopUp); !ok || ask.Held != 40*Token {
		t.Errorf("with too little for the next check it asks %+v, %t", ask, ok)
	}
}
