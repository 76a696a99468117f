package leasesim

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// forgotten is when the store has forgotten all that it lent before.
const forgotten = enforce.LeaseLife + enforce.SlotLength + enforce.SlotGuard

const slack = 0.001

type entry struct {
	at     int64
	amount enforce.Tokens // admitted
	change func(*ideal)   // nil for an admission
}

// ideal is the one bucket that must cover all admissions, in tokens. Its level is never below the store's and all
// processes' together, so one below zero breaks the promise.
type ideal struct {
	limit      enforce.Limit
	at         int64
	level      float64
	debt       float64
	looseUntil int64
	extra      float64
	lowest     float64 // of the level with the debt
}

func made(limit enforce.Limit) func(*ideal) {
	return func(b *ideal) {
		*b = ideal{limit: limit, at: b.at, level: float64(limit.Burst), lowest: b.lowest}
	}
}

func given(amount enforce.Tokens) func(*ideal) {
	return func(b *ideal) {
		tokens := inTokens(amount)
		b.level = min(b.level+tokens, max(b.level, b.roof()))
		b.debt = max(0, b.debt-max(0, tokens))
	}
}

// charged: a settlement above its estimate, partly as debt, after which total is the store's bucket's debt.
func charged(amount, debt, total enforce.Tokens) func(*ideal) {
	return func(b *ideal) {
		b.debt += inTokens(debt)
		b.lowest = min(b.lowest, float64(b.limit.Burst)-inTokens(total))
		b.admit(inTokens(amount))
	}
}

// edited: tokens lent before a burst was cut may be spent for another second.
func edited(limit enforce.Limit) func(*ideal) {
	return func(b *ideal) {
		if limit.Since < b.limit.Since {
			return
		}
		if limit.Burst < b.limit.Burst {
			b.loosen(enforce.LeaseLife, 0)
		}
		if forgiven := b.debt - float64(limit.Burst); forgiven > 0 {
			b.level, b.debt = b.level+forgiven, b.debt-forgiven
		}
		b.limit = limit
	}
}

// failedOver: an older state was restored, without the tokens lent since. Until their slots are forgotten, reports
// about them can fill the bucket that far above its burst.
func failedOver(gain, lent, debt enforce.Tokens) func(*ideal) {
	return func(b *ideal) {
		b.loosen(forgotten, inTokens(lent))
		b.level, b.debt = b.level+inTokens(gain), inTokens(debt)
	}
}

func inTokens(amount enforce.Tokens) float64 { return float64(amount) / float64(enforce.Token) }

func (b *ideal) loosen(length time.Duration, extra float64) {
	b.looseUntil = max(b.looseUntil, b.at+length.Microseconds())
	b.extra += extra
}

func (b *ideal) roof() float64 { return float64(b.limit.Burst) + b.extra }

func (b *ideal) advance(to int64) {
	if b.looseUntil > 0 && b.looseUntil <= to {
		b.earn(b.looseUntil)
		b.looseUntil, b.extra = 0, 0
		b.level = min(b.level, b.roof())
	}
	b.earn(to)
}

func (b *ideal) earn(to int64) {
	earned := b.limit.Rate * float64(to-b.at) / 1e6
	b.level = min(b.level+earned, max(b.level, b.roof()))
	b.debt = max(0, b.debt-earned)
	b.at = to
}

func (b *ideal) admit(tokens float64) {
	b.level -= tokens
	b.lowest = min(b.lowest, b.level+b.debt)
}

func replay(log []entry) float64 {
	// Grants count from when a check found them alive, so entries are not in order.
	slices.SortStableFunc(log, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	b := ideal{lowest: math.Inf(1)}
	for i := range log {
		b.advance(log[i].at)
		if log[i].change != nil {
			log[i].change(&b)
		} else {
			b.admit(inTokens(log[i].amount))
		}
	}
	return b.lowest
}

const compareEvery = 50_000

// Processes must never hold more than is lent: a breach shows here long before it admits too much.
func (w *World) compare() {
	w.after(compareEvery, w.compare)
	for key, state := range w.store {
		if w.lent[key] == 0 || w.now < w.restored[key] {
			continue
		}
		now := *state
		now.Advance(now.Limit, 0, w.storeNow())
		var held enforce.Tokens
		for _, n := range w.nodes {
			if n.stoppedTo <= w.now { // else it can spend nothing
				held += enforce.Tokens(n.process.Held(key))
			}
		}
		w.Unbacked = max(w.Unbacked, inTokens(held-now.Out()))
	}
}

func (w *World) check(t testing.TB) {
	t.Helper()
	for key, log := range w.log {
		lowest := replay(log)
		if !w.isDamaged() && lowest < -slack {
			t.Errorf("%+v: an ideal bucket of %v lacks %.3f tokens", w.Setup, key, -lowest)
		}
		w.Lowest = min(w.Lowest, lowest)
	}
	if !w.isDamaged() && w.Regained > slack {
		t.Errorf("%+v: after the loss of the store a bucket had %.3f tokens more than promised", w.Setup, w.Regained)
	}
	if !w.isDamaged() && w.Unbacked > slack {
		t.Errorf("%+v: processes held %.3f tokens more than the store had lent", w.Setup, w.Unbacked)
	}
}
