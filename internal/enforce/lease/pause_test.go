package lease

import (
	"log/slog"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/lend"
)

func lateBy(i lend.Instant, mono, wall time.Duration) lend.Instant {
	return lend.Instant{Mono: i.Mono + int64(mono), Wall: i.Wall + int64(wall)}
}

func holding(t *testing.T, now *lend.Instant) (b *Buckets, e *leased) {
	t.Helper()
	b = newBuckets(nil, func() lend.Instant { return *now }, slog.New(slog.DiscardHandler), 16)
	b.TurnOn(true)
	e = newLeased(enforce.Key{Tenant: 1, Rule: 1}, plenty, *now)
	b.held.Store(&map[enforce.Key]*leased{e.key: e})
	if _, ok := e.Ask(*now, lend.TopUp); !ok {
		t.Fatal("the bucket asks for nothing")
	}
	e.granted(*now, *now, &enforce.Grant{Amount: 100 * enforce.Token, Slot: 7, Epoch: 1, Limit: plenty})
	e.miss(1000 * enforce.Token)
	return b, e
}

func TestEitherClockEndsWhatIsHeld(t *testing.T) {
	t.Parallel()
	start := lend.Instant{Mono: 1e9, Wall: 5e9}
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
		now = lateBy(start, c.mono, c.wall)
		var taken lend.Pending
		if got := e.Take(now, enforce.Token, &taken); got != c.isAlive || (e.Held(now) > 0) != c.isAlive {
			t.Errorf("after %v and %v: taken is %t, and %v is held", c.mono, c.wall, got, e.Held(now))
		}
	}
}

// After a suspension the wall clock may be set back by as long, and both clocks would find the tokens alive.
func TestWhatIsHeldIsDroppedOnceTheClocksMovedApart(t *testing.T) {
	t.Parallel()
	start := lend.Instant{Mono: 1e9, Wall: 5e9}
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
		var inFlight, taken lend.Pending
		if !e.Take(now, enforce.Token, &inFlight) {
			t.Fatal("there are no tokens")
		}
		asked := now
		if _, ok := e.Ask(now.Plus(100*time.Millisecond), lend.AlongUp); !ok {
			t.Fatal("the bucket asks for nothing")
		}
		now = lateBy(start, c.mono, c.wall)
		b.watchClocks()
		now = start.Plus(max(c.mono, 0)) // the wall clock is set back
		b.watchClocks()
		e.granted(asked, now, &enforce.Grant{Amount: 50 * enforce.Token, Slot: 8, Epoch: 1, Limit: plenty})
		inFlight.PutBack()
		if got := e.Take(now, enforce.Token, &taken); got != c.isKept {
			t.Errorf("after %v and %v: taken is %t", c.mono, c.wall, got)
		}
		if !c.isKept && e.Moved().Forfeited+b.Moved().Forfeited != 149*enforce.Token {
			t.Errorf("after %v and %v: the forfeited tokens are not counted", c.mono, c.wall)
		}
		if _, ok := e.Ask(now, lend.TopUp); !ok {
			continue
		}
		e.granted(now, now, &enforce.Grant{Amount: 10 * enforce.Token, Slot: 8, Epoch: 1, Limit: plenty})
		if !e.Take(now, enforce.Token, &taken) {
			t.Errorf("after %v and %v: the tokens that were lent later are dropped, too", c.mono, c.wall)
		}
	}
}
