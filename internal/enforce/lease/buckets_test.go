package lease_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/lease"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/store/buckettest"
	"github.com/sluicegate/sluice/internal/store/membucket"
	"github.com/sluicegate/sluice/internal/store/redisbucket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testTimeout = 30 * time.Second

type counted struct {
	*membucket.Store
	takes, tiers, leases, buckets atomic.Int64
	failsWith                     atomic.Pointer[error]
	panics                        atomic.Int64 // how many calls of Lease do
	foreign                       atomic.Int64 // leases of limits that Redis's script does not know
}

var errDown = errors.New("the store is down")

func (c *counted) Take(ctx context.Context, checks []enforce.BucketCheck) error {
	c.takes.Add(int64(len(checks)))
	for i := range checks {
		c.tiers.Add(int64(len(checks[i].Tiers)))
	}
	if err := c.failsWith.Load(); err != nil {
		for i := range checks {
			checks[i].Answered = false
		}
		return *err
	}
	return c.Store.Take(ctx, checks)
}

func (c *counted) Lease(ctx context.Context, leases []enforce.Lease) error {
	if c.panics.Add(-1) >= 0 {
		panic("by the test")
	}
	c.leases.Add(1)
	c.buckets.Add(int64(len(leases)))
	for i := range leases {
		if !enforce.CanLease(leases[i].Limit) {
			c.foreign.Add(1)
		}
	}
	if err := c.failsWith.Load(); err != nil {
		return *err
	}
	return c.Store.Lease(ctx, leases)
}

func (c *counted) look(t *testing.T, one enforce.BucketCheck) enforce.Tokens {
	t.Helper()
	one.Look = true
	looks := []enforce.BucketCheck{one}
	if err := c.Store.Take(t.Context(), looks); err != nil {
		t.Fatal(err)
	}
	return looks[0].Tiers[0].Out
}

var busy = enforce.Limit{Rate: 1e6, Burst: 1e6}

func check(limits ...enforce.Limit) enforce.BucketCheck {
	one := enforce.BucketCheck{Cost: enforce.Token}
	for i, limit := range limits {
		one.Tiers = append(one.Tiers, enforce.Tier{Key: enforce.Key{
			Tenant: 1, Rule: rules.RuleID(i + 1),
			Subject: "42",
		}, Limit: limit})
	}
	return one
}

func open(t *testing.T) (*lease.Buckets, *counted) {
	t.Helper()
	store := &counted{Store: membucket.New(membucket.Options{})}
	b := lease.Open(t.Context(), store, nil, slog.New(slog.DiscardHandler))
	b.TurnOn(true)
	t.Cleanup(b.Close)
	return b, store
}

func heat(t *testing.T, b *lease.Buckets, one enforce.BucketCheck) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	for before := b.Served(); b.Served() == before; {
		if time.Now().After(deadline) {
			t.Fatal("no check was served by leased tokens")
		}
		if err := b.Take(t.Context(), []enforce.BucketCheck{one}); err != nil {
			t.Fatal(err)
		}
	}
}

// Not parallel: it counts allocations.
func TestABusyBucketIsServedWithoutTheStore(t *testing.T) {
	b, store := open(t)
	one := check(busy, busy, busy, busy)
	heat(t, b, one)
	checks := []enforce.BucketCheck{one}
	deadline := time.Now().Add(testTimeout)
	for { // until the demand is learned, the store decides checks for which the lots are too small
		const runs = 1000
		taken, served := store.takes.Load(), b.Served()
		allocations := testing.AllocsPerRun(runs, func() {
			if err := b.Take(context.Background(), checks); err != nil || !checks[0].Allowed {
				t.Fatalf("%+v, %v", checks[0], err)
			}
			for i := range checks[0].Tiers {
				if tier := &checks[0].Tiers[i]; !tier.Holds || tier.Bucket.Limit != busy ||
					tier.Bucket.Level.Micros <= 0 {
					t.Fatalf("tier %d: %+v", i, tier)
				}
			}
		})
		served, taken = b.Served()-served, store.takes.Load()-taken
		if served+taken != runs+1 { // one warms up
			t.Fatalf("%d checks were served by lots, and %d by the store, of %d", served, taken, runs+1)
		}
		if taken == 0 {
			if !checks[0].Leased {
				t.Error("the check is not marked as leased")
			}
			if allocations != 0 {
				t.Errorf("a check allocates %g times", allocations)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d checks were still decided by the store", taken, runs+1)
		}
	}
}

func TestChecksThatLotsCannotServeLeaseNothing(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]enforce.BucketCheck{
		"a small burst":              check(enforce.Limit{Rate: 1e6, Burst: 5}),
		"a limit of days":            check(enforce.Limit{Rate: 0.01, Burst: 1000}),
		"beside what cannot be lent": check(busy, window),
		"a reservation": {
			Cost: enforce.Token, Tiers: check(busy).Tiers,
			Reserve: &enforce.Reservation{Life: time.Minute},
		},
		"a look":                        {Cost: enforce.Token, Tiers: check(busy).Tiers, Look: true},
		"no cost":                       {Tiers: check(busy).Tiers},
		"costs that differ by the tier": {Cost: enforce.Token, Tiers: check(busy).Tiers, Mixed: true},
		"a rule that says never": {
			Cost:  enforce.Token,
			Tiers: []enforce.Tier{{Key: enforce.Key{Tenant: 1, Rule: 1}, Limit: busy, NeverLease: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, store := open(t)
			for i := range 2000 {
				if one.Reserve != nil {
					one.Reserve = &enforce.Reservation{
						ID:   enforce.ReservationID{byte(i), byte(i >> 8)},
						Life: time.Minute,
					}
				}
				if err := b.Take(t.Context(), []enforce.BucketCheck{one}); err != nil {
					t.Fatal(err)
				}
			}
			if b.Served() != 0 || store.leases.Load() != 0 || b.Len() != 0 {
				t.Errorf("%d checks were served by lots, in %d calls; %d buckets are leased", b.Served(),
					store.leases.Load(), b.Len())
			}
		})
	}
}

func TestAnEditedLimitIsTheStoresUntilLotsAreOfIt(t *testing.T) {
	t.Parallel()
	b, _ := open(t)
	heat(t, b, check(busy))
	edited := busy
	edited.Since, edited.Burst = 7, 900_000
	one := []enforce.BucketCheck{check(edited)}
	if err := b.Take(t.Context(), one); err != nil || !one[0].Allowed || one[0].Tiers[0].Bucket.Limit != edited {
		t.Fatalf("%+v, %v", one[0], err)
	}
	heat(t, b, check(edited))
}

func TestABucketWhoseLimitBecomesAWindowIsGivenBack(t *testing.T) {
	t.Parallel()
	b, store := open(t)
	heat(t, b, check(busy))
	window := enforce.Limit{Kind: rules.KindFixedWindow, Interval: time.Hour.Microseconds(), Burst: 1e6, Since: 7}
	for deadline := time.Now().Add(testTimeout); b.Len() > 0; {
		if time.Now().After(deadline) {
			t.Fatal("the bucket is held")
		}
		if err := b.Take(t.Context(), []enforce.BucketCheck{check(window)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := store.foreign.Load(); n > 0 {
		t.Errorf("%d leases are of a limit that cannot be lent", n)
	}
}

func TestClosingGivesBackWhatIsHeld(t *testing.T) {
	t.Parallel()
	b, store := open(t)
	one := check(busy)
	heat(t, b, one)
	b.Close()
	if out := store.look(t, one); out != 0 {
		t.Errorf("%v tokens are still lent", out)
	}
}

func TestTurningLeasesOffGivesBackWhatIsHeld(t *testing.T) {
	t.Parallel()
	b, store := open(t)
	one := check(busy)
	heat(t, b, one)
	b.TurnOn(false)
	deadline := time.Now().Add(testTimeout)
	for b.Len() > 0 {
		if time.Now().After(deadline) {
			t.Fatal("a bucket is still leased")
		}
		served := b.Served()
		if err := b.Take(t.Context(), []enforce.BucketCheck{one}); err != nil {
			t.Fatal(err)
		}
		if b.Len() == 0 && b.Served() != served {
			t.Fatal("a check was served by lots that were given back")
		}
	}
	if out := store.look(t, one); out != 0 {
		t.Errorf("%v tokens are still lent", out)
	}
	b.TurnOn(true)
	heat(t, b, one)
}

func split(t *testing.T, b *lease.Buckets, one enforce.BucketCheck) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	for before := b.Split(); b.Split() == before; {
		if time.Now().After(deadline) {
			t.Fatal("no check was split")
		}
		if err := b.Take(t.Context(), []enforce.BucketCheck{one}); err != nil {
			t.Fatal(err)
		}
	}
}

var window = enforce.Limit{Kind: rules.KindFixedWindow, Burst: 1e9, Interval: 60_000_000}

func TestALeasedBucketBesideOthers(t *testing.T) {
	t.Parallel()
	b, store := open(t)
	one := check(busy, window, busy)
	heat(t, b, enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{one.Tiers[0], one.Tiers[2]}})
	split(t, b, one)
	for range 1000 {
		tiers, split := store.tiers.Load(), b.Split()
		checks := []enforce.BucketCheck{check(busy, window, busy)}
		if err := b.Take(t.Context(), checks); err != nil || !checks[0].Allowed {
			t.Fatalf("%+v, %v", checks[0], err)
		}
		for i, limit := range []enforce.Limit{busy, window, busy} {
			tier := &checks[0].Tiers[i]
			if !tier.Holds || tier.Bucket.Limit != limit || tier.Bucket.Level.Micros <= 0 ||
				tier.Key.Rule != rules.RuleID(i+1) {
				t.Fatalf("tier %d: %+v", i, tier)
			}
		}
		if b.Split() > split && store.tiers.Load()-tiers == 3 {
			t.Fatal("the store got all tiers of a check of which lots served some")
		}
	}
}

func TestWithoutTheStoreLotsAreSpentAndNotRenewed(t *testing.T) {
	t.Parallel()
	b, store := open(t)
	one := check(enforce.Limit{Rate: 1e5, Burst: 1e5})
	heat(t, b, one)
	store.failsWith.Store(&errDown)
	deadline := time.Now().Add(testTimeout)
	for spent := 0; ; spent++ {
		if spent > 1e5 || time.Now().After(deadline) {
			t.Fatalf("%d checks were served by lots that were never renewed", spent)
		}
		if err := b.Take(t.Context(), []enforce.BucketCheck{one}); errors.Is(err, errDown) {
			break
		}
	}
	store.failsWith.Store(nil)
	heat(t, b, one)
}

func TestFourProcessesKeepTheirPromises(t *testing.T) {
	t.Parallel()
	server := devdbtest.Redis(t)
	processes := make([]enforce.ReservingBuckets, 4)
	var all []*lease.Buckets
	for i := range processes {
		options, err := redisbucket.Options(server.URL(), 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		client := redis.NewUniversalClient(options)
		t.Cleanup(func() { _ = client.Close() })
		b := lease.Open(t.Context(), redisbucket.New(client, 2*time.Second), nil, slog.New(slog.DiscardHandler))
		b.TurnOn(true)
		t.Cleanup(b.Close)
		all = append(all, b)
		processes[i] = b
	}
	buckettest.RunPromises(t, processes, 300, time.Second)
	var served int64
	for _, b := range all {
		served += b.Served()
	}
	if t.Logf("%d checks were served by lots", served); served == 0 {
		t.Error("no check was served by lots, so nothing was tested")
	}
}

func BenchmarkTake(b *testing.B) {
	store := membucket.New(membucket.Options{})
	buckets := lease.Open(b.Context(), store, nil, slog.New(slog.DiscardHandler))
	buckets.TurnOn(true)
	defer buckets.Close()
	limit := enforce.Limit{Rate: rules.MaxRate, Burst: rules.MaxBurst}
	for range 100_000 {
		_ = buckets.Take(b.Context(), []enforce.BucketCheck{check(limit)})
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		checks := []enforce.BucketCheck{check(limit)}
		for pb.Next() {
			_ = buckets.Take(context.Background(), checks)
		}
	})
	b.ReportMetric(float64(buckets.Served())/float64(b.N), "served/op")
}

func TestAPanicInAnAskKeepsNoBucketFromBeingLeased(t *testing.T) {
	t.Parallel()
	b, store := open(t)
	store.panics.Store(2)
	one := check(busy)
	heat(t, b, one)
	if store.panics.Load() >= 0 {
		t.Error("no ask panicked")
	}
}
