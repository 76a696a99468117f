package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	floodingTenant = rules.TenantID(1)
	floodCalls     = 5000 // in flight
	quietTenants   = 10
)

type kindOfFlood struct {
	name    string
	prepare func(i int) error // before the flood; nil for nothing
	call    func(i int) error
}

func kindsOfFlood(s *Store) []kindOfFlood {
	ctx := context.Background()
	limit := enforce.Limit{Rate: 1e6, Burst: 1e6}
	settle := func(i int, with enforce.Settlement) error {
		_, err := s.SettleReservation(ctx, floodingTenant, idOf(i), with)
		return err
	}
	bucket := func(i int) enforce.Key { return fourTiers(i%1000, limit).Tiers[0].Key }
	reserve := func(i int) error {
		check := checkOf(floodingTenant, i, limit)
		check[0].Reserve = &enforce.Reservation{ID: idOf(i), Life: time.Hour}
		return s.Take(ctx, check)
	}
	var users [100][]enforce.Tier
	for i := range users {
		for tier := range enforce.MaxUsage {
			users[i] = append(users[i], user(fmt.Sprint(i, " ", tier), limit))
		}
	}
	return []kindOfFlood{
		{"checks", nil, func(i int) error { return s.Take(ctx, checkOf(floodingTenant, i, limit)) }},
		{"checks that reserve", nil, reserve},
		{"settlements of ids that do not exist", nil, func(i int) error {
			return settle(i, enforce.Settlement{HasCost: true})
		}},
		{"settlements", reserve, func(i int) error { return settle(i, enforce.Settlement{HasCost: true}) }},
		{"extensions", reserve, func(i int) error { return settle(i, enforce.Settlement{Extend: true}) }},
		{"credits", nil, func(i int) error {
			_, _, err := s.Credit(ctx, bucket(i), limit, enforce.Token)
			return err
		}},
		{"credits with an id", nil, func(i int) error {
			_, _, _, err := s.CreditOnce(ctx, fmt.Sprint(i), bucket(i), limit, enforce.Token)
			return err
		}},
		{"resets", nil, func(i int) error {
			_, _, err := s.Credit(ctx, bucket(i), limit, enforce.Fill)
			return err
		}},
		{"usage", nil, func(i int) error {
			return s.Take(ctx, []enforce.BucketCheck{{Look: true, Tiers: slices.Clone(users[i%len(users)])}})
		}},
	}
}

func checkOf(tenant rules.TenantID, i int, limit enforce.Limit) []enforce.BucketCheck {
	check := fourTiers(i%1000, limit)
	for j := range check.Tiers {
		check.Tiers[j].Key.Tenant = tenant
	}
	return []enforce.BucketCheck{check}
}

func idOf(i int) enforce.ReservationID {
	return enforce.ReservationID{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)}
}

func TestQuietTenantsOvertakeAFlood(t *testing.T) {
	t.Parallel()
	const flooding = 1000 // calls
	server := devdbtest.Redis(t)
	s := New(client(t, server.URL(), testTimeout), testTimeout)
	mustCheck(t, s)
	for _, flood := range kindsOfFlood(s) {
		var calls sync.WaitGroup
		var came, answered, overtaken atomic.Int64
		for i := range flooding {
			if flood.prepare != nil {
				calls.Go(func() { _ = flood.prepare(i) })
			}
		}
		calls.Wait()
		if err := server.Freeze(); err != nil {
			t.Fatal(err)
		}
		for i := range flooding {
			calls.Go(func() {
				came.Add(1)
				if flood.call(i) == nil { // else it was refused at once
					answered.Add(1)
				}
			})
		}
		eventually(t, "the flood has come", testTimeout, func() bool { return came.Load() == flooding })
		for tenant := range rules.TenantID(quietTenants) {
			calls.Go(func() {
				came.Add(1)
				if err := s.Take(context.Background(), checkOf(floodingTenant+1+tenant, 0, still)); err != nil {
					t.Errorf("beside %s: %v", flood.name, err)
				}
				for before := answered.Load(); ; {
					most := overtaken.Load()
					if before <= most || overtaken.CompareAndSwap(most, before) {
						return
					}
				}
			})
		}
		eventually(t, "all have come", testTimeout, func() bool { return came.Load() == flooding+quietTenants })
		if err := server.Thaw(); err != nil {
			t.Fatal(err)
		}
		calls.Wait()
		t.Logf("%d of %d %s were answered before the last quiet tenant", overtaken.Load(), answered.Load(), flood.name)
		if overtaken.Load() > flooding/2 { // a few batches, unless the machine is very busy
			t.Errorf("quiet tenants waited for %d of %d %s", overtaken.Load(), flooding, flood.name)
		}
	}
}

// Ten tenants check every 20 ms beside one with 5,000 calls in flight; their failures and times are reported by kind of
// flood.
func BenchmarkQuietTenantsBesideAFlood(b *testing.B) {
	const checksEach = 100
	server := devdbtest.Redis(b)
	for place := range kindsOfFlood(nil) {
		s := New(client(b, server.URL(), DefaultBudget), DefaultBudget)
		mustCheck(b, s)
		flood := kindsOfFlood(s)[place]
		b.Run(flood.name, func(b *testing.B) {
			var took []time.Duration
			failed := 0
			for b.Loop() {
				stop := keepInFlight(flood)
				_, _ = askQuietly(s, checksEach/2) // while the flood rises
				some, someFailed := askQuietly(s, checksEach)
				stop()
				took, failed = append(took, some...), failed+someFailed
			}
			slices.Sort(took)
			b.ReportMetric(100*float64(failed)/float64(len(took)), "%failed")
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(0, "ns/op") // says nothing
		})
		if err := s.rdb.FlushDBAsync(context.Background()).Err(); err != nil {
			b.Fatal(err)
		}
	}
}

// Over a network, thousands of refused callers could not keep all others from the processor.
const refusedPause = 100 * time.Millisecond

func keepInFlight(flood kindOfFlood) (stop func()) {
	var callers sync.WaitGroup
	var isOver atomic.Bool
	for caller := range floodCalls {
		callers.Go(func() {
			for i := caller; !isOver.Load(); i += floodCalls {
				var err error
				if flood.prepare != nil {
					err = flood.prepare(i)
				}
				if err = errors.Join(err, flood.call(i)); err != nil {
					<-time.After(refusedPause)
				}
			}
		})
	}
	return func() {
		isOver.Store(true)
		callers.Wait()
	}
}

func askQuietly(s *Store, checksEach int) (took []time.Duration, failed int) {
	var mu sync.Mutex
	var tenants sync.WaitGroup
	for tenant := range rules.TenantID(quietTenants) {
		tenants.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for i := range checksEach {
				<-tick.C
				began := time.Now()
				err := s.Take(context.Background(), checkOf(floodingTenant+1+tenant, i, still))
				mu.Lock()
				if took = append(took, time.Since(began)); err != nil {
					failed++
				}
				mu.Unlock()
			}
		})
	}
	tenants.Wait()
	return took, failed
}
