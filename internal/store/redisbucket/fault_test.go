package redisbucket

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/sluicegate/sluice/internal/devdb/awake"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

var soak = flag.Bool("soak", false, "let faults last longer, and try histories more often")

func repeats(n int) int {
	if *soak {
		return 50 * n
	}
	return n
}

var faults = map[string]string{
	"an answer takes longer than the " +
		"budget": `{"name":"fault","type":"latency","stream":"downstream","attributes":{"latency":400,"jitter":100}}`,
	"an answer takes half of the " +
		"budget": `{"name":"fault","type":"latency","stream":"downstream","attributes":{"latency":100}}`,
	"connections are " +
		"reset": `{"name":"fault","type":"reset_peer","stream":"downstream","attributes":{"timeout":10}}`,
	"replies are " +
		"lost": `{"name":"fault","type":"timeout","stream":"downstream","attributes":{"timeout":20}}`,
	"replies end in the " +
		"middle": `{"name":"fault","type":"limit_data","stream":"downstream","attributes":{"bytes":1500}}`,
	"questions go into a black " +
		"hole": `{"name":"fault","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`,
}

func TestUnderFaultsNothingIsGivenTwiceAndNobodyHangs(t *testing.T) {
	t.Parallel()
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) { // one at a time: on a busy machine they would starve each other
			server := devdbtest.Redis(t)
			proxy := newToxic(t, server.Addr())
			const budget = 200 * time.Millisecond
			s := New(client(t, "redis://"+proxy.Listen, budget), budget)
			direct := New(client(t, server.URL(), testTimeout), testTimeout)
			mustTake(t, direct, one(user("warm", still))) // so that Redis knows the script
			mustCheck(t, direct)
			s.standalone.Store(direct.standalone.Load()) // as it would find out itself, if it need not hurry

			load := startLoad(t, s, budget)
			for range repeats(2) {
				before := load.answered.Load()
				eventually(t, "the load is answered", testTimeout,
					func() bool { return load.answered.Load() >= before+100 })
				if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(fault)); err != nil {
					t.Fatal(err)
				}
				load.run(t, 500*time.Millisecond)
				if err := proxy.Toxics.RemoveToxic(t.Context(), "fault"); err != nil {
					t.Fatal(err)
				}
			}
			load.stop()
			eventually(t, "the store enforces again", testTimeout, func() bool {
				return s.Take(context.Background(), one(user("warm", still))) == nil
			})
			load.mustHaveTakenWhatWasAllowed(t, direct)
		})
	}
}

func newToxic(t *testing.T, upstream string) *toxiproxy.Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, t.Name(), "127.0.0.1:0", upstream)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	return proxy
}

type load struct {
	store            *Store
	denials          *enforce.DenialCache
	watch            *awake.Watch
	budget           time.Duration
	stopped          chan struct{}
	callers          sync.WaitGroup
	slowest          atomic.Int64
	calls            atomic.Int64
	late             atomic.Int64 // calls that took longer than the budget
	answered         atomic.Int64
	allowed, unknown [loadBuckets]atomic.Int64
}

const (
	// starved is longest without a processor; the driver's own timeouts are longer.
	starved     = 2 * time.Second
	loadBuckets = 20
	loadBurst   = 300
)

func loadTier(bucket int) enforce.Tier {
	return enforce.Tier{
		Key:   enforce.Key{Tenant: rules.TenantID(bucket % 4), Rule: 1, Subject: fmt.Sprint(bucket)},
		Limit: enforce.Limit{Rate: rules.MinRate, Burst: loadBurst},
	}
}

func startLoad(t *testing.T, s *Store, budget time.Duration) *load {
	t.Helper()
	l := &load{
		store: s, denials: enforce.NewDenialCache(nil), watch: awake.Start(), budget: budget,
		stopped: make(chan struct{}),
	}
	t.Cleanup(l.watch.Stop)
	for range 24 {
		l.callers.Go(func() {
			pace := time.NewTicker(2 * time.Millisecond) // else those who fail at once would keep the processors busy
			defer pace.Stop()
			for {
				l.take()
				select {
				case <-l.stopped:
					return
				case <-pace.C:
				}
			}
		})
	}
	return l
}

func (l *load) take() {
	buckets := rand.Perm(loadBuckets)[:1+rand.IntN(2)*rand.IntN(8)]
	checks := make([]enforce.BucketCheck, len(buckets))
	for i, bucket := range buckets {
		checks[i] = enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{loadTier(bucket)}}
	}
	start := l.watch.Now()
	err := l.denials.Take(checks, l.store.take)
	l.calls.Add(1)
	if l.watch.Since(start) > l.budget+slack {
		l.late.Add(1)
	}
	for took := int64(l.watch.Since(start)); ; {
		most := l.slowest.Load()
		if took <= most || l.slowest.CompareAndSwap(most, took) {
			break
		}
	}
	for i, bucket := range buckets {
		switch {
		case err != nil && !checks[i].Answered:
			l.unknown[bucket].Add(1)
		case checks[i].Allowed:
			l.allowed[bucket].Add(1)
			l.answered.Add(1)
		default:
			l.answered.Add(1)
		}
	}
}

func (l *load) run(t *testing.T, length time.Duration) {
	t.Helper()
	select {
	case <-time.After(length):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

func (l *load) stop() {
	close(l.stopped)
	l.callers.Wait()
}

func (l *load) mustHaveTakenWhatWasAllowed(t *testing.T, direct *Store) {
	t.Helper()
	if slowest := time.Duration(l.slowest.Load()); slowest > l.budget+starved {
		t.Errorf("a call with a budget of %v took %v", l.budget, slowest)
	}
	if late, calls := l.late.Load(), l.calls.Load(); late > calls/20 {
		t.Errorf("%d of %d calls took more than their budget of %v", late, calls, l.budget)
	}
	unknown := int64(0)
	for bucket := range loadBuckets {
		checks := []enforce.BucketCheck{{Tiers: []enforce.Tier{loadTier(bucket)}}}
		left := mustTake(t, direct, checks)[0].Tiers[0].Bucket.Level.Micros.Whole()
		allowed, taken := l.allowed[bucket].Load(), loadBurst-left
		unknown += l.unknown[bucket].Load()
		if allowed > taken || taken > allowed+l.unknown[bucket].Load() {
			t.Errorf("bucket %d: %d tokens are gone; %d checks were allowed, and of %d nobody knows",
				bucket, taken, allowed, l.unknown[bucket].Load())
		}
	}
	t.Logf("%d answers, %d unknown, the slowest after %v", l.answered.Load(), unknown, time.Duration(l.slowest.Load()))
}

func TestAClusterUnderLoadOfManyTenantsGivesNothingTwice(t *testing.T) {
	t.Parallel()
	s, _ := clusterNodes(t, 3)
	const tenants, burst, callers = 60, 30, 16
	var allowed [tenants]atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := range 200 {
				tenant := (i * 7) % tenants
				tier := user("{42}", enforce.Limit{Rate: rules.MinRate, Burst: burst})
				tier.Key.Tenant = rules.TenantID(tenant)
				checks := one(tier)
				if err := s.Take(context.Background(), checks); err != nil {
					t.Error(err)
				}
				if checks[0].Allowed {
					allowed[tenant].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for tenant := range allowed {
		if got := allowed[tenant].Load(); got != burst {
			t.Errorf("tenant %d: %d of about %d checks passed a burst of %d", tenant, got, callers*200/tenants, burst)
		}
	}
}
