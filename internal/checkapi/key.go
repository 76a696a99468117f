package checkapi

import (
	"net"
	"net/netip"
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// authorize returns a request's key and its tenant, if the key has the permission of the route.
func (s *surface) authorize(c *fasthttp.RequestCtx, r *route) (caller, error) {
	by, err := s.callerOf(c, r)
	if err != nil && r.asksForVisitor {
		return caller{}, forVisitor(err)
	}
	return by, err
}

func (s *surface) callerOf(c *fasthttp.RequestCtx, r *route) (caller, error) {
	latest := s.Snapshots.Snapshot()
	if latest == nil {
		return caller{}, httpapi.Unavailable.Problem("No rules were loaded yet; try again in a second.")
	}
	now := s.Now()
	key, tenant, refusal := latest.Authenticate(r.keyLines(&c.Request.Header), now)
	if refusal != "" {
		return caller{}, httpapi.Unauthorized.Problem(refusal)
	}
	if !key.AllowsFrom(s.clientOf(c, key)) {
		return caller{}, httpapi.Forbidden.Problem("This API key may not be used from this address; its owner can add the network to the key.")
	}
	s.KeyUsed(key, now)
	switch {
	case tenant.Tenant.Suspended:
		return caller{}, httpapi.Suspended.Problem("No checks are answered for this tenant until an administrator lifts the suspension.")
	case !slices.Contains(key.Permissions, r.permission):
		return caller{}, httpapi.Forbidden.Problem("Use an API key with the permission " + string(r.permission) + ".")
	}
	return caller{tenant, key}, nil
}

// clientOf returns the address that a key's networks are compared with. Most keys have none, and then it is not looked for.
func (s *surface) clientOf(c *fasthttp.RequestCtx, key *snapshot.Key) netip.Addr {
	peer, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok || len(key.Networks) == 0 {
		return netip.Addr{}
	}
	var forwarded []string
	for _, line := range c.Request.Header.PeekAll("X-Forwarded-For") {
		forwarded = append(forwarded, string(line))
	}
	return httpapi.Client(peer.AddrPort().Addr(), forwarded, s.TrustedProxies)
}
