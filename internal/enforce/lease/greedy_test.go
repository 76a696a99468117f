package lease

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/lend"
	"github.com/sluicegate/sluice/internal/rules"
)

var plenty = enforce.Limit{Rate: 1000, Burst: 1000}

type greedy struct {
	*Buckets
	now lend.Instant
}

func newGreedy(counters int) *greedy {
	g := &greedy{now: lend.Instant{Mono: 1e9, Wall: 1e9}}
	g.Buckets = newBuckets(nil, func() lend.Instant { return g.now }, slog.New(slog.DiscardHandler), counters)
	g.TurnOn(true)
	return g
}

func checkOf(tenant rules.TenantID, user int) *enforce.BucketCheck {
	key := enforce.Key{Tenant: tenant, Rule: 1, Subject: fmt.Sprint(user)}
	return &enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{{Key: key, Limit: plenty}}}
}

func (g *greedy) isAllowed(check *enforce.BucketCheck) {
	g.notice(check, &noSplit, *g.held.Load(), g.now, true)
}

func (g *greedy) tenantBuckets(tenant rules.TenantID) (n int) {
	for key, e := range *g.held.Load() {
		if key.Tenant == tenant && !e.isLeaving.Load() {
			n++
		}
	}
	return n
}

func (g *greedy) fill(tenant rules.TenantID) {
	for user := 0; !g.quotas.isFull(tenant); user += offersOfTenant {
		for i := range offersOfTenant {
			g.offers.add([]candidate{{checkOf(tenant, user+i).Tiers[0].Key, plenty}})
		}
		g.admit()
	}
}

func TestATenantWhoseBucketsAllLeftMayOfferAgain(t *testing.T) {
	t.Parallel()
	g := newGreedy(16)
	g.fill(1)
	g.TurnOn(false)
	g.leave()
	if left := len(*g.held.Load()); left != 0 || !g.isIdle() {
		t.Fatalf("%d buckets are leased, idle: %t", left, g.isIdle())
	}
	if g.quotas.isFull(1) {
		t.Error("a tenant that leases nothing counts as full")
	}
}

func TestATenantWithItsShareOfPlacesTakesNoCounters(t *testing.T) {
	t.Parallel()
	g := newGreedy(16)
	g.fill(1)
	if got := g.tenantBuckets(1); got != maxBuckets/leastTenants {
		t.Fatalf("the greedy tenant leases %d buckets", got)
	}
	for user := range 1000 {
		for range hotAfter {
			g.isAllowed(checkOf(1, 1_000_000+user))
		}
	}
	for i := range g.recent.counters {
		if g.recent.counters[i].Load() != 0 {
			t.Fatal("it has counters")
		}
	}
	if waiting := g.offers.take(); waiting != nil {
		t.Fatalf("it offers %d buckets", len(waiting))
	}
	for range hotAfter {
		g.isAllowed(checkOf(2, 42))
	}
	if g.admit(); g.tenantBuckets(2) != 1 {
		t.Error("the other tenant's bucket is not leased")
	}
}

// The greedy tenant leases nothing, because none of its buckets is busy.
func TestATenantWithManyBucketsHidesNoBusyBucketOfAnother(t *testing.T) {
	t.Parallel()
	g := newGreedy(256)
	user := 0
	for range 2 * hotAfter {
		for range 10 * len(g.recent.counters) {
			user++
			g.isAllowed(checkOf(1, user))
		}
		g.isAllowed(checkOf(2, 42))
	}
	if g.admit(); g.tenantBuckets(2) != 1 {
		t.Error("the other tenant's bucket is not leased")
	}
}

func TestOffersOfAGreedyTenantLeaveRoomForThoseOfOthers(t *testing.T) {
	t.Parallel()
	g := newGreedy(counters)
	for user := range 10 * offersOfTenant {
		for range hotAfter {
			g.isAllowed(checkOf(1, user))
		}
	}
	for range hotAfter {
		g.isAllowed(checkOf(2, 42))
	}
	if g.admit(); g.tenantBuckets(1) != offersOfTenant || g.tenantBuckets(2) != 1 {
		t.Errorf("the tenants have %d and %d buckets", g.tenantBuckets(1), g.tenantBuckets(2))
	}
}

func TestTenantsWithAllPlacesMakeRoomForAnother(t *testing.T) {
	t.Parallel()
	g := newGreedy(16)
	for tenant := range rules.TenantID(leastTenants) {
		g.fill(1 + tenant)
	}
	late := []candidate{{checkOf(9, 42).Tiers[0].Key, plenty}}
	g.offers.add(late)
	if g.admit(); g.Len() != maxBuckets || g.tenantBuckets(9) != 0 {
		t.Fatalf("%d buckets are leased", g.Len())
	}
	g.leave()
	for tenant := range rules.TenantID(leastTenants) {
		if got, want := g.tenantBuckets(1+tenant), maxBuckets/(leastTenants+1); got != want {
			t.Errorf("tenant %d keeps %d buckets, want %d", 1+tenant, got, want)
		}
	}
	g.leave() // it takes no more than the surplus
	g.offers.add(late)
	if g.admit(); g.tenantBuckets(9) != 1 {
		t.Error("there is no room for the late tenant")
	}
	if got, want := g.Len(), leastTenants*(maxBuckets/(leastTenants+1))+1; got != want {
		t.Errorf("%d buckets are leased, want %d", got, want)
	}
	g.now = g.now.Plus(waitsFor)
	g.admit()
	if g.quotas.share() != maxBuckets/(leastTenants+1) {
		t.Errorf("the share is %d", g.quotas.share())
	}
}
