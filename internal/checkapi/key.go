package checkapi

import (
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// authorize returns the tenant of a request's key, if the key has the permission of the route.
func (s *surface) authorize(h *fasthttp.RequestHeader, r *route) (*snapshot.Tenant, error) {
	tenant, err := s.tenantOfKey(h, r)
	if err != nil && r.asksForVisitor {
		return nil, forVisitor(err)
	}
	return tenant, err
}

func (s *surface) tenantOfKey(h *fasthttp.RequestHeader, r *route) (*snapshot.Tenant, error) {
	snapshot := s.Snapshots.Snapshot()
	if snapshot == nil {
		return nil, httpapi.Unavailable.Problem("No rules were loaded yet; try again in a second.")
	}
	now := s.Now()
	key, tenant, refusal := snapshot.Authenticate(r.keyLines(h), now)
	if refusal != "" {
		return nil, httpapi.Unauthorized.Problem(refusal)
	}
	s.KeyUsed(key, now)
	switch {
	case tenant.Tenant.Suspended:
		return nil, httpapi.Suspended.Problem("No checks are answered for this tenant until an administrator lifts the suspension.")
	case !slices.Contains(key.Permissions, r.permission):
		return nil, httpapi.Forbidden.Problem("Use an API key with the permission " + string(r.permission) + ".")
	}
	return tenant, nil
}
