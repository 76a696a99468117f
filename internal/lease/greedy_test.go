package lease

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

var plenty = enforce.Limit{Rate: 1000, Burst: 1000}

// greedy is a Buckets on a clock of its own, without a background.
type greedy struct {
	*Buckets
	now Instant
}

func newGreedy(counters int) *greedy {
	g := &greedy{now: Instant{Mono: 1e9, Wall: 1e9}}
	g.Buckets = newBuckets(nil, func() Instant { return g.now }, slog.New(slog.DiscardHandler), counters)
	g.TurnOn(true)
	return g
}

func checkOf(tenant rules.TenantID, user int, shard uint8) *enforce.BucketCheck {
	key := enforce.Key{Tenant: tenant, Rule: 1, Subject: fmt.Sprint(user), Shard: shard}
	return &enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{{Key: key, Limit: plenty}}}
}

// isAllowed is a check that the store allowed.
func (g *greedy) isAllowed(check *enforce.BucketCheck) {
	g.notice(check, &noSplit, *g.held.Load(), g.now, true)
}

// tenantPlaces returns how many buckets of a tenant are leased.
func (g *greedy) tenantPlaces(tenant rules.TenantID) (n int) {
	for key, e := range *g.held.Load() {
		if key.Tenant == tenant && !e.isLeaving.Load() {
			n++
		}
	}
	return n
}

// fill leases buckets of a tenant until it has its share.
func (g *greedy) fill(tenant rules.TenantID) {
	for user := 0; !g.places.isFull(tenant); user += offersOfTenant {
		for i := range offersOfTenant {
			g.offers.add([]candidate{{checkOf(tenant, user+i, 0).Tiers[0].Key, plenty}})
		}
		g.admit()
	}
}

func TestATenantWithItsShareOfPlacesTakesNoCounters(t *testing.T) {
	t.Parallel()
	for _, shard := range []uint8{0, 1} {
		g := newGreedy(16)
		g.fill(1)
		if got := g.tenantPlaces(1); got != maxBuckets/leastTenants {
			t.Fatalf("the greedy tenant has %d places", got)
		}
		for user := range 1000 {
			for range hotAfter {
				g.isAllowed(checkOf(1, 1_000_000+user, shard))
			}
		}
		for i := range g.recent.counters {
			if g.recent.counters[i].Load() != 0 {
				t.Fatalf("shard %d: it has counters", shard)
			}
		}
		if waiting := g.offers.take(); waiting != nil {
			t.Fatalf("shard %d: it offers %d buckets", shard, len(waiting))
		}
		for range hotAfter {
			g.isAllowed(checkOf(2, 42, shard))
		}
		if g.admit(); g.tenantPlaces(2) != 1 {
			t.Errorf("shard %d: the other tenant's bucket is not leased", shard)
		}
	}
}

// TestATenantWithManyBucketsHidesNoBusyBucketOfAnother: it has no places, since none of its buckets is busy.
func TestATenantWithManyBucketsHidesNoBusyBucketOfAnother(t *testing.T) {
	t.Parallel()
	g := newGreedy(256)
	user := 0
	for range 2 * hotAfter {
		for range 10 * len(g.recent.counters) {
			user++
			g.isAllowed(checkOf(1, user, 0))
		}
		g.isAllowed(checkOf(2, 42, 0))
	}
	if g.admit(); g.tenantPlaces(2) != 1 {
		t.Error("the other tenant's bucket is not leased")
	}
}

func TestOffersOfAGreedyTenantLeaveRoomForThoseOfOthers(t *testing.T) {
	t.Parallel()
	g := newGreedy(counters)
	for user := range 10 * offersOfTenant {
		for range hotAfter {
			g.isAllowed(checkOf(1, user, 0))
		}
	}
	for range hotAfter {
		g.isAllowed(checkOf(2, 42, 0))
	}
	if g.admit(); g.tenantPlaces(1) != offersOfTenant || g.tenantPlaces(2) != 1 {
		t.Errorf("the tenants have %d and %d places", g.tenantPlaces(1), g.tenantPlaces(2))
	}
}

func TestTenantsWithAllPlacesMakeRoomForAnother(t *testing.T) {
	t.Parallel()
	g := newGreedy(16)
	for tenant := range rules.TenantID(leastTenants) {
		g.fill(1 + tenant)
	}
	late := []candidate{{checkOf(9, 42, 0).Tiers[0].Key, plenty}}
	g.offers.add(late)
	if g.admit(); g.Len() != maxBuckets || g.tenantPlaces(9) != 0 {
		t.Fatalf("%d buckets are leased", g.Len())
	}
	g.leave()
	for tenant := range rules.TenantID(leastTenants) {
		if got, want := g.tenantPlaces(1+tenant), maxBuckets/(leastTenants+1); got != want {
			t.Errorf("tenant %d keeps %d places, want %d", 1+tenant, got, want)
		}
	}
	g.leave() // it takes no more than the surplus
	g.offers.add(late)
	if g.admit(); g.tenantPlaces(9) != 1 {
		t.Error("there is no place for the late tenant")
	}
	if got, want := g.Len(), leastTenants*(maxBuckets/(leastTenants+1))+1; got != want {
		t.Errorf("%d buckets are leased, want %d", got, want)
	}
	g.now = g.now.plus(waitsFor)
	g.admit()
	if g.places.share() != maxBuckets/(leastTenants+1) {
		t.Errorf("the share is %d", g.places.share())
	}
}
