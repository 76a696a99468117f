package buckettest

import (
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// RunLeases is the suite of enforce.Lender; each parallel test calls open once.
func RunLeases(t *testing.T, open func(t *testing.T) Store) {
	runEach(t, open, map[string]func(*testing.T, Store){
		"random leases agree with the reference bit for bit": runLeaseHistories,
		"a limit that cannot be lent refuses":                refusesToLend,
	})
}

func refusesToLend(t *testing.T, s Store) {
	for name, limit := range map[string]enforce.Limit{
		"steps":  {Rate: 1, Burst: 10, Interval: 10_000_000},
		"window": {Kind: rules.KindFixedWindow, Burst: 10, Interval: 60_000_000},
		"log":    {Kind: rules.KindSlidingWindowLog, Burst: 10, Interval: 60_000_000},
		"queue":  {Kind: rules.KindLeakyBucket, Rate: 1, Burst: 10},
	} {
		before := wholly(s.State())
		leases := []enforce.Lease{{Key: key(1, name), Limit: limit, Ask: enforce.Ask{Want: enforce.Token}}}
		if err := s.Lease(epoch, leases); err != nil || !leases[0].Answered || !leases[0].Grant.Refused ||
			leases[0].Grant.Amount != 0 {
			t.Errorf("%s: %+v, %v", name, leases[0], err)
		}
		if after := wholly(s.State()); after != before {
			t.Errorf("%s: the store went from\n%s\nto\n%s", name, before, after)
		}
	}
}

func (r reference) lease(now int64, leases []enforce.Lease) {
	for i := range leases {
		l := &leases[i]
		state, used := r[l.Key]
		if !used {
			state = enforce.NewState(l.Limit, now)
		}
		mustWrite := state.Advance(l.Limit, 0, now)
		l.Grant, l.Answered = state.Lease(&l.Ask), true
		if used && (mustWrite || enforce.CanLease(state.Limit)) || state.Entries != "" &&
			enforce.CanLease(state.Limit) {
			r[l.Key] = state
		}
	}
}

func runLeaseHistories(t *testing.T, s Store) {
	var tenant atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, rules.TenantID(4_000_000+tenant.Add(1)), func(t *rapid.T, since int64) enforce.Limit {
			if rapid.IntRange(0, 5).Draw(t, "kind of limit") == 0 {
				return drawAnyLimit(t, since)
			}
			return drawLimit(t, since)
		})
		grants := map[enforce.Key][]enforce.Grant{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "jump") == 0 {
				h.advance(t, s)
			} else {
				h.now = max(0, h.now+rapid.Int64Range(-100_000, 900_000).Draw(t, "step"))
				h.latest = max(h.latest, h.now)
			}
			one := h.drawAsk(t)
			if len(one.Tiers) == 0 {
				continue
			}
			switch rapid.IntRange(0, 3).Draw(t, "act") {
			case 0:
				checks := []enforce.BucketCheck{one}
				want := clone(checks)
				h.reference.take(h.now, want)
				if err := s.Take(h.now, checks); err != nil {
					t.Fatalf("take: %v", err)
				}
				if err := equalAnswers(checks, want); err != nil {
					t.Fatalf("%v after the start: %v", h.elapsed(), err)
				}
			case 1:
				tier := one.Tiers[0]
				h.avoidForgotten(&tier)
				amount := rapid.SampledFrom([]enforce.Tokens{
					enforce.Fill, enforce.Token, 5 * enforce.Token,
					-3 * enforce.Token,
				}).Draw(t, "credit")
				wantBefore, wantAfter := h.reference.credit(h.now, tier.Key, tier.Limit, amount)
				before, after, err := s.Credit(h.now, tier.Key, tier.Limit, amount)
				if err != nil || before != wantBefore || after != wantAfter {
					t.Fatalf("%v after the start: credit %v: %v\n got %+v, %+v\nwant %+v, %+v", h.elapsed(), amount,
						err, before, after, wantBefore, wantAfter)
				}
			default:
				leases := make([]enforce.Lease, len(one.Tiers))
				for i, tier := range one.Tiers {
					h.avoidForgotten(&tier) // what lends nothing is written only if it is not forgotten
					leases[i] = enforce.Lease{
						Key: tier.Key, Limit: tier.Limit,
						Ask: h.drawLease(t, tier, grants[tier.Key]),
					}
				}
				want := append([]enforce.Lease(nil), leases...)
				h.reference.lease(h.now, want)
				if err := s.Lease(h.now, leases); err != nil {
					t.Fatalf("lease: %v", err)
				}
				for i := range want {
					if got := leases[i].Grant; got != want[i].Grant || !leases[i].Answered {
						t.Fatalf("%v after the start: %+v:\n got %+v\nwant %+v", h.elapsed(), leases[i].Ask, got,
							want[i].Grant)
					}
					grants[leases[i].Key] = append(grants[leases[i].Key], leases[i].Grant)
				}
			}
		}
	})
}

func (h *history) drawLease(t *rapid.T, tier enforce.Tier, past []enforce.Grant) enforce.Ask {
	burst := tier.Limit.Burst * int64(enforce.Token)
	amount := func(name string) enforce.Tokens {
		return enforce.Tokens(rapid.OneOf(rapid.Int64Range(0, 20_000_000), rapid.Int64Range(0, burst)).Draw(t, name))
	}
	ask := enforce.Ask{
		Held: amount("held"), Need: amount("need"), Want: amount("want"),
		Since: rapid.Int64Range(0, int64(2*time.Second/time.Microsecond)).Draw(t, "since"),
	}
	if rapid.Bool().Draw(t, "in the background") {
		ask.Need = 0
	}
	for range rapid.IntRange(0, 3).Draw(t, "returns") {
		r := enforce.Return{
			Slot: h.now / enforce.SlotLength.Microseconds(), Spent: amount("spent"),
			Back: amount("back"),
		}
		if len(past) > 0 {
			grant := past[rapid.IntRange(max(0, len(past)-4), len(past)-1).Draw(t, "grant")]
			r.Slot, ask.Epoch, ask.Presence = grant.Slot, grant.Epoch, grant.Slot
		}
		for _, other := range ask.Returns {
			if other.Slot == r.Slot {
				return ask
			}
		}
		ask.Returns = append(ask.Returns, r)
	}
	return ask
}
