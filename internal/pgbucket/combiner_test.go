package pgbucket

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

func ofTenant(tenant rules.TenantID, n int) []enforce.BucketCheck {
	checks := make([]enforce.BucketCheck, n)
	for i := range checks {
		checks[i].Tiers = make([]enforce.Tier, 4)
		checks[i].Tiers[0].Key.Tenant = tenant
		checks[i].Cost = enforce.Tokens(i)
	}
	return checks
}

// sending returns a combiner whose batches take a while, and answer each check.
func sending(took time.Duration, sent func(*batch)) *combiner {
	return newCombiner(time.Second, func(b *batch) {
		sent(b)
		time.Sleep(took) //nolint:forbidigo // in synctest: what PostgreSQL takes
		for _, c := range b.calls {
			for i := range c.sending {
				c.sending[i].Answered = b.err == nil
			}
		}
	})
}

// TestAFloodOfOneTenantDelaysAnotherByFewBatches has 500 callers of one tenant and then one of another, which asks time
// and again.
func TestAFloodOfOneTenantDelaysAnotherByFewBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const took = 10 * time.Millisecond
		q := sending(took, func(*batch) {})
		var flood sync.WaitGroup
		stop := make(chan struct{})
		for range 500 {
			flood.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						if q.submit(ofTenant(1, 16)) != nil { // some of them are shed
							time.Sleep(time.Millisecond) //nolint:forbidigo // in synctest
						}
					}
				}
			})
		}
		synctest.Wait()
		for range 50 {
			began := time.Now()
			if err := q.submit(ofTenant(2, 1)); err != nil {
				t.Errorf("the neighbour's check failed: %v", err)
			}
			// The batches in flight end first, and then its own.
			if waited := time.Since(began); waited > 2*took {
				t.Errorf("the neighbour waited %v, with batches of %v", waited, took)
			}
		}
		close(stop)
		flood.Wait()
		if len(q.flows)+len(q.byTenant)+q.inFlight != 0 {
			t.Errorf("left behind: %d flows, %d tenants, %d batches", len(q.flows), len(q.byTenant), q.inFlight)
		}
	})
}

func TestWaitingCallsShareABatchAndALargeCallStaysInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sizes []int
		var order []enforce.Tokens
		q := sending(time.Millisecond, func(b *batch) {
			mu.Lock()
			defer mu.Unlock()
			sizes = append(sizes, b.tiers)
			for _, c := range b.calls {
				for i := range c.sending {
					if c.tenant == 2 {
						order = append(order, c.sending[i].Cost)
					}
				}
			}
		})
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				if err := q.submit(ofTenant(1, 1)); err != nil {
					t.Error(err)
				}
			})
		}
		large := ofTenant(2, 1000)
		wg.Go(func() {
			if err := q.submit(large); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if len(order) != 1000 || !slices.IsSorted(order) || !allAnswered(large) {
			t.Errorf("%d checks of the large call were sent, in order: %t", len(order), slices.IsSorted(order))
		}
		if slices.Max(sizes) > maxBatch || len(sizes) > 22 {
			t.Errorf("1040 checks of four tiers went in batches of %v tiers", sizes)
		}
	})
}

func TestAFailedBatchFailsItsOwnChecksAndAPanicItsFollowers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		q := sending(time.Millisecond, func(b *batch) {
			for _, c := range b.calls {
				switch c.tenant {
				case 8:
					b.err = broken
				case 9:
					panic("a panic in send")
				}
			}
		})
		ask := func(tenant rules.TenantID) (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = fmt.Errorf("panicked: %v", r)
				}
			}()
			return q.submit(ofTenant(tenant, 1))
		}
		if err := ask(8); !errors.Is(err, broken) {
			t.Errorf("a failed batch is %v", err)
		}
		if err := ask(9); err == nil {
			t.Error("a panic is no error")
		}
		if err := ask(1); err != nil || q.inFlight != 0 {
			t.Errorf("after these: %v, %d batches in flight", err, q.inFlight)
		}
	})
}

func TestNobodyWaitsLongerThanTheBudgetThoughEveryBatchHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const budget = time.Second
		q := newCombiner(budget, func(b *batch) {
			if wait := time.Until(b.deadline); wait > 0 && len(b.calls[0].sending) > 0 {
				time.Sleep(wait) //nolint:forbidigo // in synctest
				b.err = errors.New("no answer")
			}
		})
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				began := time.Now()
				if err := q.submit(ofTenant(rules.TenantID(i%5), 16)); err == nil {
					t.Error("a call was answered by nobody")
				}
				if took := time.Since(began); took > budget {
					t.Errorf("a call took %v", took)
				}
			})
		}
		wg.Wait()
	})
}
