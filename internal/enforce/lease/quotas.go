package lease

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/lend"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// maxBuckets caps leased buckets; a tenant has at most one in leastTenants, less while more tenants lease.
	maxBuckets, leastTenants = 4096, 4
	waitsFor                 = time.Second
)

// quotas counts the leased buckets of each tenant. A tenant without room also counts: the others' shares shrink, and
// Buckets.leave takes their surplus. All but isFull is for the background goroutine.
type quotas struct {
	ofTenant map[rules.TenantID]int
	waiting  map[rules.TenantID]lend.Instant         // tenants without room, and until when they count
	used     int                                     // of all tenants
	full     atomic.Pointer[map[rules.TenantID]bool] // the tenants that have their share; nil if none has
}

func (q *quotas) isFull(tenant rules.TenantID) bool {
	full := q.full.Load()
	return full != nil && (*full)[tenant]
}

func (q *quotas) share() int {
	tenants := len(q.ofTenant)
	for tenant := range q.waiting {
		if q.ofTenant[tenant] == 0 {
			tenants++
		}
	}
	return maxBuckets / max(leastTenants, tenants)
}

func (q *quotas) take(tenant rules.TenantID, now lend.Instant) bool {
	switch {
	case q.ofTenant[tenant] >= q.share():
		return false
	case q.used >= maxBuckets:
		if q.ofTenant[tenant] == 0 {
			q.waiting[tenant] = now.Plus(waitsFor)
		}
		return false
	}
	q.ofTenant[tenant]++
	q.used++
	return true
}

func (q *quotas) free(tenant rules.TenantID) {
	q.used--
	if q.ofTenant[tenant]--; q.ofTenant[tenant] == 0 {
		delete(q.ofTenant, tenant)
	}
}

func (q *quotas) update(now lend.Instant) {
	maps.DeleteFunc(q.waiting, func(_ rules.TenantID, until lend.Instant) bool { return !now.IsBefore(until) })
	var full map[rules.TenantID]bool
	share := q.share()
	for tenant, n := range q.ofTenant {
		if n < share {
			continue
		}
		if full == nil {
			full = map[rules.TenantID]bool{}
		}
		full[tenant] = true
	}
	if full == nil {
		q.full.Store(nil)
		return
	}
	q.full.Store(&full)
}

type candidate struct {
	key   enforce.Key
	limit enforce.Limit
}

const offersOfTenant = 64

type offers struct {
	mu       sync.Mutex
	all      [][]candidate
	ofTenant map[rules.TenantID]int
	added    chan struct{} // holds one if an offer was added since it was received
}

// hasRoom returns false rather than wait for the lock, because later checks repeat the offer.
func (o *offers) hasRoom(tenant rules.TenantID) bool {
	if !o.mu.TryLock() {
		return false
	}
	defer o.mu.Unlock()
	return o.ofTenant[tenant] < offersOfTenant
}

func (o *offers) add(together []candidate) {
	if len(together) == 0 || !o.mu.TryLock() {
		return
	}
	defer o.mu.Unlock()
	if tenant := together[0].key.Tenant; o.ofTenant[tenant] < offersOfTenant {
		if o.ofTenant == nil {
			o.ofTenant = map[rules.TenantID]int{}
		}
		o.ofTenant[tenant]++
		o.all = append(o.all, together)
		select {
		case o.added <- struct{}{}:
		default:
		}
	}
}

func (o *offers) take() (all [][]candidate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all, o.all = o.all, nil
	clear(o.ofTenant)
	return all
}
