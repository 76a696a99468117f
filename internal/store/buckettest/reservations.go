package buckettest

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// RunReservations is the suite of enforce.Reserver; each parallel test calls open once.
func RunReservations(t *testing.T, open func(t *testing.T) Store) {
	promises := map[string]func(*testing.T, Store){
		"a reservation is settled once":                                           settlesOnce,
		"a lower cost gives the rest back, a higher one takes the rest":           replacesTheEstimate,
		"a token bucket goes into debt by at most one burst":                      boundsDebt,
		"a refund goes into the same window only":                                 refundsTheSameWindow,
		"a slot is free when its check is settled or forgotten":                   freesSlots,
		"an extended reservation keeps its slot":                                  extends,
		"a denied check reserves nothing":                                         deniedReservesNothing,
		"only the key that reserved gives back":                                   guardsRefunds,
		"debt is cut with the burst, and a credit leaves the rest of it":          keepsDebtInBounds,
		"an extended slot is free a day after its check":                          endsAfterADay,
		"a refund counts after an edit of a quota":                                refundsAnEditedQuota,
		"a caller that does not know of slots takes none":                         needsHolders,
		"a reservation ends by itself":                                            endsByItself,
		"an unused bucket is settled by the limit in force":                       settlesByTheLimitInForce,
		"a settlement returns the buckets that it changed":                        returnsChangedBuckets,
		"an extension is not denied by what denies no more":                       forgivesByNow,
		"a reservation keeps what was charged after":                              reservesWhatWasCharged,
		"an extension takes a higher cost of every meter or of none":              extendsTheEstimate,
		"an extension of a cost that is charged after takes what fits":            extendsWhatIsChargedAfter,
		"a settlement says what it changed of the costs of a user":                tellsChanges,
		"a check that takes from no bucket can be settled":                        settlesWithoutBuckets,
		"random histories with reservations agree with the reference bit for bit": runReservationHistories,
	}
	if open(t).Newer != nil {
		promises["a bucket of a newer release is not settled"] = leavesNewerBucketsAlone
	}
	runEach(t, open, promises)
}

const reserver = "a key"

func reserving(id byte, tokens float64, tiers ...enforce.Tier) enforce.BucketCheck {
	check := checkOf(tokens, tiers...)
	check.Reserve = &enforce.Reservation{ID: enforce.ReservationID{id, 1, 2}, Life: 10 * time.Minute, Key: reserver}
	check.Holder = check.Reserve.ID.Holder()
	return check
}

func settleAt(t *testing.T, s Store, now int64, id byte, with enforce.Settlement) enforce.Settled {
	t.Helper()
	if with.Key == "" {
		with.Key = reserver
	}
	settled, err := s.SettleReservation(now, 1, enforce.ReservationID{id, 1, 2}, with)
	if err != nil {
		t.Fatalf("settle: %v", err)
	}
	return settled
}

func cost(tokens float64) enforce.Settlement {
	return enforce.Settlement{Cost: enforce.Tokens(tokens * float64(enforce.Token)), HasCost: true}
}

func expectSettled(t *testing.T, got enforce.Settled, found bool, tokens float64) {
	t.Helper()
	if charged := enforce.Tokens(tokens * float64(enforce.Token)); got.Found != found || got.Charged != charged {
		t.Errorf("settled as %+v, want %v at %s", got, found, charged)
	}
}

func left(t *testing.T, s Store, now int64, tier enforce.Tier, tokens float64) {
	t.Helper()
	expectTokens(t, take(t, s, now, checkOf(0, tier))[0], tokens)
}

func tellsChanges(t *testing.T, s Store) {
	requests := enforce.Tier{Key: key(1, "42"), Limit: limit(1e-6, 100, 0), Cost: enforce.Token}
	tokens := enforce.Tier{Key: key(2, "42"), Limit: limit(1e-6, 100, 0), Meter: "tokens", Cost: 5 * enforce.Token}
	check := func(id byte) enforce.BucketCheck {
		check := reserving(id, 5, requests, tokens)
		check.Mixed, check.Reserve.User = true, "user 42"
		check.Reserve.Costs = []enforce.MeterCost{{Cost: enforce.Token}, {Meter: "tokens", Cost: 5 * enforce.Token}}
		return check
	}
	expectAllowed(t, take(t, s, after(0), check(1), check(2)), true, true)
	costs := func(pages, tokens enforce.Tokens) enforce.Settlement {
		return enforce.Settlement{Costs: []enforce.MeterCost{
			{Meter: "tokens", Cost: tokens * enforce.Token}, {Meter: "pages", Cost: pages * enforce.Token},
		}}
	}
	expect := func(settled enforce.Settled, changes ...enforce.MeterCost) {
		t.Helper()
		if settled.User != "user 42" || settled.CheckedAt != after(0) || !slices.Equal(settled.Changes, changes) {
			t.Errorf("settled as %+v, want changes of %v", settled, changes)
		}
	}
	with := costs(2, 8)
	with.Extend = true
	expect(settleAt(t, s, after(time.Minute), 1, with), enforce.MeterCost{Meter: "tokens", Cost: 3 * enforce.Token},
		enforce.MeterCost{Meter: "pages", Cost: 2 * enforce.Token})
	with = costs(1, 7) // lower ones change nothing
	with.Extend = true
	expect(settleAt(t, s, after(time.Minute), 1, with))
	with = costs(9, 1000)
	with.Extend = true
	if settled := settleAt(t, s, after(time.Minute), 1, with); !settled.Denied || len(settled.Changes) > 0 {
		t.Errorf("a denied extension is %+v", settled)
	}
	expect(settleAt(t, s, after(2*time.Minute), 1, costs(2, 6)),
		enforce.MeterCost{Meter: "tokens", Cost: -2 * enforce.Token})
	expect(settleAt(t, s, after(time.Minute), 2, enforce.Settlement{Cancel: true}),
		enforce.MeterCost{Cost: -enforce.Token}, enforce.MeterCost{Meter: "tokens", Cost: -5 * enforce.Token})
	// In the first version, without meters, settlements of other meters are new.
	expectAllowed(t, take(t, s, after(0), reserving(3, 1, requests)), true)
	settled := settleAt(t, s, after(0), 3, costs(2, 6))
	if expectSettled(t, settled, true, 1); len(settled.Changes) > 0 || len(settled.Costs) > 0 {
		t.Errorf("a reservation without meters is settled as %+v", settled)
	}
}

func settlesOnce(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: limit(1e-6, 10, 0)}
	expectAllowed(t, take(t, s, after(0), reserving(1, 4, tier)), true)
	expectSettled(t, settleAt(t, s, after(0), 1, cost(1)), true, 1)
	expectSettled(t, settleAt(t, s, after(0), 1, cost(0)), false, 0)
	expectSettled(t, settleAt(t, s, after(0), 2, cost(0)), false, 0)
	left(t, s, after(0), tier, 9)
}

func replacesTheEstimate(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: limit(1e-6, 100, 0)}
	listed := enforce.Tier{
		Key:   key(2, "42"),
		Limit: enforce.Limit{Kind: rules.KindSlidingWindowLog, Burst: 100, Interval: 60e6, Since: epoch},
	}
	expectAllowed(t, take(t, s, after(0), reserving(1, 10, tier, listed), reserving(2, 10, tier, listed),
		reserving(3, 10, tier, listed)), true, true, true)
	expectSettled(t, settleAt(t, s, after(0), 1, cost(2.5)), true, 2.5)
	expectSettled(t, settleAt(t, s, after(0), 2, cost(30.5)), true, 30.5)
	expectSettled(t, settleAt(t, s, after(0), 3, enforce.Settlement{}), true, 10)
	left(t, s, after(0), tier, 100-2.5-30.5-10)
	left(t, s, after(0), listed, 100-3-31-10)
}

func boundsDebt(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: limit(1, 10, 0)}
	window := enforce.Tier{
		Key:   key(2, "42"),
		Limit: enforce.Limit{Kind: rules.KindFixedWindow, Burst: 20, Interval: 60e6, Since: epoch},
	}
	expectAllowed(t, take(t, s, after(0), reserving(1, 5, tier)), true)
	expectSettled(t, settleAt(t, s, after(0), 1, cost(12)), true, 12)
	answers := take(t, s, after(0), checkOf(1, tier))
	expectAllowed(t, answers, false)
	if wait, _ := answers[0].Tiers[0].Wait(&answers[0]); wait != 3*time.Second {
		t.Errorf("two tokens in debt, one more comes after %v, want 3 s", wait)
	}
	expectAllowed(t, take(t, s, after(3*time.Second), reserving(2, 1, tier, window)), true)
	expectSettled(t, settleAt(t, s, after(3*time.Second), 2, cost(1000)), true, 11) // one, and a burst of debt
	expectAllowed(t, take(t, s, after(13*time.Second), checkOf(1, tier)), false)
	expectAllowed(t, take(t, s, after(14*time.Second), checkOf(1, tier)), true)
	left(t, s, after(14*time.Second), window, 0) // windows have no debt
}

func refundsTheSameWindow(t *testing.T, s Store) {
	fixed := enforce.Tier{
		Key:   key(1, "42"),
		Limit: enforce.Limit{Kind: rules.KindFixedWindow, Burst: 10, Interval: 60e6, Since: epoch},
	}
	sliding := enforce.Tier{
		Key:   key(2, "42"),
		Limit: enforce.Limit{Kind: rules.KindSlidingWindow, Burst: 10, Interval: 60e6, Since: epoch},
	}
	expectAllowed(t, take(t, s, after(30*time.Second), reserving(1, 4, fixed, sliding),
		reserving(2, 4, fixed, sliding)), true, true)
	expectSettled(t, settleAt(t, s, after(40*time.Second), 1, cost(1)), true, 1)
	left(t, s, after(40*time.Second), fixed, 5)
	left(t, s, after(40*time.Second), sliding, 5)
	expectAllowed(t, take(t, s, after(90*time.Second), checkOf(1, fixed)), true)
	expectSettled(t, settleAt(t, s, after(90*time.Second), 2, cost(0)), true, 0)
	left(t, s, after(90*time.Second), fixed, 9)
	left(t, s, after(90*time.Second), sliding, 9)
}

func slots(burst int64, hold time.Duration) enforce.Limit {
	return enforce.Limit{Kind: rules.KindConcurrency, Burst: burst, Interval: hold.Microseconds(), Since: epoch}
}

func freesSlots(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: slots(2, time.Minute)}
	expectAllowed(t, take(t, s, after(0), reserving(1, 1, tier), reserving(2, 1, tier), reserving(3, 1, tier)), true,
		true, false)
	expectSettled(t, settleAt(t, s, after(0), 1, cost(7)), true, 7)
	expectAllowed(t, take(t, s, after(time.Second), reserving(4, 1, tier), reserving(5, 1, tier)), true, false)
	expectAllowed(t, take(t, s, after(time.Minute), reserving(6, 1, tier), reserving(7, 1, tier)), true, false)
	expectSettled(t, settleAt(t, s, after(time.Minute), 2, enforce.Settlement{}), true, 1) // its slot was freed
	left(t, s, after(time.Minute), tier, 0)
}

func extends(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: slots(1, 15*time.Minute)}
	expectAllowed(t, take(t, s, after(0), reserving(1, 1, tier)), true)
	expectSettled(t, settleAt(t, s, after(9*time.Minute), 1, enforce.Settlement{Extend: true}), true, 1)
	left(t, s, after(23*time.Minute), tier, 0)
	expectSettled(t, settleAt(t, s, after(20*time.Minute), 1, enforce.Settlement{Extend: true}), false, 0)
	left(t, s, after(24*time.Minute), tier, 1)
}

func extension(requests float64, costs ...enforce.MeterCost) enforce.Settlement {
	with := cost(requests)
	with.Extend, with.Costs = true, costs
	return with
}

func tokensCost(tokens float64) enforce.MeterCost {
	return enforce.MeterCost{Meter: "tokens", Cost: enforce.Tokens(tokens * float64(enforce.Token))}
}

func extendsTheEstimate(t *testing.T, s Store) {
	requests := enforce.Tier{Key: key(1, "42"), Limit: limit(1e-6, 10, 0), Cost: enforce.Token}
	tokens := enforce.Tier{
		Key: key(2, "42"), Limit: window(rules.KindFixedWindow, 100), Meter: "tokens", Cost: 20 * enforce.Token,
	}
	shadow := enforce.Tier{
		Key: key(3, "42"), Limit: limit(1e-6, 30, 0), Meter: "tokens", Shadow: true, Cost: 20 * enforce.Token,
	}
	slot := enforce.Tier{Key: key(4, "42"), Limit: slots(1, 15*time.Minute), Cost: enforce.Token}
	check := reserving(1, 20, requests, tokens, shadow, slot)
	check.Mixed = true
	expectAllowed(t, take(t, s, after(0), check), true)
	expect := func(with enforce.Settlement, isDenied bool, leftOf ...float64) {
		t.Helper()
		with.Key = "another key" // an extension gives nothing back
		if got := settleAt(t, s, after(0), 1, with); !got.Found || got.Denied != isDenied {
			t.Errorf("extended as %+v, want it denied: %t", got, isDenied)
		}
		for i, tier := range []enforce.Tier{requests, tokens, shadow} {
			left(t, s, after(0), tier, leftOf[i])
		}
	}
	expect(extension(1, tokensCost(30)), false, 9, 70, 0)
	expect(extension(1, tokensCost(30)), false, 9, 70, 0) // a repeat
	expect(extension(0, tokensCost(5)), false, 9, 70, 0)  // lower costs
	expect(extension(2, tokensCost(101)), true, 9, 70, 0)
	expect(extension(11, tokensCost(40)), true, 9, 70, 0)
	expect(extension(2, tokensCost(100)), false, 8, 0, 0) // the shadow rule lacks it
	expect(extension(2, tokensCost(101)), true, 8, 0, 0)
	left(t, s, after(0), slot, 0)
	with := cost(2)
	with.Costs = []enforce.MeterCost{tokensCost(60)}
	settled := settleAt(t, s, after(0), 1, with)
	expectSettled(t, settled, true, 2)
	left(t, s, after(0), tokens, 40)
	left(t, s, after(0), shadow, -30) // 30 more than it was charged
}

func extendsWhatIsChargedAfter(t *testing.T, s Store) {
	tokens := chargedAfter(enforce.Tier{Key: key(2, "42"), Limit: limit(1e-6, 10, 0), Meter: "tokens"})
	expectAllowed(t, take(t, s, after(0), reserving(1, 4, tokens)), true)
	with := enforce.Settlement{Extend: true, Costs: []enforce.MeterCost{tokensCost(15)}}
	if got := settleAt(t, s, after(0), 1, with); got.Denied {
		t.Errorf("extended as %+v while 6 are left", got)
	}
	left(t, s, after(0), tokens, -5)
	with.Costs = []enforce.MeterCost{tokensCost(16)}
	if got := settleAt(t, s, after(0), 1, with); !got.Denied {
		t.Errorf("extended as %+v while nothing is left", got)
	}
	settled := settleAt(t, s, after(0), 1, enforce.Settlement{Costs: []enforce.MeterCost{tokensCost(12)}})
	if len(settled.Costs) != 1 || settled.Costs[0] != tokensCost(12) {
		t.Errorf("settled as %+v, want 12 tokens", settled)
	}
	left(t, s, after(0), tokens, -2)
}

func keepsDebtInBounds(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: limit(10, 100, 0)}
	expectAllowed(t, take(t, s, after(0), reserving(1, 100, tier)), true)
	expectSettled(t, settleAt(t, s, after(0), 1, cost(180)), true, 180)
	if _, now, err := s.Credit(after(0), tier.Key, tier.Limit, 10*enforce.Token); err != nil ||
		now.Level.Micros != -70*enforce.Token {
		t.Errorf("a credit of 10 in debt of 80: %+v, %v", now.Level, err)
	}
	if _, now, err := s.Credit(after(0), tier.Key, tier.Limit, -10*enforce.Token); err != nil ||
		now.Level.Micros != -70*enforce.Token {
		t.Errorf("a credit of -10 in debt of 70: %+v, %v", now.Level, err)
	}
	tier.Limit = limit(1, 5, time.Second)
	left(t, s, after(time.Second), tier, -5)
}

func endsAfterADay(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: slots(1, 24*time.Hour)}
	one := reserving(1, 1, tier)
	one.Reserve.Life = 24 * time.Hour
	expectAllowed(t, take(t, s, after(0), one), true)
	expectSettled(t, settleAt(t, s, after(23*time.Hour), 1, enforce.Settlement{Extend: true}), true, 1)
	left(t, s, after(24*time.Hour-time.Second), tier, 0)
	left(t, s, after(24*time.Hour), tier, 1)
}

func refundsAnEditedQuota(t *testing.T, s Store) {
	quota := rules.Rule{
		Algorithm: rules.FixedWindow, Action: rules.ActionLimit, Burst: 100,
		Window:       rules.Window{Calendar: rules.CalendarMonth},
		InForceSince: time.UnixMicro(epoch),
	}
	tier := enforce.Tier{Key: key(1, "42"), Limit: quota.Limit()}
	expectAllowed(t, take(t, s, after(0), reserving(1, 50, tier)), true)
	quota.Burst, quota.InForceSince = 200, time.UnixMicro(after(time.Second))
	tier.Limit = quota.Limit()
	expectAllowed(t, take(t, s, after(2*time.Second), checkOf(1, tier)), true)
	expectSettled(t, settleAt(t, s, after(3*time.Second), 1, cost(0)), true, 0)
	left(t, s, after(3*time.Second), tier, 199)
	const month = 31 * 24 * time.Hour
	expectAllowed(t, take(t, s, after(month), reserving(2, 50, tier)), true)
	expectSettled(t, settleAt(t, s, after(2*month), 2, cost(0)), false, 0) // forgotten long since
}

func needsHolders(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: slots(1, time.Hour)}
	expectAllowed(t, take(t, s, after(0), checkOf(1, tier), reserving(1, 1, tier), checkOf(1, tier)), true, true, false)
	left(t, s, after(0), tier, 0)
}

func deniedReservesNothing(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: limit(1, 1, 0)}
	expectAllowed(t, take(t, s, after(0), reserving(1, 2, tier)), false)
	expectSettled(t, settleAt(t, s, after(0), 1, cost(0)), false, 0)
	expectKeys(t, s, 0)
}

func guardsRefunds(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: limit(1e-6, 10, 0)}
	expectAllowed(t, take(t, s, after(0), reserving(1, 4, tier), reserving(2, 4, tier)), true, true)
	theirs := cost(0)
	theirs.Key = "another key"
	if _, err := s.SettleReservation(after(0), 1, enforce.ReservationID{1, 1, 2}, theirs); !errors.Is(err,
		enforce.ErrRefundForbidden) {
		t.Errorf("another key's refund: %v", err)
	}
	left(t, s, after(0), tier, 2)
	theirs.MayRefund = true
	expectSettled(t, settleAt(t, s, after(0), 1, theirs), true, 0)
	more := cost(5)
	more.Key = "another key"
	expectSettled(t, settleAt(t, s, after(0), 2, more), true, 5)
	left(t, s, after(0), tier, 5)
}

func endsByItself(t *testing.T, s Store) {
	tier := enforce.Tier{
		Key:   key(1, "42"),
		Limit: enforce.Limit{Kind: rules.KindFixedWindow, Burst: 10, Interval: 3600e6, Since: epoch},
	}
	one := reserving(1, 4, tier)
	one.Reserve.Life = time.Millisecond
	expectAllowed(t, take(t, s, after(0), one), true)
	expectSettled(t, settleAt(t, s, after(2*time.Millisecond), 1, cost(0)), false, 0)
	left(t, s, after(2*time.Millisecond), tier, 6) // the estimate stays
}

func settlesByTheLimitInForce(t *testing.T, s Store) {
	long := strings.Repeat("user ", 20)
	for i, subject := range []string{"42", long} {
		id := byte(i + 1)
		former, raised := enforce.Tier{Key: key(1, subject), Limit: limit(1, 10, 0)}, limit(1, 1000, time.Second)
		expectAllowed(t, take(t, s, after(0), reserving(id, 0, former)), true)
		with := cost(5)
		with.Limit = func(rule rules.RuleID, of string, isHashed bool) (enforce.Limit, bool) {
			if rule != 1 || isHashed != (subject == long) || !isHashed && of != subject {
				t.Errorf("asked for the limit of rule %d for %q, hashed %t", rule, of, isHashed)
			}
			return raised, true
		}
		expectSettled(t, settleAt(t, s, after(2*time.Second), id, with), true, 5)
		left(t, s, after(2*time.Second), enforce.Tier{Key: former.Key, Limit: raised}, 995)
	}
	// Callers that know an older limit, or none, settle by the reservation's.
	tier := enforce.Tier{Key: key(2, "42"), Limit: limit(1, 100, 2*time.Second)}
	expectAllowed(t, take(t, s, after(3*time.Second), reserving(8, 0, tier), reserving(9, 0, tier)), true, true)
	with := cost(5)
	with.Limit = func(rules.RuleID, string, bool) (enforce.Limit, bool) { return limit(1, 10, time.Second), true }
	expectSettled(t, settleAt(t, s, after(3*time.Second), 8, with), true, 5)
	with.Limit = func(rules.RuleID, string, bool) (enforce.Limit, bool) { return enforce.Limit{}, false }
	expectSettled(t, settleAt(t, s, after(3*time.Second), 9, with), true, 5)
	left(t, s, after(3*time.Second), tier, 90)
}

func leavesNewerBucketsAlone(t *testing.T, s Store) {
	known, unknown := enforce.Tier{Key: key(1, "42"), Limit: limit(1e-6, 10, 0)},
		enforce.Tier{Key: key(2, "42"), Limit: limit(1e-6, 10, 0)}
	expectAllowed(t, take(t, s, after(0), reserving(1, 4, known, unknown)), true)
	s.Newer(unknown.Key)
	before := s.State()
	for _, with := range []enforce.Settlement{cost(1), {Key: reserver}, {Key: reserver, Extend: true}} {
		with.Key = reserver
		if settled, err := s.SettleReservation(after(0), 1, enforce.ReservationID{1, 1, 2}, with); err == nil {
			t.Errorf("settled as %+v", settled)
		}
	}
	if now := s.State(); !maps.Equal(now, before) {
		t.Errorf("refused settlements have changed\n%s\nto\n%s", wholly(before), wholly(now))
	}
	left(t, s, after(0), known, 6)
}

func settlesWithoutBuckets(t *testing.T, s Store) {
	slots := enforce.Limit{Kind: rules.KindConcurrency, Burst: 1, Interval: enforce.MaxReserveFor.Microseconds()}
	untouched := enforce.Tier{Key: enforce.Key{Tenant: 1}, Limit: slots, Shadow: true}
	var checks []enforce.BucketCheck
	for id := range byte(2) { // both get a reservation, as neither takes the only slot
		check := reserving(id+1, 0, untouched)
		check.Reserve.User, check.Reserve.Costs = "42", []enforce.MeterCost{{Cost: enforce.Token}, tokensCost(5)}
		checks = append(checks, check)
	}
	expectAllowed(t, take(t, s, after(0), checks...), true, true)
	extends := enforce.Settlement{Extend: true, Costs: []enforce.MeterCost{tokensCost(8)}}
	if got := settleAt(t, s, after(0), 1, extends); !got.Found || got.Denied ||
		!slices.Equal(got.Changes, []enforce.MeterCost{tokensCost(3)}) {
		t.Errorf("extended as %+v, want 3 tokens more", got)
	}
	with := enforce.Settlement{HasCost: true, Cost: enforce.Token, Costs: []enforce.MeterCost{tokensCost(7)}}
	got := settleAt(t, s, after(time.Second), 1, with)
	if want := []enforce.MeterCost{tokensCost(-1)}; !got.Found || got.User != "42" ||
		!slices.Equal(got.Changes, want) || got.Charged != enforce.Token {
		t.Errorf("settled as %+v, want one request and one token less", got)
	}
	if again := settleAt(t, s, after(time.Second), 1, with); again.Found {
		t.Errorf("settled again as %+v", again)
	}
	if got := settleAt(t, s, after(time.Second), 2, enforce.Settlement{Cancel: true}); !got.Found {
		t.Error("the other one is not open")
	}
	for key := range s.State() {
		if !strings.Contains(key, "reservations") { // their number, which a store may keep
			t.Errorf("the store keeps %q", key)
		}
	}
}

func returnsChangedBuckets(t *testing.T, s Store) {
	quota := enforce.Limit{Kind: rules.KindFixedWindow, Burst: 100, Interval: 3600e6, Since: epoch}
	window := enforce.Tier{Key: key(1, "42"), Limit: quota}
	long := enforce.Tier{Key: key(2, strings.Repeat("4", 65)), Limit: quota}
	bucket := enforce.Tier{Key: key(3, "42"), Limit: limit(1e-6, 100, 0)}
	list := enforce.Tier{Key: key(4, "42"), Limit: enforce.Limit{
		Kind: rules.KindSlidingWindowLog, Burst: 100, Interval: 3600e6, Since: epoch,
	}}
	tiers := []enforce.Tier{window, long, bucket, list}
	expectAllowed(t, take(t, s, after(0), reserving(1, 10, tiers...), reserving(2, 10, tiers...)), true, true)
	after1s := func(tier enforce.Tier, left, taken float64) enforce.SettledBucket {
		state := enforce.NewState(tier.Limit, after(time.Second))
		state.Level.Micros = enforce.Tokens(left * 1e6)
		return enforce.SettledBucket{Key: tier.Key.Bounded(), State: state, Taken: enforce.Tokens(taken * 1e6)}
	}
	expect := func(settled enforce.Settled, left, taken float64) {
		t.Helper()
		want := []enforce.SettledBucket{
			after1s(window, left, taken), after1s(long, left, taken), after1s(bucket, left+1e-6, taken),
		}
		if !slices.Equal(settled.Buckets, want) {
			t.Errorf("the settlement returns\n%+v, want\n%+v", settled.Buckets, want)
		}
	}
	expect(settleAt(t, s, after(time.Second), 1, cost(70.5)), 19.5, 60.5)
	expect(settleAt(t, s, after(time.Second), 2, cost(3)), 26.5, -7)
}

// Only the second reservation has a rule that can still deny.
func forgivesByNow(t *testing.T, s Store) {
	denies := enforce.Tier{Key: key(1, "42"), Limit: limit(1e-6, 10, 0)}
	forgives := enforce.Tier{Key: key(2, "42"), Limit: limit(1e-6, 10, 0)}
	expectAllowed(t, take(t, s, after(0), reserving(1, 4, forgives), reserving(2, 4, forgives, denies)), true, true)
	with := cost(12)
	with.Extend, with.Denies = true, func(rule rules.RuleID) bool { return rule == 1 }
	if got := settleAt(t, s, after(0), 1, with); got.Denied {
		t.Error("the rule that denies no more has denied an extension")
	}
	if got := settleAt(t, s, after(0), 2, with); !got.Denied {
		t.Error("the other rule has not denied an extension")
	}
	left(t, s, after(0), forgives, 2)
	left(t, s, after(0), denies, 6)
}

func runReservationHistories(t *testing.T, s Store) {
	var tenant atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, rules.TenantID(3_000_000+tenant.Add(1)), drawAnyLimit)
		var open []enforce.OpenReservation
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			h.advance(t, s)
			if len(open) > 0 && rapid.Bool().Draw(t, "settle") {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				if !h.settleReservation(t, s, &open[i]) {
					open = append(open[:i], open[i+1:]...)
				}
				continue
			}
			one := h.drawAsk(t)
			if len(one.Tiers) == 0 {
				continue
			}
			h.holders++
			id := enforce.ReservationID{byte(h.holders), byte(h.holders >> 8), 7}
			one.Look, one.Record, one.Holder = false, false, id.Holder()
			one.Reserve = &enforce.Reservation{ID: id, Life: time.Hour, Key: reserver}
			checks := []enforce.BucketCheck{one}
			want := clone(checks)
			h.reference.take(h.now, want)
			if err := s.Take(h.now, checks); err != nil {
				t.Fatalf("take: %v", err)
			}
			if err := equalAnswers(checks, want); err != nil {
				t.Fatalf("%v after the start: %v", h.elapsed(), err)
			}
			if want[0].Allowed {
				open = append(open, want[0].Open(h.now))
			}
		}
	})
}

func (h *history) settleReservation(t *rapid.T, s Store, one *enforce.OpenReservation) (isOpen bool) {
	// Stores may forget charges that ended by their clock.
	for i := range one.Charges {
		if h.mayBeGone(one.Charges[i].Key) || h.unsure[one.Charges[i].Key] {
			return false
		}
	}
	if h.latest >= one.Ends || h.now < one.CheckedAt {
		return false
	}
	with := enforce.Settlement{
		Key: reserver, HasCost: true,
		Cost:   max(0, one.Cost+enforce.Tokens(rapid.Int64Range(-3_000_000, 3_000_000).Draw(t, "difference"))),
		Extend: rapid.IntRange(0, 2).Draw(t, "extend") == 0,
	}
	if rapid.Bool().Draw(t, "settles by meter") {
		with.HasCost = rapid.Bool().Draw(t, "settles requests")
		with.Costs = []enforce.MeterCost{{Meter: "tokens", Cost: enforce.Tokens(
			rapid.Int64Range(0, 6_000_000).Draw(t, "tokens"))}}
	}
	want := one.Settle(with, h.now, func(i int) *enforce.State {
		if state, used := h.reference[one.Charges[i].Key]; used {
			return &state
		}
		return nil
	}, func(i int, state enforce.State) { h.reference[one.Charges[i].Key] = state })
	var tiers []enforce.Tier
	for i := range one.Charges {
		tier := enforce.Tier{Key: one.Charges[i].Key, Limit: one.Charges[i].Limit}
		if state, used := h.reference[tier.Key]; used {
			tier.Limit = state.Limit
		}
		tiers = append(tiers, tier)
	}
	got, err := s.SettleReservation(h.now, h.tenant, one.ID, with)
	if err != nil {
		t.Fatalf("settle: %v", err)
	}
	if got.Found != want.Found || got.Denied != want.Denied || got.Charged != want.Charged ||
		!slices.Equal(got.Costs, want.Costs) || !slices.Equal(got.Buckets, want.Buckets) {
		t.Fatalf("%v after the start: settled as %+v, want %+v", h.elapsed(), got, want)
	}
	if len(tiers) == 0 {
		return with.Extend
	}
	looks := []enforce.BucketCheck{{Tiers: tiers}}
	wantLooks := clone(looks)
	h.reference.take(h.now, wantLooks)
	if err := s.Take(h.now, looks); err != nil {
		t.Fatalf("look: %v", err)
	}
	if err := equalAnswers(looks, wantLooks); err != nil {
		t.Fatalf("%v after the start, after a settlement: %v", h.elapsed(), err)
	}
	return with.Extend
}
