package adminapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
)

func TestWhoGotInAndWhoDidNotIsLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	viewer, admin := w.person(w.acme, auth.Viewer), w.platformAdmin()
	signIn := func(email, password string) answer {
		return w.send(caller{}, "POST", "/api/v1/session", map[string]any{"email": email, "password": password},
			"User-Agent", "Netscape")
	}
	w.want(signIn(viewer.account.Email, password), http.StatusOK)
	w.want(signIn(viewer.account.Email, "not the password at all"), http.StatusUnauthorized)
	w.want(signIn("a secret typed as an address", "x"), http.StatusUnauthorized)
	w.want(w.send(viewer, "POST", "/api/v1/tenants/acme/plans", map[string]any{"name": "gold"}), http.StatusForbidden)
	w.get(viewer, "/api/v1/tenants/acme/users/export")
	w.want(w.send(viewer, "PUT", "/api/v1/account/password",
		map[string]any{"current_password": "not it, not it", "new_password": "some new password"}),
		http.StatusBadRequest)
	w.want(w.send(viewer, "DELETE", "/api/v1/session", nil), http.StatusNoContent)
	w.want(w.send(viewer, "GET", "/api/v1/session", nil), http.StatusUnauthorized)
	w.want(w.send(caller{key: "slk_nobody_0123456789abcdef0123456789abcdef"}, "GET", "/api/v1/tenants", nil),
		http.StatusUnauthorized)
	w.want(w.send(caller{}, "GET", "/api/v1/tenants", nil), http.StatusUnauthorized) // who sends nothing is no event
	w.want(w.send(admin, "DELETE", "/api/v1/sessions", nil), http.StatusNoContent)
	w.access.Flush(w.ctx())
	log := w.log.String()
	for _, want := range []string{
		"event=signed_in count=1 account_id=" + formatID(viewer.account.ID) + " who=" + viewer.account.Email,
		"event=sign_in_failed count=1 account_id=0",
		"user_agent=Netscape", "ip=192.0.2.1",
		"event=denied count=1 account_id=" + formatID(viewer.account.ID),
		`detail="POST /api/v1/tenants/{tenant}/plans"`,
		"event=exported", "event=password_failed", "event=signed_out", "event=refused", "event=sessions_ended",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("no line of the log has %s", want)
		}
	}
	if strings.Contains(log, "typed as an address") || strings.Contains(log, "not the password") {
		t.Error("the log has what was typed")
	}
	if count := strings.Count(log, "event="); count != 10 {
		t.Errorf("%d events were logged, want 10", count)
	}
	w.wantNoSecrets()
}
