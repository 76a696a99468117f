package leasesim

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// forgotten is the time after which the store has forgotten every token that it lent.
const forgotten = enforce.LeaseLife + enforce.SlotLength + enforce.SlotGuard

// slack is what rounding may cost an ideal bucket, in tokens.
const slack = 0.001

// entry is something that happened to a bucket: an admission, or a change of the ideal bucket.
type entry struct {
	at     int64
	amount enforce.Tokens // admitted
	change func(*ideal)   // nil for an admission
}

// ideal is the one bucket that has to have what all processes admit. Its level never falls below what the store's bucket and all
// processes together really have, so a lack of tokens here is a breach of the promise. Amounts are in tokens.
type ideal struct {
	limit enforce.Limit
	at    int64
	level float64
	// debt is what settled reservations took though the store's bucket did not have it. Only by as much may the level be below 0.
	debt float64
	// Until looseUntil, the level is not capped anew, and it earns up to extra above the burst.
	looseUntil int64
	extra      float64
	lowest     float64 // of the level with the debt
}

// made says that the store made the bucket, also after it lost one.
func made(limit enforce.Limit) func(*ideal) {
	return func(b *ideal) {
		*b = ideal{limit: limit, at: b.at, level: float64(limit.Burst), lowest: b.lowest}
	}
}

// given says that a credit, a reset or a refund gave tokens, or that a negative credit took some.
func given(amount enforce.Tokens) func(*ideal) {
	return func(b *ideal) {
		tokens := inTokens(amount)
		b.level = min(b.level+tokens, max(b.level, b.roof()))
		b.debt = max(0, b.debt-max(0, tokens))
	}
}

// charged says that a reservation was settled above its estimate, and how much of that became debt. total is the debt of the store's
// bucket then, which is at most one burst.
func charged(amount, debt, total enforce.Tokens) func(*ideal) {
	return func(b *ideal) {
		b.debt += inTokens(debt)
		b.lowest = min(b.lowest, float64(b.limit.Burst)-inTokens(total))
		b.admit(inTokens(amount))
	}
}

// edited says that another limit came into force; an older one never does. For a second after a burst was cut, tokens may be spent that
// were lent before.
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

// failedOver says that an older state of the bucket was restored, whose level and debt differ. What was lent since then is unknown to it:
// until the slots have died in which these tokens end, reports about them can make it fill up that far above its burst.
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

// roof is up to where the bucket earns.
func (b *ideal) roof() float64 { return float64(b.limit.Burst) + b.extra }

// advance earns until a time.
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

// replay returns the lowest level of an ideal bucket that admits what was admitted.
func replay(log []entry) float64 {
	slices.SortStableFunc(log, func(a, b entry) int { return cmp.Compare(a.at, b.at) }) // lots count from when they were found alive
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

// compareEvery is how often what processes hold is compared with what the store has lent, in microseconds.
const compareEvery = 50_000

// compare compares what processes hold with what the store has lent. If they never hold more, and what is lent occupies the burst, the
// promise follows. A breach shows here long before it admits too much.
func (w *World) compare() {
	w.after(compareEvery, w.compare)
	for key, state := range w.store {
		if w.lent[key] == 0 || w.now < w.restored[key] {
			continue
		}
		now := *state
		now.Settle(now.Limit, 0, w.storeNow())
		var held enforce.Tokens
		for _, n := range w.nodes {
			if n.stoppedTo <= w.now { // else it can spend nothing
				held += enforce.Tokens(n.process.Held(key))
			}
		}
		w.Unbacked = max(w.Unbacked, inTokens(held-now.Out()))
	}
}

// check replays what was admitted through one ideal bucket of each key, which must never lack a token: then no interval has more than its
// burst, what it earns, and what was given to it.
func (w *World) check(t testing.TB) {
	t.Helper()
	for key, log := range w.log {
		lowest := replay(log)
		if !w.isDamaged() && lowest < -slack {
			t.Errorf("%+v: an ideal bucket of %v lacks %.3f tokens", w.Setup, key, -lowest)
		}
		w.Lowest = min(w.Lowest, lowest)
	}
	if !w.isDamaged() && w.Unbacked > slack {
		t.Errorf("%+v: processes held %.3f tokens more than the store had lent", w.Setup, w.Unbacked)
	}
}
