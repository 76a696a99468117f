// Package door checks API keys and ranks connections for eviction, for the HTTP surface and Envoy's service.
package door

import (
	"net/netip"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// Door checks the API keys of requests.
type Door struct {
	Snapshots Snapshots
	// KeyUsed must not block.
	KeyUsed        func(key *snapshot.Key, at time.Time)
	Now            func() time.Time
	TrustedProxies []netip.Prefix
}

// Snapshots is a *snapshot.Watcher.
type Snapshots interface {
	Snapshot() *snapshot.Snapshot
}

// Authorize returns the key of Authorization lines and its tenant; the error is a *httpapi.Problem. from is only called
// for keys with networks.
func (d *Door) Authorize(
	authorization []string, permission auth.Permission, from func() (peer netip.Addr, forwarded []string),
) (*snapshot.Key, *snapshot.Tenant, error) {
	latest := d.Snapshots.Snapshot()
	if latest == nil {
		return nil, nil, httpapi.Unavailable.Problem("No rules were loaded yet; try again in a second.")
	}
	now := d.Now()
	key, tenant, refusal := latest.Authenticate(authorization, now)
	if refusal != "" {
		return nil, nil, httpapi.Unauthorized.Problem(refusal)
	}
	if !key.AllowsFrom(d.clientOf(key, from)) {
		return nil, nil, httpapi.Forbidden.Problem(
			"This API key may not be used from this address; its owner can add the network to the key.")
	}
	d.KeyUsed(key, now)
	switch {
	case tenant.Tenant.Suspended:
		return nil, nil, httpapi.Suspended.Problem(
			"No checks are answered for this tenant until an administrator lifts the suspension.")
	case !slices.Contains(key.Permissions, permission):
		return nil, nil, httpapi.Forbidden.Problem("Use an API key with the permission " + string(permission) + ".")
	}
	return key, tenant, nil
}

func (d *Door) clientOf(key *snapshot.Key, from func() (netip.Addr, []string)) netip.Addr {
	if len(key.Networks) == 0 {
		return netip.Addr{}
	}
	peer, forwarded := from()
	if !peer.IsValid() {
		return netip.Addr{}
	}
	return httpapi.Client(peer, forwarded, d.TrustedProxies)
}
