package membucket

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/store/buckettest"
)

const second = int64(1_000_000)

func TestConformance(t *testing.T) {
	t.Parallel()
	open := func(*testing.T) buckettest.Store {
		var now int64
		s := New(Options{Clock: func() int64 { return now }})
		return buckettest.Store{
			Take: func(at int64, checks []enforce.BucketCheck) error {
				now = at
				return s.Take(t.Context(), checks)
			},
			Credit: func(at int64, key enforce.Key, limit enforce.Limit, amount enforce.Tokens) (before,
				after enforce.Bucket, err error,
			) {
				now = at
				return s.Credit(t.Context(), key, limit, amount)
			},
			CreditOnce: func(at int64, id string, key enforce.Key, limit enforce.Limit, amount enforce.Tokens) (before,
				after enforce.Bucket, isRepeated bool, err error,
			) {
				now = at
				return s.CreditOnce(t.Context(), id, key, limit, amount)
			},
			SettleReservation: func(at int64, tenant rules.TenantID, id enforce.ReservationID,
				with enforce.Settlement,
			) (enforce.Settled, error) {
				now = at
				return s.SettleReservation(t.Context(), tenant, id, with)
			},
			ApplyEdits: func(at int64, edits []enforce.Edit) error {
				now = at
				return s.ApplyEdits(t.Context(), edits)
			},
			Lease: func(at int64, leases []enforce.Lease) error {
				now = at
				return s.Lease(t.Context(), leases)
			},
			State: func() map[string]string {
				state := map[string]string{}
				for key, b := range s.buckets {
					state[fmt.Sprintf("%#v", key)] = fmt.Sprintf("%#v", b.State)
				}
				return state
			},
		}
	}
	buckettest.Run(t, open)
	buckettest.RunCredits(t, open)
	buckettest.RunReservations(t, open)
	buckettest.RunLeases(t, open)
	t.Run("streams use up a budget and nothing above it", func(t *testing.T) {
		t.Parallel()
		buckettest.RunStreams(t, open(t))
	})
}

func TestATenantHasOnlySoManyIDsOfRecords(t *testing.T) {
	t.Parallel()
	var now int64
	s := New(Options{Clock: func() int64 { return now }})
	s.maxRecordIDs = 100
	buckettest.RunRecordCap(t, buckettest.Store{Take: func(at int64, checks []enforce.BucketCheck) error {
		now = at
		return s.Take(t.Context(), checks)
	}}, s.maxRecordIDs, func(at int64, tenant rules.TenantID, ids int) {
		now = at
		for i := range ids {
			check := one("42", enforce.Limit{Rate: 1, Burst: 1000}, enforce.Token)
			check[0].Tiers[0].Key.Tenant = tenant
			check[0].Record, check[0].RecordID = true, enforce.RecordIDOf(fmt.Sprint("filled ", i))
			take(t, s, check)
		}
	})
	if len(s.recordIDs) == 0 {
		t.Fatal("no ids are remembered")
	}
	now += 10 * enforce.RecordSlot
	for range 1000 { // each record looks at one more tenant
		check := one("42", enforce.Limit{Rate: 1, Burst: 1000}, enforce.Token)
		check[0].Record, check[0].RecordID = true, enforce.RecordIDOf("later")
		take(t, s, check)
	}
	if len(s.recordIDs) != 1 {
		t.Errorf("ids of %d tenants are remembered, want only those of the one that records", len(s.recordIDs))
	}
}

func one(subject string, limit enforce.Limit, cost enforce.Tokens) []enforce.BucketCheck {
	return []enforce.BucketCheck{{
		Cost:  cost,
		Tiers: []enforce.Tier{{Key: enforce.Key{Tenant: 1, Rule: 1, Subject: subject}, Limit: limit}},
	}}
}

func take(t testing.TB, s *Store, checks []enforce.BucketCheck) bool {
	t.Helper()
	if err := s.Take(t.Context(), checks); err != nil {
		t.Fatalf("take: %v", err)
	}
	return checks[0].Allowed
}

func TestConcurrentTakesNeverExceedTheBurst(t *testing.T) {
	t.Parallel()
	s := New(Options{Clock: func() int64 { return second }})
	limit := enforce.Limit{Rate: 1, Burst: 1000}
	var allowed [8]int
	var wg sync.WaitGroup
	for i := range allowed {
		wg.Go(func() {
			for range 500 {
				if take(t, s, one("42", limit, enforce.Token)) {
					allowed[i]++
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range allowed {
		sum += n
	}
	if sum != 1000 {
		t.Errorf("%d checks passed a burst of 1000", sum)
	}
}

// A caller that waited for its turn must not bring an older time than the one before: the interval would be earned
// twice.
func TestConcurrentTakesOnARunningClockEarnNothingTwice(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	limit := enforce.Limit{Rate: 100_000, Burst: 1000}
	var allowed atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range 64 {
		wg.Go(func() {
			for time.Since(start) < 200*time.Millisecond {
				if take(t, s, one("42", limit, enforce.Token)) {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if limitSum := float64(limit.Burst) + limit.Rate*time.Since(start).Seconds() +
		1; float64(allowed.Load()) > limitSum {
		t.Errorf("%d checks passed where %.0f may", allowed.Load(), limitSum)
	}
}

func TestIdleBucketsAreSweptByNewOnes(t *testing.T) {
	t.Parallel()
	now := second
	s := New(Options{Clock: func() int64 { return now }})
	limit := enforce.Limit{Rate: 10, Burst: 10}
	for i := range 10_000 {
		take(t, s, one(fmt.Sprint("old", i), limit, enforce.Token))
	}
	now += slack.Microseconds() + second
	for i := range 10_000 {
		take(t, s, one(fmt.Sprint("new", i), limit, enforce.Token))
		if got := s.Len(); got > 10_000 {
			t.Fatalf("%d buckets after %d new ones", got, i+1)
		}
	}
	if got := s.Len(); got != 10_000 || len(s.buckets) != got || s.Evictions() != 0 {
		t.Errorf("%d buckets in the ring, %d in the map, %d evictions; want the 10000 new ones and none",
			got, len(s.buckets), s.Evictions())
	}
	if take(t, s, one("new0", limit, 10*enforce.Token)) {
		t.Error("a bucket in use was swept")
	}
	for i, b := range s.ring {
		if b.at != i || s.buckets[b.key] != b {
			t.Fatalf("bucket %+v is at %d in the ring", b, i)
		}
	}
}

func TestAnIdleBucketIsNotSweptByTheAskThatTakesFromIt(t *testing.T) {
	t.Parallel()
	var now int64
	s := New(Options{Clock: func() int64 { return now }})
	limit := enforce.Limit{Rate: 1, Burst: 1}
	take(t, s, one("idle", limit, enforce.Token))
	now = 60 * second // full for long, and the next to be looked at
	checks := one("new", limit, enforce.Token)
	checks[0].Tiers = append(checks[0].Tiers, one("idle", limit, enforce.Token)[0].Tiers...)
	if !take(t, s, checks) {
		t.Fatal("two full buckets denied one token each")
	}
	if take(t, s, one("idle", limit, enforce.Token)) {
		t.Error("the idle bucket had 1 token, which was taken, and gave another")
	}
}

func TestAFullBucketKeepsItsLimitForCallersThatAreBehind(t *testing.T) {
	t.Parallel()
	now := second
	s := New(Options{Clock: func() int64 { return now }})
	older, newer := enforce.Limit{Rate: 100, Burst: 100}, enforce.Limit{Rate: 100, Burst: 5, Since: second}
	take(t, s, one("42", newer, enforce.Token))
	now += 2 * second // full for long
	take(t, s, one("43", newer, enforce.Token))
	if take(t, s, one("42", older, 6*enforce.Token)) {
		t.Error("a caller with the older limit was answered by it")
	}
}

func TestAtItsBoundTheStoreDropsWhatIsNearestToFull(t *testing.T) {
	t.Parallel()
	s := New(Options{MaxBuckets: sample, Clock: func() int64 { return second }})
	limit := enforce.Limit{Rate: 1, Burst: 100}
	for i := range sample {
		take(t, s, one(fmt.Sprint(i), limit, enforce.Token*enforce.Tokens(50+i)))
	}
	for i := range 1000 { // made-up identities push out each other, after the least used
		take(t, s, one(fmt.Sprint("flood", i), limit, enforce.Token))
	}
	if s.Len() != sample || s.Evictions() != 1000 {
		t.Errorf("%d buckets, %d evictions; want %d and 1000", s.Len(), s.Evictions(), sample)
	}
	for i := range sample {
		if got, want := take(t, s, one(fmt.Sprint(i), limit, 100*enforce.Token)), i == 0; got != want {
			t.Errorf("bucket %d is as good as new: %t, want %t", i, got, want)
		}
	}
}

func TestTheStoreDoesNotKeepARequestAliveForItsSubject(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	request := strings.Repeat("user", 1000)
	subject := request[4:8]
	take(t, s, one(subject, enforce.Limit{Rate: 1, Burst: 2}, enforce.Token))
	for key, b := range s.buckets {
		if unsafe.StringData(key.Subject) == unsafe.StringData(subject) ||
			unsafe.StringData(b.key.Subject) == unsafe.StringData(subject) {
			t.Error("a key is part of the request's memory")
		}
	}
}

func TestAMillionKeysStayWithinTheBoundAndItsMemory(t *testing.T) {
	const bound, keys = 100_000, 1_000_000
	limit := enforce.Limit{Rate: 0.001, Burst: 100}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := New(Options{MaxBuckets: bound, Clock: func() int64 { return second }})
	checks := one("", limit, enforce.Token)
	for i := range keys {
		checks[0].Tiers[0].Key.Subject = fmt.Sprintf("user-%0*d", 35+i%2*1245, i) // every other is 1280 bytes
		take(t, s, checks)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	perBucket := float64(after.HeapAlloc-before.HeapAlloc) / bound
	t.Logf("%.0f bytes for each of %d buckets with subjects of 40 and 1280 bytes", perBucket, bound)
	if s.Len() != bound || s.Evictions() != keys-bound {
		t.Errorf("%d buckets, %d evictions; want %d and %d", s.Len(), s.Evictions(), bound, keys-bound)
	}
	if perBucket > 400 {
		t.Errorf("%.0f bytes per bucket, want at most 400", perBucket)
	}
}

func TestASteadyTakeDoesNotAllocate(t *testing.T) {
	s := New(Options{})
	checks := fourTiers(0)
	take(t, s, checks)
	if n := testing.AllocsPerRun(1000, func() { take(t, s, checks) }); n != 0 {
		t.Errorf("%v allocations per take", n)
	}
}

func fourTiers(user int) []enforce.BucketCheck {
	limit := enforce.Limit{Rate: 1e6, Burst: 1e9}
	tiers := make([]enforce.Tier, 4)
	for i, subject := range []string{fmt.Sprint("user-", user), fmt.Sprint("203.0.113.", user%256), "/api/search", ""} {
		tiers[i] = enforce.Tier{Key: enforce.Key{Tenant: 1, Rule: rules.RuleID(i), Subject: subject}, Limit: limit}
	}
	return []enforce.BucketCheck{{Cost: enforce.Token, Tiers: tiers}}
}

// The least that a shared bucket could cost is an increment in a map of the same keys behind a mutex.
func BenchmarkTake(b *testing.B) {
	const users = 10_000
	checks := make([][]enforce.BucketCheck, users)
	for i := range checks {
		checks[i] = fourTiers(i)
	}
	var increment, four time.Duration
	b.Run("increment of a map behind a mutex", func(b *testing.B) {
		var mu sync.Mutex
		counts := map[enforce.Key]int64{}
		for _, check := range checks {
			counts[check[0].Tiers[0].Key] = 0
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			mu.Lock()
			counts[checks[i%users][0].Tiers[0].Key]++
			mu.Unlock()
		}
		increment = b.Elapsed() / time.Duration(b.N)
	})
	b.Run("check of four tiers", func(b *testing.B) {
		s := New(Options{})
		for _, check := range checks {
			take(b, s, check)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			take(b, s, checks[i%users])
		}
		four = b.Elapsed() / time.Duration(b.N)
		b.ReportMetric(float64(four)/float64(max(increment, 1)), "increments")
	})
}
