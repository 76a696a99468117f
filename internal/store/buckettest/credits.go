package buckettest

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// RunCredits is the suite of enforce.Creditor; each parallel test calls open once.
func RunCredits(t *testing.T, open func(t *testing.T) Store) {
	promises := map[string]func(*testing.T, Store){
		"a credit adds to what the bucket has earned":                               creditAddsToWhatWasEarned,
		"a credit never goes above the burst":                                       creditStopsAtTheBurst,
		"a debit never goes below nothing":                                          debitStopsAtNothing,
		"a bucket that nobody used can be debited":                                  unusedCanBeDebited,
		"filling or crediting a bucket that nobody used is no work":                 unusedIsFull,
		"a reset bucket is full again":                                              resetIsFull,
		"a reset bucket stays full when the clock steps back":                       resetOutlivesTheClock,
		"the least and the most there is are credited exactly":                      creditExtremes,
		"a credit settles an edited bucket":                                         creditSettlesEdited,
		"a bucket reset by a newer limit answers callers by it":                     resetKeepsTheNewerLimit,
		"a credit with an older limit is judged by the bucket's":                    staleCreditor,
		"a credit is one bucket's alone":                                            creditIsOneBuckets,
		"a credit that is repeated is given once":                                   repeatedIsGivenOnce,
		"random histories with credits agree with the reference bit for bit":        runCreditHistories,
		"random histories with credits stay within a millionth of exact arithmetic": runExactCredits,
	}
	runEach(t, open, promises)
}

func credit(t *testing.T, s Store, now int64, tier enforce.Tier, tokens, wantBefore, wantAfter float64) {
	t.Helper()
	creditMicros(t, s, now, tier, enforce.Tokens(tokens*float64(enforce.Token)), wantBefore, wantAfter)
}

func creditMicros(t *testing.T, s Store, now int64, tier enforce.Tier, amount enforce.Tokens, wantBefore,
	wantAfter float64,
) {
	t.Helper()
	before, after, err := s.Credit(now, tier.Key, tier.Limit, amount)
	if err != nil {
		t.Fatalf("credit %v: %v", amount, err)
	}
	expectLevel(t, before, wantBefore)
	expectLevel(t, after, wantAfter)
	looked := take(t, s, now, checkOf(0, tier))[0]
	expectTokens(t, looked, wantAfter)
	if got := looked.Tiers[0].Bucket.Limit; before.Limit != got || after.Limit != got {
		t.Errorf("limits in force %+v and %+v, and a look at the bucket says %+v", before.Limit, after.Limit, got)
	}
}

func repeatedIsGivenOnce(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
	take(t, s, after(0), checkOf(10, tier))
	once := func(at time.Duration, id string, tier enforce.Tier, amount enforce.Tokens, wantRepeated bool,
		want ...float64,
	) {
		t.Helper()
		before, now, isRepeated, err := s.CreditOnce(after(at), id, tier.Key, tier.Limit, amount)
		if err != nil || isRepeated != wantRepeated {
			t.Errorf("repeated: %t, %v", isRepeated, err)
		}
		for i, bucket := range []enforce.Bucket{before, now}[:len(want)] {
			expectLevel(t, bucket, want[i])
		}
	}
	once(0, "a", tier, 3*enforce.Token, false, 0, 3)
	once(100*time.Millisecond, "a", tier, 3*enforce.Token, true, 0, 3)
	once(100*time.Millisecond, "b", tier, 3*enforce.Token, false, 4, 7)
	neighbour := tier
	neighbour.Key.Tenant++
	once(100*time.Millisecond, "a", neighbour, -enforce.Token, false, 10, 9)
	for name, other := range map[string]enforce.Tier{
		"amount": tier,
		"bucket": {Key: key(1, "7"), Limit: tenPerSecond},
	} {
		if _, _, _, err := s.CreditOnce(after(0), "a", other.Key, other.Limit, 2*enforce.Token); !errors.Is(err,
			enforce.ErrCreditIDReused) {
			t.Errorf("another %s by the same id: %v", name, err)
		}
	}
	credit(t, s, after(100*time.Millisecond), tier, 0, 7, 7)
}

func creditAddsToWhatWasEarned(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
	take(t, s, after(0), checkOf(10, tier))
	credit(t, s, after(200*time.Millisecond), tier, 3, 2, 5)
	credit(t, s, after(300*time.Millisecond), tier, -4, 6, 2)
	credit(t, s, after(300*time.Millisecond), tier, 0, 2, 2)
	expectAllowed(t, take(t, s, after(300*time.Millisecond), checkOf(2.000001, tier), checkOf(2, tier)), false, true)
}

func creditStopsAtTheBurst(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
	take(t, s, after(0), checkOf(2, tier))
	credit(t, s, after(0), tier, 100, 8, 10)
	expectAllowed(t, take(t, s, after(0), checkOf(10, tier), checkOf(0.000001, tier)), true, false)
}

func debitStopsAtNothing(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
	take(t, s, after(0), checkOf(2, tier))
	credit(t, s, after(0), tier, -100, 8, 0)
	expectTokens(t, take(t, s, after(time.Second/10), checkOf(0, tier))[0], 1) // there is no debt
}

func unusedCanBeDebited(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
	credit(t, s, after(0), tier, -4, 10, 6)
	expectKeys(t, s, 1)
}

func unusedIsFull(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
	credit(t, s, after(0), tier, 4, 10, 10)
	creditMicros(t, s, after(0), tier, enforce.Fill, 10, 10)
	expectKeys(t, s, 0)
}

func resetIsFull(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: limit(rules.MinRate, 30, 0)}
	take(t, s, after(0), checkOf(30, tier))
	creditMicros(t, s, after(0), tier, enforce.Fill, 0, 30)
	expectAllowed(t, take(t, s, after(0), checkOf(30, tier), checkOf(0.000001, tier)), true, false)
}

func resetOutlivesTheClock(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
	take(t, s, after(0), checkOf(10, tier))
	creditMicros(t, s, after(time.Second), tier, enforce.Fill, 10, 10) // it has just earned all of it
	expectTokens(t, take(t, s, after(0), checkOf(0, tier))[0], 10)
}

func creditExtremes(t *testing.T, s Store) {
	for i, rate := range []float64{rules.MinRate, rules.MaxRate} {
		tier := enforce.Tier{Key: key(rules.RuleID(i), "42"), Limit: limit(rate, rules.MaxBurst, 0)}
		creditMicros(t, s, after(0), tier, -1, rules.MaxBurst, rules.MaxBurst-0.000001)
		creditMicros(t, s, after(0), tier, math.MinInt64, rules.MaxBurst-0.000001, 0)
		creditMicros(t, s, after(0), tier, 1, 0, 0.000001)
		creditMicros(t, s, after(0), tier, rules.MaxBurst*enforce.Token-2, 0.000001, rules.MaxBurst-0.000001)
		creditMicros(t, s, after(0), tier, enforce.Fill, rules.MaxBurst-0.000001, rules.MaxBurst)
	}
}

func creditSettlesEdited(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
	take(t, s, after(0), checkOf(10, tier))
	tier.Limit = limit(1, 4, 100*time.Millisecond)
	credit(t, s, after(1100*time.Millisecond), tier, 1, 2, 3) // one earned at ten per second, one at one
	credit(t, s, after(1100*time.Millisecond), tier, 9, 3, 4)
}

func resetKeepsTheNewerLimit(t *testing.T, s Store) {
	older := enforce.Tier{Key: key(1, "42"), Limit: limit(10, 100, 0)}
	newer := enforce.Tier{Key: key(1, "42"), Limit: limit(10, 5, time.Second)}
	take(t, s, after(0), checkOf(1, older))
	creditMicros(t, s, after(time.Second), newer, enforce.Fill, 5, 5)
	answers := take(t, s, after(time.Second), checkOf(6, older), checkOf(5, older))
	expectAllowed(t, answers, false, true)
}

func staleCreditor(t *testing.T, s Store) {
	older := enforce.Tier{Key: key(1, "42"), Limit: limit(1, 100, 0)}
	newer := enforce.Tier{Key: key(1, "42"), Limit: limit(10, 5, time.Second)}
	take(t, s, after(time.Second), checkOf(5, newer))
	credit(t, s, after(1200*time.Millisecond), older, 1, 2, 3)
	credit(t, s, after(1200*time.Millisecond), older, 50, 3, 5)
}

func creditIsOneBuckets(t *testing.T, s Store) {
	mine := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
	others := []enforce.Tier{
		{Key: enforce.Key{Tenant: 2, Rule: 1, Subject: "42"}, Limit: tenPerSecond},
		{Key: key(2, "42"), Limit: tenPerSecond},
		{Key: key(1, ""), Limit: tenPerSecond},
	}
	for _, tier := range append(others, mine) {
		take(t, s, after(0), checkOf(10, tier))
	}
	credit(t, s, after(0), mine, 7, 0, 7)
	for _, tier := range others {
		expectTokens(t, take(t, s, after(0), checkOf(0, tier))[0], 0)
	}
}

func drawAmount(t *rapid.T, limit enforce.Limit, level enforce.Level) enforce.Tokens {
	burst := enforce.Tokens(limit.Burst) * enforce.Token
	missing := burst - level.Micros
	return rapid.OneOf(
		rapid.SampledFrom([]enforce.Tokens{
			0, 1, -1, enforce.Token, -enforce.Token, enforce.Fill, -enforce.Fill, burst, -burst,
			missing - 1, missing, missing + 1, -level.Micros - 1, -level.Micros, 1 - level.Micros,
		}),
		rapid.Map(rapid.Int64Range(-int64(burst), int64(burst)),
			func(micros int64) enforce.Tokens { return enforce.Tokens(micros) }),
	).Draw(t, "amount")
}

func runCreditHistories(t *testing.T, s Store) {
	var tenant atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, rules.TenantID(tenant.Add(1)), drawAnyLimit)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			h.advance(t, s)
			one := h.drawAsk(t)
			if len(one.Tiers) == 0 || rapid.Bool().Draw(t, "take") {
				checks := append([]enforce.BucketCheck(nil), one)
				want := clone(checks)
				h.reference.take(h.now, want)
				if err := s.Take(h.now, checks); err != nil {
					t.Fatalf("take: %v", err)
				}
				if err := equalAnswers(checks, want); err != nil {
					t.Fatalf("%v after the start: %v", h.elapsed(), err)
				}
				continue
			}
			tier := one.Tiers[0]
			h.avoidForgotten(&tier) // a credit that leaves it full is written only if it is not forgotten
			amount := drawAmount(t, tier.Limit, h.reference[tier.Key].Level)
			wantBefore, wantAfter := h.reference.credit(h.now, tier.Key, tier.Limit, amount)
			before, after, err := s.Credit(h.now, tier.Key, tier.Limit, amount)
			if err != nil {
				t.Fatalf("credit: %v", err)
			}
			if !sameBucket(before, wantBefore) || !sameBucket(after, wantAfter) {
				t.Fatalf("%v after the start, credit of %v:\n got %+v, %+v\nwant %+v, %+v",
					h.elapsed(), amount, before, after, wantBefore, wantAfter)
			}
		}
	})
}

func sameBucket(a, b enforce.Bucket) bool {
	a.Stamp, b.Stamp = 0, 0
	return a == b
}

func runExactCredits(t *testing.T, s Store) {
	var subject atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		now := epoch
		tier := enforce.Tier{
			Key:   enforce.Key{Tenant: 2, Rule: 1, Subject: fmt.Sprint(subject.Add(1))},
			Limit: drawLimit(t, epoch),
		}
		want, _ := (*exact)(nil).advanced(tier.Limit, now)
		if _, _, err := s.Credit(now, tier.Key, tier.Limit, -1); err != nil {
			t.Fatal(err)
		}
		want.credit(-1)
		for range rapid.IntRange(1, 60).Draw(t, "credits") {
			now = max(0, now+drawStep(t, tier.Limit))
			if rapid.IntRange(0, 6).Draw(t, "edit") == 0 {
				tier.Limit = drawLimit(t, max(tier.Limit.Since+1, now-rapid.Int64Range(0, 2_000_000).Draw(t, "late")))
			}
			amount := drawAmount(t, tier.Limit, tier.Bucket.Level)
			before, after, err := s.Credit(now, tier.Key, tier.Limit, amount)
			if err != nil {
				t.Fatal(err)
			}
			want, _ = want.advanced(tier.Limit, now)
			if off := want.off(before.Level); off > 1e-6 {
				t.Fatalf("level %+v is %g tokens off before a credit of %v", before.Level, off, amount)
			}
			want.credit(amount)
			if off := want.off(after.Level); off > 1e-6 {
				t.Fatalf("level %+v is %g tokens off after a credit of %v", after.Level, off, amount)
			}
			tier.Bucket = after
		}
	})
}
