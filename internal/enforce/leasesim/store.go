package leasesim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

type states map[enforce.Key]*enforce.State

func (s states) take(check *enforce.BucketCheck, now int64) {
	held, state := make([]*enforce.State, len(check.Tiers)), make([]enforce.State, len(check.Tiers))
	for i := range check.Tiers {
		held[i] = s[check.Tiers[i].Key]
	}
	taken := check.TakeFrom(held, state, now)
	for i := range check.Tiers {
		if taken && held[i] == nil && check.Takes(i) {
			s[check.Tiers[i].Key] = &state[i]
		}
	}
}

func (s states) clone() states {
	own := states{}
	for key, state := range s {
		copied := *state
		own[key] = &copied
	}
	return own
}

func (w *World) storeNow() int64 { return w.now + w.skewed }

func (w *World) note(key enforce.Key, at int64, change func(*ideal)) {
	w.log[key] = append(w.log[key], entry{at: at, change: change})
}

func (w *World) admit(key enforce.Key, at int64, amount enforce.Tokens) {
	w.log[key] = append(w.log[key], entry{at: at, amount: amount})
}

func (w *World) advance(key enforce.Key, limit enforce.Limit) *enforce.State {
	return w.advanceAt(key, limit, w.storeNow())
}

func (w *World) advanceAt(key enforce.Key, limit enforce.Limit, now int64) *enforce.State {
	state := w.store[key]
	if state == nil {
		return nil
	}
	former, stamp := state.Limit, state.Stamp
	if state.Advance(limit, 0, now); state.Limit != former {
		from := min(max(limit.Since, stamp), now) // the bucket earns by the new limit since then
		w.note(key, w.now-(now-from), edited(state.Limit))
	}
	return state
}

func (w *World) take(check *enforce.BucketCheck) {
	isNew := make([]bool, len(check.Tiers))
	for i := range check.Tiers {
		isNew[i] = w.advance(check.Tiers[i].Key, check.Tiers[i].Limit) == nil
	}
	w.store.take(check, w.storeNow())
	for i := range check.Tiers {
		if !check.Allowed || !check.Takes(i) {
			continue
		}
		tier := &check.Tiers[i]
		if isNew[i] {
			w.note(tier.Key, w.now, made(tier.Limit))
		}
		w.admit(tier.Key, w.now, check.Cost)
		w.taken[tier.Key] += check.Cost
	}
}

func (w *World) lend(l *enforce.Lease) {
	state := w.advance(l.Key, l.Limit)
	if state == nil {
		fresh := enforce.NewState(l.Limit, w.storeNow())
		state = &fresh
		w.store[l.Key] = state
		w.note(l.Key, w.now, made(l.Limit))
	}
	if w.Break != nil {
		w.Break(l.Key, state, &l.Ask)
	}
	l.Grant, l.Answered = state.Lease(&l.Ask), true
	w.lent[l.Key] += l.Grant.Amount
	w.taken[l.Key] += l.Grant.Amount
}

func (w *World) credit() {
	key := w.draw().Key
	state := w.advance(key, w.limits[key.Rule])
	if state == nil {
		return
	}
	amount := enforce.Fill
	if kind := w.random.IntN(3); kind > 0 {
		amount = enforce.Tokens(w.random.Int64N(state.Limit.Burst)+1) * enforce.Token
		if kind == 2 {
			amount = -amount
		}
	}
	before := state.Level.Micros
	state.Credit(amount)
	w.note(key, w.now, given(state.Level.Micros-before))
}

func (w *World) draw() enforce.Tier {
	tiers := w.tiers(w.limits)
	return tiers[len(tiers)-1]
}

// reserve takes up to a quarter of a burst, and settles within two seconds at up to three times that.
func (w *World) reserve() {
	tiers := w.tiers(w.limits)
	least := slices.MinFunc(tiers,
		func(a, b enforce.Tier) int { return int(a.Limit.Burst - b.Limit.Burst) }).Limit.Burst
	check := enforce.BucketCheck{
		Cost: enforce.Tokens(1+w.random.Int64N(max(1, least/4))) * enforce.Token, Tiers: tiers,
		Reserve: &enforce.Reservation{Life: time.Minute},
	}
	w.take(&check)
	if !check.Allowed {
		return
	}
	open, losses, failovers := check.Open(w.storeNow()), w.losses, w.failovers
	w.after(w.random.Int64N(2_000_000), func() {
		if w.losses == losses && w.failovers == failovers { // else the store may have lost it
			w.settleReservation(&open)
		}
	})
}

func (w *World) settleReservation(open *enforce.OpenReservation) {
	with := enforce.Settlement{HasCost: true, Cost: enforce.Tokens(w.random.Int64N(3 * int64(open.Cost)))}
	for i := range open.Charges {
		charge := &open.Charges[i]
		state := w.advance(charge.Key, w.limits[charge.Key.Rule])
		if state == nil {
			continue
		}
		before := state.Level.Micros
		is, _ := charge.Settle(state, &with, open.CheckedAt, enforce.Holder{})
		if is < charge.Amount {
			w.note(charge.Key, w.now, given(charge.Amount-is))
			if w.RefundsTwice {
				_, _ = charge.Settle(state, &with, open.CheckedAt, enforce.Holder{})
			}
			continue
		}
		debt := debtOf(state.Level.Micros)
		w.note(charge.Key, w.now, charged(is-charge.Amount, debt-debtOf(before), debt))
	}
}

func debtOf(level enforce.Tokens) enforce.Tokens { return max(0, -level) }

func (w *World) edit() {
	rule, former := SharedKey.Rule, w.Limit
	if w.Users > 0 && w.random.IntN(2) == 0 {
		rule, former = userRule, w.UserLimit
	}
	limit := enforce.Limit{
		Rate: former.Rate * w.factor(), Burst: max(1, int64(float64(former.Burst)*w.factor())),
		Since: w.now,
	}
	w.limits[rule] = limit
	for _, n := range w.nodes {
		n.After(w.random.Int64N(1_000_000), func() { n.hear(rule, limit) })
	}
}

func (w *World) forget() {
	for _, key := range w.keys() {
		if w.Recovers {
			w.recover(key)
		} else {
			w.lose(key)
		}
	}
}

const checkpointEvery = 100_000

func (w *World) checkpoint() {
	w.after(checkpointEvery, w.checkpoint)
	clear(w.taken)
	for key, state := range w.store {
		now, last := *state, enforce.State{}
		if now.Advance(now.Limit, 0, w.storeNow()); w.checkpoints[key] != nil {
			last = *w.checkpoints[key]
		}
		if now.HasMoved(&last) {
			kept := now
			kept.Entries = ""
			w.checkpoints[key] = &kept
		}
		w.out[key] = now.Out()
	}
}

// recover begins an era: a bucket goes on from its checkpoint, without lent tokens, and can fill up behind them.
func (w *World) recover(key enforce.Key) {
	limit := w.limits[key.Rule]
	state := enforce.NewState(limit, w.storeNow())
	if last := w.checkpoints[key]; last != nil {
		state = *last
	}
	lost := *w.advance(key, limit)
	w.restore(key, &state, lost.Out(), w.storeNow())
	promised := inTokens(lost.Level.Micros+max(lost.Out(), w.out[key])+w.taken[key]) + 0.02*float64(state.Limit.Burst)
	w.Regained = max(w.Regained, inTokens(w.store[key].Level.Micros)-promised)
}

func (w *World) lose(key enforce.Key) {
	delete(w.store, key)
	w.losses++
	w.lost[key] = w.losses
}

func (w *World) keys() []enforce.Key {
	return slices.SortedFunc(maps.Keys(w.store), func(a, b enforce.Key) int {
		return int(a.Rule-b.Rule) + strings.Compare(a.Subject, b.Subject)
	})
}

// failOver restores data of up to 500 ms ago, of all or some buckets, on a clock up to 200 ms ahead.
func (w *World) failOver() {
	older, lent, losses := w.store.clone(), maps.Clone(w.lent), w.losses
	w.after(w.random.Int64N(500_000), func() {
		if w.losses != losses || w.now < w.steadyAt {
			return
		}
		w.failovers++
		former, isPartial := w.storeNow(), w.random.IntN(2) == 0
		if !isPartial {
			w.skewed += w.random.Int64N(200_000)
			w.steadyAt = w.now + 2_000_000 // a lot lives through one such jump at most
		}
		for _, key := range w.keys() {
			if !isPartial || w.random.IntN(2) == 0 {
				w.restore(key, older[key], w.lent[key]-lent[key], former)
			}
		}
	})
}

func (w *World) restore(key enforce.Key, older *enforce.State, lent enforce.Tokens, now int64) {
	if older == nil {
		w.lose(key)
		return
	}
	limit := w.limits[key.Rule]
	latest := w.advanceAt(key, limit, now)
	older.Advance(limit, 0, w.storeNow())
	w.restored[key] = w.now + forgotten.Microseconds()
	level := older.Level.Micros
	w.note(key, w.now, failedOver(level-latest.Level.Micros, lent, debtOf(level)))
	if w.FailsFull || w.IgnoresEras {
		older.Credit(enforce.Fill)
	}
	w.store[key] = older
}
