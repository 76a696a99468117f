package checkapi

import (
	"net/http"
	"slices"

	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// authorize returns the tenant whose key the request carries, if the key may do what is asked.
func (s *surface) authorize(w http.ResponseWriter, r *http.Request, permission rules.Permission) (*rules.TenantRules, error) {
	snapshot := s.Snapshots.Snapshot()
	if snapshot == nil {
		w.Header().Set("Retry-After", "1")
		return nil, httpapi.Unavailable.Problem("No rules were loaded yet; try again in a second.")
	}
	now := s.Now()
	key, tenant, refusal := snapshot.Authenticate(r.Header["Authorization"], now)
	if refusal != "" {
		w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
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
