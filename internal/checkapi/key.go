package checkapi

import (
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"

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
	key, refusal := s.authenticate(snapshot, r.Header)
	if refusal != "" {
		w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
		return nil, httpapi.Unauthorized.Problem(refusal)
	}
	s.KeyUsed(key.ID, s.Now())
	tenant := snapshot.Tenant(key.TenantID)
	switch {
	case tenant == nil:
		w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
		return nil, httpapi.Unauthorized.Problem(unknownKey)
	case tenant.Tenant.Suspended:
		return nil, httpapi.Suspended.Problem("No checks are answered for this tenant until an administrator lifts the suspension.")
	case !slices.Contains(key.Permissions, permission):
		return nil, httpapi.Forbidden.Problem("Use an API key with the permission " + string(permission) + ".")
	}
	return tenant, nil
}

// unknownKey is one answer for a key that does not exist and for a wrong secret: the two must not
// be told apart.
const unknownKey = "No API key in force has this id and secret."

// authenticate finds the key that the Authorization header carries, or says why there is none. That
// a key was revoked or has expired is told only to those who know its secret.
func (s *surface) authenticate(snapshot *rules.Snapshot, h http.Header) (key rules.Key, refusal string) {
	id, secret, ok := bearerKey(h["Authorization"])
	if !ok {
		return key, "Send an API key: Authorization: Bearer slk_<key id>_<secret>."
	}
	key, found := snapshot.Key(id)
	digest := rules.DigestSecret(secret)
	if subtle.ConstantTimeCompare(digest[:], key.Digest[:]) != 1 || !found {
		return rules.Key{}, unknownKey
	}
	switch {
	case key.Revoked:
		return rules.Key{}, "This API key was revoked; use another."
	case !key.ExpiresAt.IsZero() && !s.Now().Before(key.ExpiresAt):
		return rules.Key{}, "This API key has expired; use another."
	}
	return key, ""
}

// bearerKey takes the key out of the one Authorization header that there must be.
func bearerKey(authorization []string) (id, secret string, ok bool) {
	if len(authorization) != 1 {
		return "", "", false
	}
	scheme, token, _ := strings.Cut(authorization[0], " ")
	id, secret, ok = rules.SplitToken(strings.TrimLeft(token, " "))
	return id, secret, ok && strings.EqualFold(scheme, "Bearer")
}
