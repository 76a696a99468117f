package combine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// Another store's delay says nothing about this one.
func TestALateCallIsNoOverload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner()
		checks := []enforce.BucketCheck{{Tiers: make([]enforce.Tier, 4)}}
		if _, err := l.Submit(checks, time.Now().Add(-budget)); !errors.Is(err, enforce.ErrNothingTaken) {
			t.Errorf("a call without any time left: %v", err)
		}
		if l.overload.isOn(time.Now()) {
			t.Error("the store counts as overloaded, though nothing waited for it")
		}
	})
}

// A large call takes several turns, and only the wait for the first can refuse it.
func TestALargeCallIsRefusedForItsFirstTurnOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTestCombiner()
		now := time.Now()
		l.overload.begin(now)
		large := &Call{checks: make([]enforce.BucketCheck, 1000)}
		for i := range large.checks {
			large.checks[i].Tiers = make([]enforce.Tier, 4)
		}
		for tiers, isRefused := range map[int]bool{quantum: false, quantum - 1: true} {
			l.overload.tiers, l.overload.took = float64(tiers), (budget / turnShare / admitShare).Seconds()
			if got := l.refuses(large, now); got != isRefused {
				t.Errorf("while %d tiers are decided in time, a call is refused: %t", tiers, got)
			}
		}
	})
}
