package buckettest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func runContract(t *testing.T, open func(t *testing.T) Store) {
	promises := map[string]func(*testing.T, Store){
		"a check takes from all its buckets or from none":             takesAllOrNothing,
		"a shadow tier never decides and is taken from when it can":   shadowTiers,
		"a check without tiers is allowed":                            noTiers,
		"no checks are no work":                                       noChecks,
		"a cost of 0 looks without taking and makes no key":           looksWithoutTaking,
		"a cost above the burst is denied and makes no key":           aboveBurst,
		"a fraction of a token is a cost":                             fractionalCost,
		"a denied check writes nothing":                               deniedWritesNothing,
		"a denied check settles an edited bucket":                     deniedSettlesEdited,
		"a denied check settles a bucket whose clock went back":       deniedSettlesBackwards,
		"checks on one bucket see each other in order":                inOrder,
		"a bucket with two limits in one batch is used in order":      twoLimitsInOneBatch,
		"a caller with an older limit is answered by the bucket's":    staleCaller,
		"of two limits of one moment the bucket's holds":              sameMoment,
		"a limit in force since later than now holds from now":        sinceAhead,
		"a bucket that nobody used has the caller's limit":            unusedHasCallersLimit,
		"a thousand checks in one batch are answered in order":        largeBatch,
		"one check may have more tiers than a script has keys":        manyTiers,
		"many tenants in one batch keep their own buckets and order":  manyTenants,
		"the largest limit and the smallest hold their exact bursts":  extremes,
		"a clock far behind and far ahead locks nobody out":           clockJumps,
		"a tier that is charged after holds while something is left":  chargesAfter,
		"charging after is all or nothing, also in shadow":            chargesAfterOrNothing,
		"a look at a tier that is charged after is denied when empty": looksAfter,
		"a record charges every tier":                                 records,
		"a record takes no slots, and a look at one takes nothing":    recordsTakeNoSlots,
		"a record with an id is charged once in two minutes":          recordsOnce,
		"an id of a record is one tenant's, and one of a Record":      recordIDsAreOneTenants,
		"a user's buckets of limits that came with checks are found":  findsOwnBuckets,
	}
	runEach(t, open, promises)
}

var tenPerSecond = limit(10, 10, 0)

func takesAllOrNothing(t *testing.T, s Store) {
	user := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
	global := enforce.Tier{Key: key(2, ""), Limit: limit(1, 3, 0)}
	answers := take(t, s, after(0), checkOf(2, user, global), checkOf(2, user, global), checkOf(0, user, global))
	expectAllowed(t, answers, true, false, true)
	denied := answers[1]
	if !denied.Tiers[0].Holds || denied.Tiers[1].Holds {
		t.Errorf("the denied check says holds %t, %t; want true, false", denied.Tiers[0].Holds, denied.Tiers[1].Holds)
	}
	expectTokens(t, answers[2], 8, 1)
}

func shadowTiers(t *testing.T, s Store) {
	enforced := enforce.Tier{Key: key(1, "42"), Limit: limit(1, 2, 0)}
	shadow := enforce.Tier{Key: key(2, "42"), Limit: limit(1, 1, 0), Shadow: true}
	answers := take(t, s, after(0),
		checkOf(1, enforced, shadow), // both hold it
		checkOf(1, enforced, shadow), // the shadow lacks it, and does not decide
		checkOf(1, enforced, shadow)) // both lack it
	expectAllowed(t, answers, true, true, false)
	expectTokens(t, answers[0], 1, 0)
	expectTokens(t, answers[1], 0, 0)
	if answers[1].Tiers[1].Holds {
		t.Error("the shadow tier without tokens says that it holds the cost")
	}

	answers = take(t, s, after(time.Second), checkOf(2, enforced, shadow), checkOf(0, enforced, shadow))
	expectAllowed(t, answers, false, true)
	expectTokens(t, answers[1], 1, 1) // a denied check took nothing from the shadow either
}

func noTiers(t *testing.T, s Store) {
	expectAllowed(t, take(t, s, after(0), checkOf(1), checkOf(1, enforce.Tier{Key: key(1, ""), Limit: tenPerSecond}),
		checkOf(0)), true, true, true)
}

func noChecks(t *testing.T, s Store) {
	take(t, s, after(0))
	expectKeys(t, s, 0)
}

func looksWithoutTaking(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
	answers := take(t, s, after(0), checkOf(0, tier), checkOf(0, tier))
	expectAllowed(t, answers, true, true)
	expectTokens(t, answers[1], 10)
	expectKeys(t, s, 0)

	take(t, s, after(0), checkOf(10, tier))
	before := s.State()
	answers = take(t, s, after(500*time.Millisecond), checkOf(0, tier))
	expectAllowed(t, answers, true)
	expectTokens(t, answers[0], 5)
	expectUnchanged(t, s, before)
}

func aboveBurst(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
	answers := take(t, s, after(0), checkOf(10.000001, tier))
	expectAllowed(t, answers, false)
	expectTokens(t, answers[0], 10)
	expectKeys(t, s, 0)
}

func fractionalCost(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: limit(1, 1, 0)}
	answers := take(t, s, after(0), checkOf(0.5, tier), checkOf(0.499999, tier), checkOf(0.000001, tier),
		checkOf(0.000001, tier))
	expectAllowed(t, answers, true, true, true, false)
	expectTokens(t, answers[3], 0)
}

func deniedWritesNothing(t *testing.T, s Store) {
	user := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
	global := enforce.Tier{Key: key(2, ""), Limit: limit(0.001, 1, 0)}
	unused := enforce.Tier{Key: key(3, "new"), Limit: tenPerSecond}
	take(t, s, after(0), checkOf(1, user, global))
	before := s.State()
	for i := range 5 {
		now := after(time.Duration(i) * 100 * time.Millisecond)
		expectAllowed(t, take(t, s, now, checkOf(1, user, global, unused)), false)
	}
	expectUnchanged(t, s, before)
}

func deniedSettlesEdited(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
	take(t, s, after(0), checkOf(10, tier))
	before := s.State()
	tier.Limit = limit(1, 5, time.Second)
	expectAllowed(t, take(t, s, after(time.Second), checkOf(6, tier)), false)
	if maps.Equal(before, s.State()) {
		t.Error("nothing was written")
	}
	tier.Limit = tenPerSecond // a process that has not read the edit
	answers := take(t, s, after(3*time.Second), checkOf(0, tier))
	if got := answers[0].Tiers[0].Bucket.Limit; got != limit(1, 5, time.Second) {
		t.Errorf("limit in force %+v, want the edited one", got)
	}
}

func deniedSettlesBackwards(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: limit(1, 1, -2*time.Hour)}
	take(t, s, after(0), checkOf(1, tier))
	back := after(-time.Hour)
	expectAllowed(t, take(t, s, back, checkOf(1, tier)), false)
	expectAllowed(t, take(t, s, back+999_999, checkOf(1, tier)), false)
	expectAllowed(t, take(t, s, back+1_000_000, checkOf(1, tier)), true)
}

func inOrder(t *testing.T, s Store) {
	user := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
	other := enforce.Tier{Key: key(1, "43"), Limit: tenPerSecond}
	answers := take(t, s, after(0), checkOf(4, user), checkOf(7, user), checkOf(3, user, other), checkOf(4, other),
		checkOf(4, user), checkOf(3, user))
	expectAllowed(t, answers, true, false, true, true, false, true)
	for i, left := range []float64{6, 6, 3, 3, 3, 0} {
		expectTokens(t, enforce.BucketCheck{Tiers: answers[i].Tiers[:1]}, left)
	}
}

func twoLimitsInOneBatch(t *testing.T, s Store) {
	older := enforce.Tier{Key: key(1, "42"), Limit: limit(1, 10, 0)}
	newer := enforce.Tier{Key: key(1, "42"), Limit: limit(100, 10, time.Second)}
	r := reference{}
	batches := [][]enforce.BucketCheck{
		{checkOf(10, older)},
		{checkOf(5, older), checkOf(5, newer), checkOf(5, older), checkOf(1, newer)},
		{checkOf(9, older), checkOf(9, newer)},
	}
	for i, checks := range batches {
		want := clone(checks)
		now := after(time.Duration(i) * 1050 * time.Millisecond)
		r.take(now, want)
		if err := equalAnswers(take(t, s, now, checks...), want); err != nil {
			t.Fatal(err)
		}
	}
}

func staleCaller(t *testing.T, s Store) {
	older := enforce.Tier{Key: key(1, "42"), Limit: limit(1, 100, 0)}
	newer := enforce.Tier{Key: key(1, "42"), Limit: limit(10, 5, time.Second)}
	take(t, s, after(time.Second), checkOf(5, newer))
	answers := take(t, s, after(1200*time.Millisecond), checkOf(6, older), checkOf(2, older))
	expectAllowed(t, answers, false, true)
	if got := answers[0].Tiers[0].Bucket.Limit; got != newer.Limit {
		t.Errorf("limit in force %+v, want the newer", got)
	}
	if _, ok := answers[0].Tiers[0].Wait(&answers[0]); ok {
		t.Error("a cost above the newer burst has a wait")
	}
	expectTokens(t, answers[1], 0)
}

func sameMoment(t *testing.T, s Store) {
	first, second := limit(1, 10, 0), limit(1000, 100, 0)
	take(t, s, after(0), checkOf(10, enforce.Tier{Key: key(1, "42"), Limit: first}))
	answers := take(t, s, after(time.Second), checkOf(1, enforce.Tier{Key: key(1, "42"), Limit: second}))
	expectAllowed(t, answers, true)
	expectTokens(t, answers[0], 0)
	if got := answers[0].Tiers[0].Bucket.Limit; got != first {
		t.Errorf("limit in force %+v, want the bucket's", got)
	}
}

func sinceAhead(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: limit(1, 10, 0)}
	take(t, s, after(0), checkOf(10, tier))
	tier.Limit = limit(100, 10, time.Hour) // the database's clock is an hour ahead
	expectTokens(t, take(t, s, after(time.Second), checkOf(0, tier))[0], 1)
	expectTokens(t, take(t, s, after(1010*time.Millisecond), checkOf(0, tier))[0], 2)
}

func unusedHasCallersLimit(t *testing.T, s Store) {
	got := take(t, s, after(0), checkOf(0, enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}))[0].Tiers[0]
	if got.Bucket.Limit != tenPerSecond || !got.Holds {
		t.Errorf("got %+v", got)
	}
}

func largeBatch(t *testing.T, s Store) {
	checks := make([]enforce.BucketCheck, 1000)
	for i := range checks {
		checks[i] = checkOf(1,
			enforce.Tier{Key: key(1, fmt.Sprint(i%400)), Limit: tenPerSecond},
			enforce.Tier{Key: key(2, fmt.Sprint("198.51.100.", i%250)), Limit: tenPerSecond},
			enforce.Tier{Key: key(3, ""), Limit: limit(1, 700, 0)})
	}
	want := clone(checks)
	reference{}.take(after(0), want)
	if err := equalAnswers(take(t, s, after(0), checks...), want); err != nil {
		t.Fatal(err)
	}
}

func manyTiers(t *testing.T, s Store) {
	one := checkOf(1)
	for rule := range rules.RuleID(5000) {
		one.Tiers = append(one.Tiers, enforce.Tier{Key: key(rule, ""), Limit: limit(1, 1+int64(rule), 0)})
	}
	checks := []enforce.BucketCheck{checkOf(1, one.Tiers[1]), one, one}
	want := clone(checks)
	reference{}.take(after(0), want)
	if err := equalAnswers(take(t, s, after(0), clone(checks)...), want); err != nil {
		t.Fatal(err)
	}
}

func manyTenants(t *testing.T, s Store) {
	var checks []enforce.BucketCheck
	for i := range 300 {
		tier := enforce.Tier{Key: key(1, "42"), Limit: tenPerSecond}
		tier.Key.Tenant = rules.TenantID(i % 25)
		checks = append(checks, checkOf(1, tier))
	}
	for i, answer := range take(t, s, after(0), checks...) {
		if want := i/25 < 10; answer.Allowed != want {
			t.Fatalf("check %d of tenant %d: allowed %t, want %t", i/25, i%25, answer.Allowed, want)
		}
	}
	expectKeys(t, s, 25)
}

func extremes(t *testing.T, s Store) {
	largest := enforce.Tier{Key: key(1, "a"), Limit: limit(rules.MaxRate, rules.MaxBurst, 0)}
	slowest := enforce.Tier{Key: key(2, "a"), Limit: limit(rules.MinRate, rules.MaxBurst, 0)}
	answers := take(t, s, after(0), checkOf(rules.MaxBurst, largest, slowest), checkOf(0.000001, largest),
		checkOf(0.000001, slowest))
	expectAllowed(t, answers, true, false, false)
	answers = take(t, s, after(time.Second), checkOf(rules.MaxBurst, largest), checkOf(0.000001, slowest),
		checkOf(0.000001, slowest))
	expectAllowed(t, answers, true, true, false)
}

func clockJumps(t *testing.T, s Store) {
	tier := enforce.Tier{Key: key(1, "42"), Limit: limit(2, 4, 0)}
	const century = 100 * 365 * 24 * time.Hour
	answers := take(t, s, after(0), checkOf(4, tier))
	answers = append(answers, take(t, s, after(century), checkOf(4, tier), checkOf(1, tier))...)
	answers = append(answers, take(t, s, 1_000_000, checkOf(1, tier))...)
	answers = append(answers, take(t, s, 1_500_000, checkOf(1, tier))...)
	expectAllowed(t, answers, true, true, false, false, true)
}

func expectAllowed(t *testing.T, answers []enforce.BucketCheck, want ...bool) {
	t.Helper()
	for i := range want {
		if answers[i].Allowed != want[i] {
			t.Errorf("check %d of cost %v: allowed %t, want %t; tiers %+v",
				i, answers[i].Cost, answers[i].Allowed, want[i], answers[i].Tiers)
		}
	}
}

func expectTokens(t *testing.T, answer enforce.BucketCheck, want ...float64) {
	t.Helper()
	for i := range want {
		expectLevel(t, answer.Tiers[i].Bucket, want[i])
	}
}

func expectLevel(t *testing.T, bucket enforce.Bucket, tokens float64) {
	t.Helper()
	want := enforce.Level{Micros: enforce.Tokens(tokens * float64(enforce.Token))}
	if bucket.Level != want {
		t.Errorf("a bucket holds %+v, want %+v", bucket.Level, want)
	}
}

func expectKeys(t *testing.T, s Store, want int) {
	t.Helper()
	if state := s.State(); len(state) != want {
		t.Errorf("the store holds %d buckets, want %d:\n%s", len(state), want, wholly(state))
	}
}

func expectUnchanged(t *testing.T, s Store, before map[string]string) {
	t.Helper()
	if state := s.State(); !maps.Equal(state, before) {
		t.Errorf("written:\n%s\nbefore:\n%s", wholly(state), wholly(before))
	}
}

type editStore func(now int64, edits []enforce.Edit) error

func (s editStore) ApplyEdits(_ context.Context, edits []enforce.Edit) error {
	return s(after(0), edits)
}

func findsOwnBuckets(t *testing.T, s Store) {
	pattern, err := rules.ParsePattern("user:{user_id}:attr.descriptor:d")
	if err != nil {
		t.Fatal(err)
	}
	rule := rules.Rule{
		ID: 12, TenantID: 1, Pattern: pattern, Mode: rules.ModeEnforce, Action: rules.ActionLimit,
		Algorithm: rules.TokenBucket, RatePerSecond: 1, Burst: 10, Active: true,
	}
	tenant := snapshot.New(snapshot.Rows{
		Tenants: []rules.Tenant{{ID: 1, Slug: "acme"}}, Rules: []rules.Rule{rule},
	}).Tenant(1)
	window := func(burst int64, length time.Duration) enforce.Limit {
		return enforce.Limit{Kind: rules.KindFixedWindow, Burst: burst, Interval: length.Microseconds()}
	}
	tierOf := func(limit enforce.Limit, user string) enforce.Tier {
		m := rules.Match{Rule: &rule, Limit: limit, IsOwn: true, Subject: user}
		return enforce.Tier{Key: enforce.KeyOf(&tenant.Tenant, &m), Limit: limit}
	}
	minute, year := tierOf(window(5, time.Minute), "42"), tierOf(window(100, 365*24*time.Hour), "42")
	other := tierOf(window(5, time.Minute), "421")
	take(t, s, after(0), checkOf(3, minute), checkOf(3, year), checkOf(3, other),
		checkOf(3, enforce.Tier{Key: key(12, "42"), Limit: tenPerSecond}))
	before := s.State()
	found, err := enforce.OwnBuckets(t.Context(), editStore(s.ApplyEdits), tenant, "42")
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for i := range found {
		texts = append(texts, enforce.KeyOf(&tenant.Tenant, &found[i]).Text())
	}
	slices.Sort(texts)
	if want := []string{"-12:100:31536000000000:42", "-12:5:60000000:42"}; !slices.Equal(texts, want) {
		t.Fatalf("found %q, want %q", texts, want)
	}
	expectUnchanged(t, s, before)
	for i := range found {
		if _, _, err := s.Credit(after(0), enforce.KeyOf(&tenant.Tenant, &found[i]), found[i].Limit,
			enforce.Fill); err != nil {
			t.Fatal(err)
		}
	}
	answers := take(t, s, after(0), checkOf(0, minute), checkOf(0, year), checkOf(0, other))
	for i, want := range []float64{5, 100, 2} {
		expectTokens(t, answers[i], want)
	}
}
