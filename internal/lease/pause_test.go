package lease

import (
	"log/slog"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// lateBy moves the two clocks apart.
func (i Instant) lateBy(mono, wall time.Duration) Instant {
	return Instant{i.Mono + int64(mono), i.Wall + int64(wall)}
}

// holding returns a Buckets that holds tokens of one bucket, and asks for more.
func holding(t *testing.T, now *Instant) (b *Buckets, e *leased) {
	t.Helper()
	b = newBuckets(nil, func() Instant { return *now }, slog.New(slog.DiscardHandler), 16)
	b.TurnOn(true)
	e = &leased{Bucket: NewBucket(plenty, *now), key: enforce.Key{Tenant: 1, Rule: 1}}
	b.held.Store(&map[enforce.Key]*leased{e.key: e})
	if _, ok := e.Ask(*now, 0, 0); !ok {
		t.Fatal("the bucket asks for nothing")
	}
	e.Answered(*now, *now, &enforce.Grant{Amount: 100 * enforce.Token, Slot: 7, Epoch: 1, Limit: plenty})
	e.Demand(1000 * enforce.Token)
	return b, e
}

func TestEitherClockEndsWhatIsHeld(t *testing.T) {
	t.Parallel()
	start := Instant{Mono: 1e9, Wall: 5e9}
	for _, c := range []struct {
		mono, wall time.Duration
		isAlive    bool
	}{
		{mono: 900 * time.Millisecond, wall: 900 * time.Millisecond, isAlive: true},
		{mono: time.Second, wall: time.Second},        // the process was stopped
		{wall: time.Second},                           // the machine was suspended
		{mono: time.Second},                           // and its wall clock set back
		{mono: time.Second, wall: -time.Hour},         // it was set
		{mono: time.Millisecond, wall: 2 * time.Hour}, // likewise
	} {
		now := start
		_, e := holding(t, &now)
		now = start.lateBy(c.mono, c.wall)
		var taken Taken
		if got := e.Take(now, enforce.Token, &taken); got != c.isAlive || (e.Held(now) > 0) != c.isAlive {
			t.Errorf("after %v and %v: taken is %t, and %v is held", c.mono, c.wall, got, e.Held(now))
		}
	}
}

// TestWhatIsHeldIsDroppedOnceTheClocksMovedApart: after the machine was suspended, the wall clock may be set back by as long, and both
// clocks would find the tokens alive.
func TestWhatIsHeldIsDroppedOnceTheClocksMovedApart(t *testing.T) {
	t.Parallel()
	start := Instant{Mono: 1e9, Wall: 5e9}
	for _, c := range []struct {
		mono, wall time.Duration
		isKept     bool
	}{
		{wall: 300 * time.Millisecond},
		{wall: -300 * time.Millisecond},
		{wall: 200 * time.Millisecond, isKept: true}, // the store waits that long before it forgets a slot
		{mono: 300 * time.Millisecond, wall: 300 * time.Millisecond, isKept: true},
	} {
		now := start
		b, e := holding(t, &now)
		var inFlight, taken Taken
		if !e.Take(now, enforce.Token, &inFlight) {
			t.Fatal("there are no tokens")
		}
		inFlight.Hold()
		asked := now
		if _, ok := e.askBelow(alongUp, now.plus(100*time.Millisecond), 0, 0); !ok {
			t.Fatal("the bucket asks for nothing")
		}
		now = start.lateBy(c.mono, c.wall)
		b.watchClocks()
		now = start.plus(max(c.mono, 0)) // the wall clock is set back
		b.watchClocks()
		e.Answered(asked, now, &enforce.Grant{Amount: 50 * enforce.Token, Slot: 8, Epoch: 1, Limit: plenty})
		inFlight.PutBack()
		if got := e.Take(now, enforce.Token, &taken); got != c.isKept {
			t.Errorf("after %v and %v: taken is %t", c.mono, c.wall, got)
		}
		if !c.isKept && e.Moved().Forfeited+b.Moved().Forfeited != 149*enforce.Token {
			t.Errorf("after %v and %v: the forfeited tokens are not counted", c.mono, c.wall)
		}
		// What comes next is kept.
		if _, ok := e.Ask(now, 0, 0); !ok {
			continue
		}
		e.Answered(now, now, &enforce.Grant{Amount: 10 * enforce.Token, Slot: 8, Epoch: 1, Limit: plenty})
		if !e.Take(now, enforce.Token, &taken) {
			t.Errorf("after %v and %v: the tokens that were lent later are dropped, too", c.mono, c.wall)
		}
	}
}
