package lease

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// maxBuckets caps the leased buckets. A tenant has at most a leastTenants-th of them, or less while more tenants lease.
	maxBuckets, leastTenants = 4096, 4
	// waitsFor is how long a tenant counts as one that leases after there was no place for its bucket.
	waitsFor = time.Second
)

// places counts the leased buckets of each tenant. A tenant that has none and finds no place gets a share too: the others' shares
// become smaller, and Buckets.leave takes the surplus from them. All but isFull is for the background.
type places struct {
	ofTenant map[rules.TenantID]int
	waiting  map[rules.TenantID]Instant              // tenants without a place, and until when they count
	used     int                                     // of all tenants
	full     atomic.Pointer[map[rules.TenantID]bool] // the tenants that have their share; nil if none has
}

// isFull reports whether a tenant has its share, as of the last update. It is safe for concurrent use.
func (p *places) isFull(tenant rules.TenantID) bool {
	full := p.full.Load()
	return full != nil && (*full)[tenant]
}

// share returns how many places a tenant has at most.
func (p *places) share() int {
	tenants := len(p.ofTenant)
	for tenant := range p.waiting {
		if p.ofTenant[tenant] == 0 {
			tenants++
		}
	}
	return maxBuckets / max(leastTenants, tenants)
}

// take takes a place, and reports whether there is one.
func (p *places) take(tenant rules.TenantID, now Instant) bool {
	switch {
	case p.ofTenant[tenant] >= p.share():
		return false
	case p.used >= maxBuckets:
		if p.ofTenant[tenant] == 0 {
			p.waiting[tenant] = now.plus(waitsFor)
		}
		return false
	}
	p.ofTenant[tenant]++
	p.used++
	return true
}

func (p *places) free(tenant rules.TenantID) {
	p.used--
	if p.ofTenant[tenant]--; p.ofTenant[tenant] == 0 {
		delete(p.ofTenant, tenant)
	}
}

// update says which tenants have their share.
func (p *places) update(now Instant) {
	maps.DeleteFunc(p.waiting, func(_ rules.TenantID, until Instant) bool { return !now.isBefore(until) })
	var full map[rules.TenantID]bool
	share := p.share()
	for tenant, n := range p.ofTenant {
		if n < share {
			continue
		}
		if full == nil {
			full = map[rules.TenantID]bool{}
		}
		full[tenant] = true
	}
	if full == nil {
		p.full.Store(nil)
		return
	}
	p.full.Store(&full)
}

// candidate is a bucket to lease.
type candidate struct {
	key   enforce.Key
	limit enforce.Limit
}

// offersOfTenant caps the offers of a tenant between two looks of the background, so that those of others have room.
const offersOfTenant = 64

// offers are candidates that wait for the background, each with the other buckets of its check.
type offers struct {
	mu       sync.Mutex
	all      [][]candidate
	ofTenant map[rules.TenantID]int
	added    chan struct{} // holds one if an offer was added since it was received
}

// hasRoom reports whether an offer of a tenant can be added. A check waits for no other, so it is false while another adds one: later
// checks tell again.
func (o *offers) hasRoom(tenant rules.TenantID) bool {
	if !o.mu.TryLock() {
		return false
	}
	defer o.mu.Unlock()
	return o.ofTenant[tenant] < offersOfTenant
}

// add adds an offer if there is room.
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

// take takes all offers.
func (o *offers) take() (all [][]candidate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all, o.all = o.all, nil
	clear(o.ofTenant)
	return all
}
