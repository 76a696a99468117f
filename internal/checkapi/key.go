package checkapi

import (
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/httpapi"
)

// authorize returns a request's key and its tenant, if the key has the permission of the route.
func (s *surface) authorize(h *fasthttp.RequestHeader, r *route) (caller, error) {
	by, err := s.callerOf(h, r)
	if err != nil && r.asksForVisitor {
		return caller{}, forVisitor(err)
	}
	return by, err
}

func (s *surface) callerOf(h *fasthttp.RequestHeader, r *route) (caller, error) {
	snapshot := s.Snapshots.Snapshot()
	if snapshot == nil {
		return caller{}, httpapi.Unavailable.Problem("No rules were loaded yet; try again in a second.")
	}
	now := s.Now()
	key, tenant, refusal := snapshot.Authenticate(r.keyLines(h), now)
	if refusal != "" {
		return caller{}, httpapi.Unauthorized.Problem(refusal)
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
