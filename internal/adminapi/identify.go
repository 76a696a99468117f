package adminapi

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// identify finds out who asks: an API key if one is sent, else the person of the session.
func (s *surface) identify(v *visit) error {
	if authorization := v.r.Header["Authorization"]; len(authorization) > 0 {
		return s.identifyKey(v, authorization)
	}
	cookie, err := v.r.Cookie(sessionCookie(v.r))
	if err != nil {
		return unauthorized(v, "Sign in, or send an API key that has the permission manage: Authorization: Bearer slk_<key id>_<secret>.")
	}
	session, err := s.Gate.Authenticate(v.r.Context(), cookie.Value)
	switch {
	case errors.Is(err, auth.ErrSignedOut):
		return unauthorized(v, "This session has ended; sign in again.")
	case err != nil:
		return fmt.Errorf("find the session: %w", err)
	}
	v.session, v.actor = &session, session.Account.Actor()
	v.actor.RequestID = v.requestID
	return nil
}

// unknownKey is one answer for a key that does not exist and for a wrong secret: the two must not
// be told apart.
const unknownKey = "No API key in force has this id and secret."

func (s *surface) identifyKey(v *visit, authorization []string) error {
	snapshot := s.Snapshots.Snapshot()
	if snapshot == nil {
		v.w.Header().Set("Retry-After", "1")
		return httpapi.Unavailable.Problem("No API keys were loaded yet; try again in a second.")
	}
	scheme, token, _ := strings.Cut(authorization[0], " ")
	id, secret, ok := rules.SplitToken(strings.TrimLeft(token, " "))
	if !ok || len(authorization) != 1 || !strings.EqualFold(scheme, "Bearer") {
		return unauthorized(v, "Send one API key: Authorization: Bearer slk_<key id>_<secret>.")
	}
	key, found := snapshot.Key(id)
	digest := rules.DigestSecret(secret)
	if subtle.ConstantTimeCompare(digest[:], key.Digest[:]) != 1 || !found || snapshot.Tenant(key.TenantID) == nil {
		return unauthorized(v, unknownKey)
	}
	switch {
	case key.Revoked:
		return unauthorized(v, "This API key was revoked; use another.")
	case !key.ExpiresAt.IsZero() && !s.Now().Before(key.ExpiresAt):
		return unauthorized(v, "This API key has expired; use another.")
	}
	s.KeyUsed(id, s.Now())
	if !slices.Contains(key.Permissions, rules.PermissionManage) {
		return httpapi.Forbidden.Problem("Use an API key with the permission manage.")
	}
	// The audit log names keys as people do, which snapshots do not know.
	named, err := s.Stores.Key(v.r.Context(), key.TenantID, id)
	if err != nil {
		return fmt.Errorf("find the API key's name: %w", err)
	}
	v.key = &key
	v.actor = rules.Actor{Kind: rules.ActorKey, ID: id, Name: named.Name, RequestID: v.requestID}
	return nil
}

func unauthorized(v *visit, detail string) error {
	v.w.Header().Set("WWW-Authenticate", `Bearer realm="sluice"`)
	return httpapi.Unauthorized.Problem(detail)
}

// Names of cookies. The prefix __Host- makes browsers insist on Secure, on the whole host and on no
// other. On a loopback address without TLS they would refuse it, and the plain name is used.
const (
	plainSession = "sluice_session"
	plainDevice  = "sluice_device"
	hostPrefix   = "__Host-"

	// deviceLife is how long a browser is remembered for having signed in before.
	deviceLife = 365 * 24 * time.Hour
)

func sessionCookie(r *http.Request) string { return cookieName(r, plainSession) }
func deviceCookie(r *http.Request) string  { return cookieName(r, plainDevice) }

func cookieName(r *http.Request, plain string) string {
	if isPlainLoopback(r) {
		return plain
	}
	return hostPrefix + plain
}

// isPlainLoopback says that a browser on this machine asks without TLS. A browser names the host that
// it means, so no other site can pass for loopback.
func isPlainLoopback(r *http.Request) bool {
	if r.TLS != nil {
		return false
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// setCookie gives the browser a secret. A life of 0 ends with the browser.
func (v *visit) setCookie(name, value string, life time.Duration) {
	v.writeCookie(name, value, int(life/time.Second))
}

// forgetCookie takes it away.
func (v *visit) forgetCookie(name string) { v.writeCookie(name, "", -1) }

func (v *visit) writeCookie(name, value string, maxAge int) {
	http.SetCookie(v.w, &http.Cookie{ //nolint:gosec // not Secure on loopback without TLS only, where browsers would drop it
		Name: name, Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: strings.HasPrefix(name, hostPrefix),
	})
}

// browser is where the request comes from, for the gate.
func (v *visit) browser() auth.Browser {
	from := auth.Browser{UserAgent: v.r.UserAgent()}
	if cookie, err := v.r.Cookie(sessionCookie(v.r)); err == nil {
		from.Session = cookie.Value
	}
	if cookie, err := v.r.Cookie(deviceCookie(v.r)); err == nil {
		from.Device = cookie.Value
	}
	if address, err := netip.ParseAddrPort(v.r.RemoteAddr); err == nil {
		from.IP = address.Addr()
	}
	return from
}

// secure sets the headers that every answer has.
func (s *surface) secure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		if !isPlainLoopback(r) { // browsers ignore it without TLS
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}
