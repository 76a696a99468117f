package checkapi

import (
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// authorize returns the tenant of a request's key, if the key has the permission.
func (s *surface) authorize(h *fasthttp.RequestHeader, permission auth.Permission) (*snapshot.Tenant, error) {
	snapshot := s.Snapshots.Snapshot()
	if snapshot == nil {
		return nil, httpapi.Unavailable.Problem("No rules were loaded yet; try again in a second.")
	}
	now := s.Now()
	var authorization []string
	for _, value := range h.PeekAll("Authorization") {
		authorization = append(authorization, string(value))
	}
	key, tenant, refusal := snapshot.Authenticate(authorization, now)
	if refusal != "" {
		return nil, httpapi.Unauthorized.Problem(refusal)
	}
	s.KeyUsed(key, now)
	switch {
	case tenant.Tenant.Suspended:
		return nil, httpapi.Suspended.Problem("No checks are answered for this tenant until an administrator lifts the suspension.")
	case !slices.Contains(key.Permissions, permission):
		return nil, httpapi.Forbidden.Problem("Use an API key with the permission " + string(permission) + ".")
	}
	return tenant, nil
}
