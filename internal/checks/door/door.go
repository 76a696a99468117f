// Package door checks API keys and ranks connections for eviction, for the HTTP surface and Envoy's service.
package door

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// Config is what the servers of checks share; Observer, Tracer, KeyUsed and Now are optional.
type Config struct {
	Snapshots Snapshots
	Readiness func() httpapi.Readiness
	Log       *slog.Logger
	Observer  httpapi.Observer
	Tracer    httpapi.Tracer
	// KeyUsed is called for each authenticated request; like Readiness it must not block.
	KeyUsed func(key *snapshot.Key, at time.Time)
	// Now decides when keys expire.
	Now            func() time.Time
	MaxConnections int
	TrustedProxies []netip.Prefix
}

// SetDefaults fills in what is optional.
func (c *Config) SetDefaults(maxConnections int) {
	if c.KeyUsed == nil {
		c.KeyUsed = func(*snapshot.Key, time.Time) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.MaxConnections = cmp.Or(c.MaxConnections, maxConnections)
}

// Telemetry returns the telemetry of requests.
func (c *Config) Telemetry() httpapi.Telemetry {
	return httpapi.Telemetry{Log: c.Log, Observer: c.Observer, Tracer: c.Tracer}
}

// Snapshots is a *snapshot.Watcher.
type Snapshots interface {
	Snapshot() *snapshot.Snapshot
}

// Authorize returns the key of Authorization lines and its tenant; the error is a *httpapi.Problem. from is only called
// for keys with networks.
func (c *Config) Authorize(
	authorization []string, permission auth.Permission, from func() (peer netip.Addr, forwarded []string),
) (*snapshot.Key, *snapshot.Tenant, error) {
	latest := c.Snapshots.Snapshot()
	if latest == nil {
		return nil, nil, httpapi.Unavailable.Problem("No rules were loaded yet; try again in a second.")
	}
	now := c.Now()
	key, tenant, refusal := latest.Authenticate(authorization, now)
	if refusal != "" {
		return nil, nil, httpapi.Unauthorized.Problem(refusal)
	}
	if !key.AllowsFrom(c.clientOf(key, from)) {
		return nil, nil, httpapi.Forbidden.Problem(
			"This API key may not be used from this address; its owner can add the network to the key.")
	}
	c.KeyUsed(key, now)
	switch {
	case tenant.Tenant.Suspended:
		return nil, nil, httpapi.Suspended.Problem(
			"No checks are answered for this tenant until an administrator lifts the suspension.")
	case !slices.Contains(key.Permissions, permission):
		return nil, nil, httpapi.Forbidden.Problem("Use an API key with the permission " + string(permission) + ".")
	}
	return key, tenant, nil
}

func (c *Config) clientOf(key *snapshot.Key, from func() (netip.Addr, []string)) netip.Addr {
	if len(key.Networks) == 0 {
		return netip.Addr{}
	}
	peer, forwarded := from()
	if !peer.IsValid() {
		return netip.Addr{}
	}
	return httpapi.Client(peer, forwarded, c.TrustedProxies)
}
