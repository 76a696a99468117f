package rlsapi

import (
	"sync"

	"github.com/sluicegate/sluice/internal/rules"
)

// The bounds of requests in flight. A connection of HTTP/2 carries many, and one whose message is still on its way waits for as
// long as its client likes, so a tenant has a share of its own.
const (
	maxInFlight   = 4096
	inFlightShare = maxInFlight / 4
)

// places counts the requests in flight.
type places struct {
	mu      sync.Mutex
	taken   int
	tenants map[rules.TenantID]int // no entry is 0
}

// take takes a place, if one is free for the tenant.
func (p *places) take(tenant rules.TenantID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= maxInFlight || p.tenants[tenant] >= inFlightShare {
		return false
	}
	p.taken++
	p.tenants[tenant]++
	return true
}

func (p *places) release(tenant rules.TenantID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.tenants[tenant]--; p.tenants[tenant] == 0 {
		delete(p.tenants, tenant)
	}
}
