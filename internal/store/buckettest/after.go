package buckettest

import (
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

func chargedAfter(tier enforce.Tier) enforce.Tier {
	tier.After = true
	return tier
}

func window(kind rules.Kind, burst int64) enforce.Limit {
	return enforce.Limit{Kind: kind, Burst: burst, Interval: time.Minute.Microseconds(), Since: epoch}
}

func expectCharged(t *testing.T, check enforce.BucketCheck, tokens ...float64) {
	t.Helper()
	for i, want := range tokens {
		if got := check.Tiers[i].Charged; got != enforce.Tokens(want*float64(enforce.Token)) {
			t.Errorf("tier %d was charged %s, want %v", i, got, want)
		}
	}
}

func expectWait(t *testing.T, check enforce.BucketCheck, tier int, want time.Duration) {
	t.Helper()
	if wait, ok := check.Tiers[tier].Wait(&check); !ok || wait != want {
		t.Errorf("tier %d waits %v, %t, want %v", tier, wait, ok, want)
	}
}

func chargesAfter(t *testing.T, s Store) {
	bucket := chargedAfter(enforce.Tier{Key: key(1, "42"), Limit: limit(1, 10, 0)})
	fixed := chargedAfter(enforce.Tier{Key: key(2, "42"), Limit: window(rules.KindFixedWindow, 10)})
	sliding := chargedAfter(enforce.Tier{Key: key(3, "42"), Limit: window(rules.KindSlidingWindow, 10)})
	for _, one := range []struct {
		tier    enforce.Tier
		charged []float64 // by costs of 4, 100 and 1
		wait    time.Duration
	}{
		// 100 exceed the 6 that are left and a burst of debt, which takes ten seconds to earn.
		{bucket, []float64{4, 16, 0}, 10*time.Second + time.Microsecond},
		{fixed, []float64{4, 6, 0}, time.Minute},
		// The next window counts these 10 until their share rounds to 9.
		{sliding, []float64{4, 6, 0}, 63*time.Second + time.Microsecond},
	} {
		answers := take(t, s, after(0), checkOf(4, one.tier), checkOf(100, one.tier), checkOf(1, one.tier))
		expectAllowed(t, answers, true, true, false)
		for i, want := range one.charged {
			expectCharged(t, answers[i], want)
		}
		expectWait(t, answers[2], 0, one.wait)
		expectAllowed(t, take(t, s, epoch+one.wait.Microseconds()-1, checkOf(0, one.tier)), false)
		expectAllowed(t, take(t, s, epoch+one.wait.Microseconds(), checkOf(0, one.tier)), true)
	}
}

func chargesAfterOrNothing(t *testing.T, s Store) {
	user := enforce.Tier{Key: key(1, "42"), Limit: limit(1e-6, 3, 0)}
	budget := chargedAfter(enforce.Tier{Key: key(2, "42"), Limit: limit(1e-6, 10, 0)})
	shadow := chargedAfter(enforce.Tier{Key: key(3, "42"), Limit: limit(1e-6, 1, 0), Shadow: true})
	check := func(cost, of float64) enforce.BucketCheck {
		c := checkOf(max(cost, of), user, budget, shadow)
		c.Mixed = true
		for i, tokens := range []float64{cost, of, of} {
			c.Tiers[i].Cost = enforce.Tokens(tokens * float64(enforce.Token))
		}
		return c
	}
	answers := take(t, s, after(0),
		check(1, 6), // all hold
		check(1, 8), // the shadow is in debt
		check(1, 8), // the budget is in debt
		check(4, 0)) // the user's cost is above the burst
	expectAllowed(t, answers, true, true, false, false)
	expectCharged(t, answers[0], 1, 6, 2)
	expectCharged(t, answers[1], 1, 8, 0)
	expectCharged(t, answers[2], 0, 0, 0)
	expectTokens(t, answers[2], 1, -4, -1)
	expectTokens(t, answers[3], 1, -4, -1)
}

func looksAfter(t *testing.T, s Store) {
	user := enforce.Tier{Key: key(1, "42"), Limit: limit(1, 10, 0)}
	budget := chargedAfter(enforce.Tier{Key: key(2, "42"), Limit: window(rules.KindFixedWindow, 10)})
	look := func() enforce.BucketCheck {
		c := checkOf(1, user, budget)
		c.Mixed, c.Tiers[0].Cost = true, enforce.Token
		return c
	}
	answers := take(t, s, after(0), look(), checkOf(10, budget), look(), checkOf(0, budget))
	expectAllowed(t, answers, true, true, false, false)
	expectCharged(t, answers[0], 1, 0)
	expectTokens(t, answers[2], 9, 0)
	expectWait(t, answers[3], 0, time.Minute)
}

func records(t *testing.T, s Store) {
	tiers := []enforce.Tier{
		{Key: key(1, "42"), Limit: limit(1e-6, 4, 0)},
		{Key: key(2, "42"), Limit: window(rules.KindFixedWindow, 4)},
		{Key: key(3, "42"), Limit: window(rules.KindSlidingWindow, 4), Shadow: true},
		{Key: key(4, "42"), Limit: window(rules.KindSlidingWindowLog, 4)},
		{Key: key(5, "42"), Limit: enforce.Limit{Kind: rules.KindLeakyBucket, Rate: 1e-6, Burst: 4, Since: epoch}},
		chargedAfter(enforce.Tier{Key: key(6, "42"), Limit: limit(1e-6, 100, 0)}),
	}
	record := func(tokens float64) enforce.BucketCheck {
		c := checkOf(tokens, tiers...)
		c.Record = true
		return clone([]enforce.BucketCheck{c})[0]
	}
	answers := take(t, s, after(0), record(3.5), record(3.5), record(3.5), checkOf(1, tiers...))
	expectAllowed(t, answers, true, true, true, false)
	expectCharged(t, answers[0], 3.5, 3.5, 3.5, 4, 3.5, 3.5)
	expectCharged(t, answers[1], 3.5, 0.5, 0.5, 0, 0.5, 3.5)
	expectCharged(t, answers[2], 1, 0, 0, 0, 0, 3.5)
	expectTokens(t, answers[2], -4, 0, 0, 0, 0, 89.5)
	for i := range tiers {
		if !answers[2].Tiers[i].Holds {
			t.Errorf("a record says that tier %d does not hold", i)
		}
	}
	expectTokens(t, answers[3], -4, 0, 0, 0, 0, 89.5)
}

func recordsTakeNoSlots(t *testing.T, s Store) {
	places := enforce.Tier{Key: key(1, "42"), Limit: slots(1, time.Minute)}
	bucket := enforce.Tier{Key: key(2, "42"), Limit: limit(1e-6, 4, 0)}
	record := checkOf(2, places, bucket)
	record.Record, record.Holder = true, enforce.Holder{1}
	look := clone([]enforce.BucketCheck{record})[0]
	look.Look = true
	answers := take(t, s, after(0), look, record)
	expectAllowed(t, answers, true, true)
	expectCharged(t, answers[0], 0, 0)
	expectCharged(t, answers[1], 0, 2)
	expectTokens(t, answers[1], 1, 2)
	expectKeys(t, s, 1)
}

func reservesWhatWasCharged(t *testing.T, s Store) {
	budget := chargedAfter(enforce.Tier{Key: key(1, "42"), Limit: window(rules.KindFixedWindow, 10)})
	expectAllowed(t, take(t, s, after(0), reserving(1, 30, budget)), true)
	left(t, s, after(time.Minute), budget, 10)
	answers := take(t, s, after(time.Minute), reserving(2, 30, budget))
	expectCharged(t, answers[0], 10)
	expectSettled(t, settleAt(t, s, after(time.Minute), 2, cost(4)), true, 4)
	left(t, s, after(time.Minute), budget, 6)
}
