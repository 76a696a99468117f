package adminapi

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func (s *surface) identify(q *apiRequest) error {
	err := s.authenticate(q)
	var problem *httpapi.Problem
	switch {
	case err == nil:
		s.verified.add(s.credential(q.r))
	case errors.As(err, &problem) && problem.Status == http.StatusUnauthorized:
		s.verified.remove(s.credential(q.r))
	}
	return err
}

// authenticate ignores schemes other than Bearer, because a proxy in front may make browsers send Basic.
func (s *surface) authenticate(q *apiRequest) error {
	authorization := q.r.Header["Authorization"]
	if slices.ContainsFunc(authorization, isBearer) {
		return s.identifyKey(q, authorization)
	}
	cookie, err := q.r.Cookie(s.cookie(plainSession))
	if err != nil {
		return unauthorized(q, "Sign in, or send an API key: Authorization: Bearer slk_<key id>_<secret>.")
	}
	authenticate := s.Gate.Authenticate
	if q.isUnattended {
		authenticate = s.Gate.Recheck
	}
	session, err := authenticate(q.r.Context(), cookie.Value)
	switch {
	case errors.Is(err, auth.ErrSignedOut):
		return unauthorized(q, "This session has ended; sign in again.")
	case err != nil:
		return fmt.Errorf("find the session: %w", err)
	}
	q.session, q.actor = &session, session.Account.Actor()
	q.actor.RequestID = q.requestID
	return nil
}

func isBearer(authorization string) bool {
	scheme, _, _ := strings.Cut(authorization, " ")
	return strings.EqualFold(scheme, "Bearer")
}

func (s *surface) identifyKey(q *apiRequest, authorization []string) error {
	if len(authorization) == 1 {
		_, token, _ := strings.Cut(authorization[0], " ")
		if id, secret, ok := auth.SplitKeyToken(strings.TrimSpace(token)); ok && auth.IsServiceKeyID(id) {
			return s.identifyServiceKey(q, id, secret)
		}
	}
	latest := s.Snapshots.Snapshot()
	if latest == nil {
		q.w.Header().Set("Retry-After", "1")
		return fmt.Errorf("%w (%w)", // an outage, for which the caller's network does not pay
			httpapi.Unavailable.Problem("No API keys were loaded yet; try again in a second."), rules.ErrAway)
	}
	key, _, refusal := latest.Authenticate(authorization, s.Now())
	if key != nil {
		q.refused = &key.Key
	}
	if refusal != "" {
		return unauthorized(q, refusal)
	}
	if err := s.checkNetwork(q, &key.Key); err != nil {
		return err
	}
	s.KeyUsed(key, s.Now())
	if !slices.ContainsFunc(auth.ServicePermissions, key.Has) {
		return httpapi.Forbidden.Problem("Use an API key with the permission manage, or one of its parts.")
	}
	// Snapshots lack the key's name, for the audit log, and learn of a revocation some seconds later.
	named, err := s.Stores.Key(q.r.Context(), key.TenantID, key.ID)
	switch {
	case errors.Is(err, rules.ErrNotFound):
		return unauthorized(q, snapshot.UnknownKey)
	case err != nil:
		return fmt.Errorf("find the API key's name: %w", err)
	}
	if refusal := named.Refusal(s.Now()); refusal != "" {
		return unauthorized(q, refusal)
	}
	if err := s.checkNetwork(q, &named.Key); err != nil {
		return err
	}
	q.beKey(&named)
	return nil
}

func (s *surface) identifyServiceKey(q *apiRequest, id, secret string) error {
	key, err := s.Stores.Key(q.r.Context(), 0, id)
	if err != nil && !errors.Is(err, rules.ErrNotFound) {
		return fmt.Errorf("find the service key: %w", err)
	}
	digest := auth.DigestSecret(secret)
	if subtle.ConstantTimeCompare(digest[:], key.Digest[:]) != 1 || err != nil {
		return unauthorized(q, snapshot.UnknownKey)
	}
	q.refused = &key.Key
	if refusal := key.Refusal(s.Now()); refusal != "" {
		return unauthorized(q, refusal)
	}
	if err := s.checkNetwork(q, &key.Key); err != nil {
		return err
	}
	if err := s.People.ServiceKeyUsed(q.r.Context(), id); err != nil {
		return err
	}
	q.beKey(&key)
	return nil
}

func (q *apiRequest) beKey(key *auth.NamedKey) {
	q.key, q.refused = &key.Key, nil
	q.actor = rules.Actor{Kind: rules.ActorKey, ID: key.ID, Name: key.Name, RequestID: q.requestID}
}

func (s *surface) checkNetwork(q *apiRequest, key *auth.Key) error {
	if key.AllowsFrom(clientIP(q.r, s.TrustedProxies)) {
		return nil
	}
	q.isOutside = true
	return httpapi.Forbidden.Problem(
		"This API key may not be used from this address; its owner can add the network to the key.")
}

func unauthorized(q *apiRequest, detail string) error {
	q.w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
	return httpapi.Unauthorized.Problem(detail)
}

// The prefix __Host- makes browsers require Secure and bind the cookie to the host.
const (
	plainSession = "sluice_session"
	plainDevice  = "sluice_device"
	plainPending = "sluice_pending" // a sign-in that waits for the second factor
	plainFlow    = "sluice_flow"
	hostPrefix   = "__Host-"

	deviceLife = 365 * 24 * time.Hour
)

func (s *surface) cookie(plain string) string {
	if s.PlainCookies {
		return plain
	}
	return hostPrefix + plain
}

// A life of 0 ends with the browser's session.
func (q *apiRequest) setCookie(name, value string, life time.Duration) {
	q.writeCookie(name, value, int(life/time.Second))
}

func (q *apiRequest) forgetCookie(name string) { q.writeCookie(name, "", -1) }

func (q *apiRequest) writeCookie(name, value string, maxAge int) {
	http.SetCookie(q.w,
		&http.Cookie{ //nolint:gosec // not Secure only with Config.PlainCookies, where browsers would drop it
			Name: name, Value: value, Path: "/", MaxAge: maxAge,
			HttpOnly: true, SameSite: http.SameSiteLaxMode,
			Secure: strings.HasPrefix(name, hostPrefix),
		})
}

func (s *surface) browser(q *apiRequest) auth.Browser {
	from := auth.Browser{UserAgent: q.r.UserAgent()}
	if cookie, err := q.r.Cookie(s.cookie(plainSession)); err == nil {
		from.Session = cookie.Value
	}
	if cookie, err := q.r.Cookie(s.cookie(plainDevice)); err == nil {
		from.Device = cookie.Value
	}
	from.IP = clientIP(q.r, s.TrustedProxies)
	return from
}

func (s *surface) secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		if !s.PlainCookies { // browsers ignore it without TLS
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}
