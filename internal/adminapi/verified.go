package adminapi

import (
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/shares"
)

// verified has digests of credentials that were valid at their last lookup: the latest 10,000 to 20,000, in 2 MB. A
// stranger cannot invent one, so takeLookup and checkNetworkBucket let them pass.
type verified struct {
	mu              sync.Mutex
	latest, earlier map[string]bool
}

const mostVerified = 10_000

func (v *verified) has(credential string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.latest[credential] || v.earlier[credential]
}

func (v *verified) add(credential string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.latest) >= mostVerified {
		v.earlier, v.latest = v.latest, nil
	}
	if v.latest == nil {
		v.latest = map[string]bool{}
	}
	v.latest[credential] = true
}

func (v *verified) remove(credential string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.latest, credential)
	delete(v.earlier, credential)
}

// credential covers the secret, so that knowing a key's id is not enough to use up its share.
func (s *surface) credential(r *http.Request) string {
	if authorization := r.Header["Authorization"]; slices.ContainsFunc(authorization, isBearer) {
		return digestOfCredential(strings.Join(authorization, "\n"))
	}
	if cookie, err := r.Cookie(s.cookie(plainSession)); err == nil {
		return digestOfCredential(cookie.Value)
	}
	return ""
}

func digestOfCredential(sent string) string {
	if sent == "" {
		return ""
	}
	digest := sha256.Sum256([]byte(sent))
	return string(digest[:])
}

func (s *surface) isVerified(q *apiRequest, credential string) bool {
	if s.verified.has(credential) {
		return true
	}
	authorization, latest := q.r.Header["Authorization"], s.Snapshots.Snapshot()
	if latest == nil || !slices.ContainsFunc(authorization, isBearer) {
		return false
	}
	_, _, refusal := latest.Authenticate(authorization, s.Now())
	return refusal == ""
}

const unverifiedTenant rules.TenantID = -1

// takeLookup gives a verified credential its own turn. Unverified ones wait by network and share half of the slots,
// because a stranger can send a new one with each request.
func (s *surface) takeLookup(q *apiRequest) (release func(), err error) {
	credential := s.credential(q.r)
	switch {
	case credential == "":
		return func() {}, nil
	case s.isVerified(q, credential):
		return s.semaphores.identify.Take(q.r.Context(), shares.Caller{Account: credential})
	}
	release, err = s.semaphores.identify.Take(q.r.Context(), shares.Caller{
		Tenant: unverifiedTenant, Account: "network:" + networkOf(q.r, s.TrustedProxies),
	})
	if errors.Is(err, shares.ErrTenant) {
		err = shares.ErrBusy // they have no tenant to name
	}
	return release, err
}

// checkNetworkBucket lets a flood of invented credentials cost no lookups. admitAndCharge takes the tokens.
func (s *surface) checkNetworkBucket(q *apiRequest) error {
	credential := s.credential(q.r)
	if q.route.least == anyone || credential == "" || !s.isLimited(q) || s.isVerified(q, credential) {
		return nil
	}
	decision := s.RateLimiter.look(q.r.Context(), costs[q.route.class], s.payersOf(q)...)
	if decision.Allowed {
		return nil
	}
	return s.deny(q, decision)
}
