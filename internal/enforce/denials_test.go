package enforce_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
)

type front struct {
	*remembering
	store *membucket.Store
	now   int64 // microseconds
	jump  int64 // by how much the store's clock is ahead
	sent  int
}

func newFront() *front {
	f := &front{now: start.UnixMicro()}
	f.store = membucket.New(membucket.Options{Clock: func() int64 { return f.now + f.jump }})
	f.remembering = f.another()
	return f
}

func (f *front) another() *remembering {
	return &remembering{counted{f.store, &f.sent}, enforce.NewDenialCache(func() time.Duration {
		return time.Duration(f.now-start.UnixMicro()) * time.Microsecond
	})}
}

type remembering struct {
	enforce.ReservingBuckets
	cache *enforce.DenialCache
}

func (r *remembering) Take(ctx context.Context, checks []enforce.BucketCheck) error {
	return r.cache.Take(checks, func(rest []enforce.BucketCheck) error { return r.ReservingBuckets.Take(ctx, rest) })
}

type counted struct {
	enforce.ReservingBuckets
	checks *int
}

func (c counted) Take(ctx context.Context, checks []enforce.BucketCheck) error {
	*c.checks += len(checks)
	return c.ReservingBuckets.Take(ctx, checks)
}

func (f *front) take(t testing.TB, tokens float64, tiers ...enforce.Tier) enforce.BucketCheck {
	t.Helper()
	checks := []enforce.BucketCheck{{Cost: enforce.Tokens(tokens * float64(enforce.Token)), Tiers: tiers}}
	if err := f.Take(t.Context(), checks); err != nil {
		t.Fatal(err)
	}
	return checks[0]
}

func (f *front) wait(d time.Duration) { f.now += d.Microseconds() }

func bucketOf(rule rules.RuleID, rate float64, burst int64) enforce.Tier {
	return enforce.Tier{
		Key:   enforce.Key{Tenant: tenantID, Rule: rule, Subject: "42"},
		Limit: enforce.Limit{Rate: rate, Burst: burst, Since: 1},
	}
}

func TestADenialIsRememberedWhileItIsCertain(t *testing.T) {
	t.Parallel()
	minute := bucketOf(1, 0.5, 10)
	edited := minute
	edited.Limit.Since++
	shadow := minute
	shadow.Shadow = true
	other := bucketOf(2, 0.5, 4)
	tests := map[string]struct {
		wait     time.Duration
		tokens   float64
		tiers    []enforce.Tier
		recalled bool
	}{
		"the same again": {0, 2, []enforce.Tier{minute}, true},
		"a smaller cost that the bucket lacks too":   {0, 1.6, []enforce.Tier{minute}, true},
		"a smaller cost that the bucket holds":       {0, 1.5, []enforce.Tier{minute}, false},
		"a larger cost":                              {0, 9, []enforce.Tier{minute}, true},
		"just before it has earned enough":           {990 * time.Millisecond, 2, []enforce.Tier{minute}, true},
		"when it can have earned enough":             {999_100 * time.Microsecond, 2, []enforce.Tier{minute}, false},
		"a cost that it will lack for long, at once": {900 * time.Millisecond, 10, []enforce.Tier{minute}, true},
		"the same after a second":                    {1001 * time.Millisecond, 10, []enforce.Tier{minute}, false},
		"a look":                                     {0, 0, []enforce.Tier{minute}, false},
		"a cost above the burst":                     {0, 11, []enforce.Tier{minute}, false},
		"a cost above another tier's burst":          {0, 5, []enforce.Tier{minute, other}, false},
		"a cost above a shadow tier's burst": {
			0, 5,
			[]enforce.Tier{minute, {Key: other.Key, Limit: other.Limit, Shadow: true}},
			true,
		},
		"an edited limit":                             {0, 2, []enforce.Tier{edited}, false},
		"a rule that no longer decides":               {0, 2, []enforce.Tier{shadow}, false},
		"another bucket":                              {0, 2, []enforce.Tier{other}, false},
		"two tiers of which one is known to lack":     {0, 2, []enforce.Tier{other, minute}, true},
		"two tiers of which one is a shadow and lack": {0, 2, []enforce.Tier{other, shadow}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFront()
			f.take(t, 8.5, minute)
			if f.take(t, 2, minute).Allowed {
				t.Fatal("a bucket of 1.5 tokens gave 2")
			}
			f.wait(test.wait)
			before := f.sent
			check := f.take(t, test.tokens, test.tiers...)
			if check.Recalled != test.recalled || (f.sent == before) != test.recalled {
				t.Errorf("recalled: %t, want %t; the store got %d checks", check.Recalled, test.recalled, f.sent-before)
			}
			if check.Recalled && check.Allowed {
				t.Error("a recalled denial allows")
			}
		})
	}
}

func TestTheFirstDenialIsTheStoresAndLaterOnesAreRemembered(t *testing.T) {
	t.Parallel()
	f := newFront()
	tier := bucketOf(1, 1, 1)
	if !f.take(t, 1, tier).Allowed {
		t.Fatal("a fresh bucket denies")
	}
	for i, recalled := range []bool{false, true, true} {
		if check := f.take(t, 1, tier); check.Allowed || check.Recalled != recalled {
			t.Errorf("check %d of an empty bucket: allowed %t, recalled %t", i, check.Allowed, check.Recalled)
		}
	}
}

func TestOfABatchOnlyWhatIsNotCertainIsAsked(t *testing.T) {
	t.Parallel()
	f := newFront()
	empty, full := bucketOf(1, 1, 1), bucketOf(2, 1, 10)
	f.take(t, 1, empty)
	f.take(t, 1, empty)
	before := f.sent
	var checks []enforce.BucketCheck
	for i := range 6 {
		tier := []enforce.Tier{empty, full}[i%2]
		checks = append(checks, enforce.BucketCheck{
			Cost:  enforce.Token * enforce.Tokens(i+1),
			Tiers: []enforce.Tier{tier},
		})
	}
	checks[2].Cost = enforce.Token // above its burst, check 4 is for the store
	if err := f.Take(t.Context(), checks); err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, check := range checks {
		got += fmt.Sprintf("%t/%t ", check.Allowed, check.Recalled)
	}
	if want := "false/true true/false false/true true/false false/false false/false "; got != want {
		t.Errorf("allowed/recalled: %s, want %s", got, want)
	}
	if f.sent-before != 4 {
		t.Errorf("the store got %d checks, want 4", f.sent-before)
	}
}

func TestARecalledDenialIsDecidedByTheLongestWaitKnownAndStillCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, snapshot.Rows{Rules: []rules.Rule{
		{ID: 1, Pattern: pattern(t, "user:{user_id}"), RatePerSecond: 1, Burst: 5},
		{ID: 2, Pattern: pattern(t, "ip:{ip}"), RatePerSecond: 0.1, Burst: 5},
		{ID: 3, Pattern: pattern(t, "global"), RatePerSecond: 100, Burst: 100},
		{ID: 4, Pattern: pattern(t, "endpoint:{endpoint}"), RatePerSecond: 0.1, Burst: 5, Mode: rules.ModeShadow},
	}})
	elapsed := func() time.Duration { return w.now.Sub(start) }
	w.limiter = enforce.NewLimiter(&remembering{w.shared, enforce.NewDenialCache(elapsed)}, w.shared, &w.seen,
		func() time.Time { return w.now })
	w.wantAllowed(w.check(5 * enforce.Token))
	w.wantDenied(w.check(enforce.Token), 2, enforce.LimitExceeded, 10*time.Second)
	answered := w.seen.answered.Load()
	w.now = w.now.Add(100 * time.Millisecond)
	d := w.check(enforce.Token)
	w.wantDenied(d, 2, enforce.LimitExceeded, 9900*time.Millisecond+102*time.Microsecond)
	if !d.Recalled || len(d.Tiers) != 2 || d.Tiers[0].Match.Rule.ID != 1 || d.Tiers[1].Match.Rule.ID != 2 {
		t.Errorf("recalled: %t, with the tiers %+v; want those of rules 1 and 2", d.Recalled, d.Tiers)
	}
	if w.seen.decided.Load() != 3 || w.seen.answered.Load() != answered {
		t.Errorf("%d decisions and %d answers of the store were told, want 3 and %d", w.seen.decided.Load(),
			w.seen.answered.Load(), answered)
	}
}

// The store is asked about every recalled denial of random histories, with edited limits and a clock that steps back.
func TestWhatIsRecalledTheStoreWouldHaveDenied(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := newFront()
		processes := []*remembering{f.remembering, f.another()}
		limits := make([][]enforce.Limit, len(processes)) // as each process knows them
		latest := make([]enforce.Limit, 3)
		for rule := range latest {
			latest[rule] = enforce.Limit{
				Rate:  rapid.Float64Range(0.01, 1000).Draw(t, "rate"),
				Burst: rapid.Int64Range(1, 20).Draw(t, "burst"), Since: 1,
			}
		}
		for i := range limits {
			limits[i] = append(limits[i], latest...)
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			switch rapid.IntRange(0, 19).Draw(t, "step") {
			case 0: // one process learns of an edit, and others later
				rule := rapid.IntRange(0, 2).Draw(t, "edited")
				latest[rule] = enforce.Limit{
					Rate:  rapid.Float64Range(0.01, 1000).Draw(t, "new rate"),
					Burst: rapid.Int64Range(1, 20).Draw(t, "new burst"), Since: f.now + f.jump,
				}
				limits[rapid.IntRange(0, 1).Draw(t, "who")][rule] = latest[rule]
				f.wait(time.Second + time.Microsecond) // by then what was remembered is forgotten
			case 1:
				for i := range limits {
					copy(limits[i], latest)
				}
			case 2:
				f.jump -= rapid.Int64Range(0, 5_000_000).Draw(t, "jump")
			case 3, 4, 5:
				f.now += rapid.Int64Range(0, 2_000_000).Draw(t, "wait")
			default:
				who := rapid.IntRange(0, 1).Draw(t, "asker")
				before := inForce(t, f)
				askOne(t, f, processes[who], limits[who])
				if inForce(t, f) != before {
					f.wait(time.Second + time.Microsecond)
				}
			}
		}
	})
}

func inForce(t *rapid.T, f *front) (since [3]int64) {
	for rule := range since {
		look := []enforce.BucketCheck{{Tiers: []enforce.Tier{{
			Key: enforce.Key{Tenant: 1, Rule: rules.RuleID(rule)}, Limit: enforce.Limit{Rate: 1, Burst: 1},
		}}}}
		if err := f.store.Take(context.Background(), look); err != nil {
			t.Fatal(err)
		}
		since[rule] = look[0].Tiers[0].Bucket.Limit.Since
	}
	return since
}

func askOne(t *rapid.T, f *front, process *remembering, limits []enforce.Limit) {
	check := enforce.BucketCheck{Cost: enforce.Tokens(rapid.Int64Range(1, 5_000_000).Draw(t, "cost"))}
	for rule, limit := range limits {
		if rapid.Bool().Draw(t, "matches") {
			check.Tiers = append(check.Tiers, enforce.Tier{
				Key: enforce.Key{Tenant: 1, Rule: rules.RuleID(rule)}, Limit: limit,
				Shadow: rapid.IntRange(0, 4).Draw(t, "shadow") == 0,
			})
		}
	}
	checks := []enforce.BucketCheck{check}
	if err := process.Take(context.Background(), checks); err != nil {
		t.Fatal(err)
	}
	if !checks[0].Recalled {
		return
	}
	truth := enforce.BucketCheck{Cost: check.Cost}
	for _, tier := range check.Tiers {
		truth.Tiers = append(truth.Tiers, enforce.Tier{Key: tier.Key, Limit: tier.Limit, Shadow: tier.Shadow})
	}
	if err := f.store.Take(context.Background(), []enforce.BucketCheck{truth}); err != nil {
		t.Fatal(err)
	}
	for i, tier := range checks[0].Tiers {
		if told := checks[0].Tiers[i].Holds; !told && (tier.Shadow || truth.Tiers[i].Holds) {
			t.Fatalf("tier %d is said to lack %s; the store has %+v", i, check.Cost, truth.Tiers[i])
		}
	}
}

func TestADenialCacheIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	store := membucket.New(membucket.Options{})
	cache := &remembering{store, enforce.NewDenialCache(nil)}
	var wg sync.WaitGroup
	var mu sync.Mutex
	allowed := 0
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				checks := []enforce.BucketCheck{{
					Cost:  enforce.Token,
					Tiers: []enforce.Tier{bucketOf(1, rules.MinRate, 500)},
				}}
				if err := cache.Take(context.Background(), checks); err != nil {
					t.Error(err)
				}
				if checks[0].Allowed {
					mu.Lock()
					allowed++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if allowed != 500 {
		t.Errorf("%d passed a burst of 500", allowed)
	}
}

func TestADenialByATierThatIsChargedAfterIsRememberedUntilSomethingIsLeft(t *testing.T) {
	t.Parallel()
	ordinary := bucketOf(1, 0.5, 10)
	after := ordinary
	after.After = true
	tests := map[string]struct {
		wait     time.Duration
		tokens   float64
		tier     enforce.Tier
		recalled bool
	}{
		"the same again":                 {0, 15, after, true},
		"a look of cost 0":               {0, 0, after, true},
		"a cost above the burst":         {900 * time.Millisecond, 1000, after, true},
		"when something can be left":     {9_999_500 * time.Microsecond, 15, after, false},
		"an ordinary tier":               {0, 1, ordinary, true},
		"an ordinary tier, a cost of 0":  {0, 0, ordinary, false},
		"an ordinary tier, of above all": {0, 15, ordinary, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFront()
			f.take(t, 15, after)
			f.wait(min(test.wait, 9*time.Second))
			if f.take(t, 15, after).Allowed {
				t.Fatal("a bucket in debt allowed a check")
			}
			f.wait(max(0, test.wait-9*time.Second))
			f.sent = 0
			got := f.take(t, test.tokens, test.tier)
			if got.Recalled != test.recalled || got.Recalled != (f.sent == 0) || got.Allowed {
				t.Errorf("recalled %t, allowed %t, %d sent; want recalled %t", got.Recalled, got.Allowed, f.sent,
					test.recalled)
			}
			least, most := 10*time.Second-test.wait-10*time.Millisecond, 10*time.Second-test.wait+3*time.Microsecond
			if wait, ok := got.Tiers[0].Wait(&got); test.tier.After && (!ok || wait > most || wait < least) {
				t.Errorf("the wait is %v, %t", wait, ok)
			}
		})
	}
}

func TestARecordIsNeverRecalledAndFillsNoCache(t *testing.T) {
	t.Parallel()
	f := newFront()
	tier := bucketOf(1, 1e-6, 10)
	record := func() enforce.BucketCheck {
		checks := []enforce.BucketCheck{{Record: true, Cost: 8 * enforce.Token, Tiers: []enforce.Tier{tier}}}
		if err := f.Take(t.Context(), checks); err != nil {
			t.Fatal(err)
		}
		return checks[0]
	}
	record()
	record()
	f.sent = 0
	if got := f.take(t, 1, tier); got.Recalled || got.Allowed || f.sent != 1 {
		t.Errorf("the check after the records is recalled %t, allowed %t, %d sent", got.Recalled, got.Allowed, f.sent)
	}
	if got := record(); got.Recalled || !got.Allowed || got.Tiers[0].Charged != 4*enforce.Token {
		t.Errorf("the record after a denial is recalled %t, allowed %t, charged %s", got.Recalled, got.Allowed,
			got.Tiers[0].Charged)
	}
	if got := f.take(t, 1, tier); !got.Recalled {
		t.Error("the denial was forgotten")
	}
}
