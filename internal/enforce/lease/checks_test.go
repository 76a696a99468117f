package lease

import (
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/lend"
)

func TestWhatBecomesOfASplitCheck(t *testing.T) {
	t.Parallel()
	const lent, cost = 100 * enforce.Token, 3 * enforce.Token
	for name, c := range map[string]struct {
		answer func(*enforce.BucketCheck)
		err    error
		isKept bool // the lots have the cost again
	}{
		"allowed":  {answer: func(c *enforce.BucketCheck) { c.Allowed, c.Tiers[0].Holds = true, true }},
		"denied":   {answer: func(c *enforce.BucketCheck) {}, isKept: true},
		"recalled": {answer: func(c *enforce.BucketCheck) { c.Recalled, c.Answered = true, true }, isKept: true},
		"denied, and another check of the call has no answer": {
			answer: func(c *enforce.BucketCheck) { c.Answered = true }, err: io.EOF, isKept: true,
		},
		"nobody knows": {answer: func(*enforce.BucketCheck) {}, err: io.EOF},
		"nothing taken": {
			answer: func(*enforce.BucketCheck) {},
			err:    fmt.Errorf("%w: %w", io.EOF, enforce.ErrNothingTaken), isKept: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := lend.Instant{Mono: 1e9, Wall: 1e9}
			limit := enforce.Limit{Rate: 1000, Burst: 1000}
			b := newBuckets(nil, func() lend.Instant { return now }, slog.New(slog.DiscardHandler), 16)
			b.TurnOn(true)
			e := newLeased(enforce.Key{Tenant: 1, Rule: 1}, limit, now)
			if _, ok := e.Ask(now, lend.TopUp); !ok {
				t.Fatal("the bucket asks for nothing")
			}
			e.granted(now, now, &enforce.Grant{Amount: lent, Slot: 7, Epoch: 1, Limit: limit})
			e.view.Store(&view{limit: limit, level: 500 * enforce.Token})
			held := map[enforce.Key]*leased{e.key: e}
			b.held.Store(&held)

			other := enforce.Limit{Rate: 1, Burst: 5}
			checks := []enforce.BucketCheck{{Cost: cost, Tiers: []enforce.Tier{
				{Key: enforce.Key{Tenant: 1, Rule: 2}, Limit: other}, {Key: e.key, Limit: limit},
			}}}
			rest := b.begin(checks, held, now)
			if rest == nil || len(rest.checks) != 1 || len(rest.checks[0].Tiers) != 1 ||
				rest.checks[0].Tiers[0].Key.Rule != 2 {
				t.Fatalf("the store gets %+v", rest)
			}
			if got := e.Held(now); got != lent-cost {
				t.Errorf("%v can be spent while the store decides, want %v", got, lent-cost)
			}
			if got := e.Held(now) + undecided(e, now); got != lent {
				t.Errorf("the bucket would report that it holds %v, want %v", got, lent)
			}
			c.answer(&rest.checks[0])
			b.end(checks, rest, held, c.err, now)

			want := lent - cost
			if c.isKept {
				want = lent
			}
			if got := e.Held(now); got != want || undecided(e, now) != 0 {
				t.Errorf("the lots have %v, and %v is undecided; want %v and 0", got, undecided(e, now), want)
			}
			if got := checks[0].Tiers[1]; !got.Holds || got.Bucket.Limit != limit ||
				got.Bucket.Level.Micros != 500*enforce.Token+want {
				t.Errorf("the leased tier is answered with %+v", got)
			}
			if got := checks[0].Tiers[0]; got.Key.Rule != 2 || got.Holds != checks[0].Allowed {
				t.Errorf("the other tier is answered with %+v", got)
			}
			ask, ok := e.Return(now)
			if !ok || len(ask.Returns) != 1 ||
				ask.Returns[0] != (enforce.Return{Slot: 7, Spent: lent - want, Back: want}) {
				t.Errorf("it gives back %+v", ask)
			}
		})
	}
}

func undecided(e *leased, now lend.Instant) (sum lend.Tokens) {
	e.Lots(now, func(_ *lend.Lot, _ bool, _, _, undecided lend.Tokens) { sum += undecided })
	return sum
}

func TestALotThatEndedMeanwhileGetsNothingBack(t *testing.T) {
	t.Parallel()
	now := lend.Instant{Mono: 1e9, Wall: 1e9}
	limit := enforce.Limit{Rate: 1000, Burst: 1000}
	b := newLeased(enforce.Key{}, limit, now)
	if _, ok := b.Ask(now, lend.TopUp); !ok {
		t.Fatal("the bucket asks for nothing")
	}
	b.granted(now, now, &enforce.Grant{Amount: 10 * enforce.Token, Slot: 7, Epoch: 1, Limit: limit})
	var taken, again lend.Pending
	if !b.Take(now, enforce.Token, &taken) {
		t.Fatal("the lot has nothing")
	}
	later := now.Plus(enforce.LeaseLife)
	if _, ok := b.Return(later); !ok {
		t.Fatal("nothing is given back")
	}
	b.granted(later, later, &enforce.Grant{Slot: 11, Epoch: 1, Limit: limit})
	taken.PutBack()
	if b.Take(later, enforce.Token, &again) || b.Held(later) != 0 {
		t.Error("tokens of a lot that ended are spent")
	}
}

func TestABucketThatSparesFewRoundTripsIsLeft(t *testing.T) {
	t.Parallel()
	limit := enforce.Limit{Rate: 1000, Burst: 1000}
	for _, c := range []struct {
		checks, partly int
		isLeft, rests  bool
	}{
		{checks: 800, partly: 0},
		{checks: 800, partly: 700},
		{checks: 800, partly: 701, isLeft: true, rests: true},
		{checks: cold - 1, partly: 0, isLeft: true},
	} {
		now := lend.Instant{Mono: 1e9, Wall: 1e9}
		b := newBuckets(nil, func() lend.Instant { return now }, slog.New(slog.DiscardHandler), 16)
		b.TurnOn(true)
		busy := candidate{enforce.Key{Tenant: 1, Rule: 1}, limit}
		b.offers.add([]candidate{busy})
		b.admit()
		e := (*b.held.Load())[busy.key]
		for range c.checks {
			e.miss(enforce.Token)
		}
		e.partly.Add(int64(c.partly))
		if b.leave(); b.Len() != 1 {
			t.Fatalf("%+v: the bucket is left before it was leased for %v", c, coldWithin)
		}
		now = now.Plus(coldWithin)
		if b.leave(); (b.Len() == 0) != c.isLeft {
			t.Errorf("%+v: %d buckets are leased", c, b.Len())
		}
		if !c.isLeft {
			continue
		}
		b.offers.add([]candidate{{enforce.Key{Tenant: 1, Rule: 2}, limit}, busy})
		if b.admit(); (b.Len() == 0) != c.rests {
			t.Errorf("%+v: %d buckets are leased again", c, b.Len())
		}
		now = now.Plus(restWithin)
		b.offers.add([]candidate{busy})
		if b.admit(); (*b.held.Load())[busy.key] == nil {
			t.Errorf("%+v: the bucket is not leased any more", c)
		}
	}
}

func TestALackOfTokensIsNoReasonToLeaveABucket(t *testing.T) {
	t.Parallel()
	now := lend.Instant{Mono: 1e9, Wall: 1e9}
	limit := enforce.Limit{Rate: 1000, Burst: 1000}
	b := newBuckets(nil, func() lend.Instant { return now }, slog.New(slog.DiscardHandler), 16)
	b.TurnOn(true)
	tiers := []enforce.Tier{
		{Key: enforce.Key{Tenant: 1, Rule: 1}, Limit: limit},
		{Key: enforce.Key{Tenant: 1, Rule: 2}, Limit: limit},
	}
	b.offers.add([]candidate{{tiers[0].Key, limit}, {tiers[1].Key, limit}})
	b.admit()
	held := *b.held.Load()
	e := held[tiers[0].Key]
	b.notice(&enforce.BucketCheck{Cost: enforce.Token, Tiers: tiers}, &noSplit, held, now, true)
	if e.count.Load() != 1 || e.partly.Load() != 0 {
		t.Errorf("a check that lacked tokens: %d checks, %d of them with other buckets", e.count.Load(),
			e.partly.Load())
	}
	other := enforce.Tier{Key: enforce.Key{Tenant: 1, Rule: 3}, Limit: limit}
	b.notice(&enforce.BucketCheck{Cost: enforce.Token, Tiers: append(tiers, other)}, &noSplit, held, now, true)
	if e.count.Load() != 2 || e.partly.Load() != 1 {
		t.Errorf("a check with a bucket that is not leased: %d checks, %d of them with other buckets", e.count.Load(),
			e.partly.Load())
	}
}

func TestLeasesServeNeitherRecordsNorTiersThatAreChargedAfter(t *testing.T) {
	t.Parallel()
	now := lend.Instant{Mono: 1e9, Wall: 1e9}
	limit := enforce.Limit{Rate: 1000, Burst: 1000}
	for name, change := range map[string]func(*enforce.BucketCheck){
		"record":        func(c *enforce.BucketCheck) { c.Record = true },
		"charged after": func(c *enforce.BucketCheck) { c.Tiers[0].After = true },
	} {
		b := newBuckets(nil, func() lend.Instant { return now }, slog.New(slog.DiscardHandler), 16)
		b.TurnOn(true)
		e := newLeased(enforce.Key{Tenant: 1, Rule: 1}, limit, now)
		if _, ok := e.Ask(now, lend.TopUp); !ok {
			t.Fatal("the bucket asks for nothing")
		}
		e.granted(now, now, &enforce.Grant{Amount: 100 * enforce.Token, Slot: 7, Epoch: 1, Limit: limit})
		held := map[enforce.Key]*leased{e.key: e}
		b.held.Store(&held)
		checks := []enforce.BucketCheck{{Cost: enforce.Token, Tiers: []enforce.Tier{{Key: e.key, Limit: limit}}}}
		rest := b.begin(checks, held, now) // takes from the lease
		if rest != nil || !checks[0].Leased || checks[0].Tiers[0].Charged != enforce.Token {
			t.Fatalf("%s: an ordinary check is answered with %+v", name, checks[0])
		}
		change(&checks[0])
		if rest := b.begin(checks, held, now); rest == nil || len(rest.checks[0].Tiers) != 1 ||
			e.Held(now) != 99*enforce.Token {
			t.Errorf("%s: the store gets %+v, and %v is held", name, rest, e.Held(now))
		}
	}
}
