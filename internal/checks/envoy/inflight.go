package envoy

import (
	"sync"

	"github.com/sluicegate/sluice/internal/rules"
)

// An HTTP/2 connection carries many requests, and a client can hold one open by not sending its message, so each tenant
// has a share.
const (
	maxInFlight   = 4096
	inFlightShare = maxInFlight / 4
)

type inFlight struct {
	mu      sync.Mutex
	taken   int
	tenants map[rules.TenantID]int // no entry is 0
}

func (f *inFlight) take(tenant rules.TenantID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.taken >= maxInFlight || f.tenants[tenant] >= inFlightShare {
		return false
	}
	f.taken++
	f.tenants[tenant]++
	return true
}

func (f *inFlight) release(tenant rules.TenantID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken--
	if f.tenants[tenant]--; f.tenants[tenant] == 0 {
		delete(f.tenants, tenant)
	}
}
