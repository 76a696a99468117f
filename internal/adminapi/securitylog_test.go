package adminapi_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
)

type securityLog struct {
	Items []struct {
		EventID   string `json:"event_id"`
		Kind      string `json:"kind"`
		Count     int    `json:"count"`
		Succeeded bool   `json:"succeeded"`
		Who       string `json:"who"`
		Typed     string `json:"typed"`
		KeyID     string `json:"key_id"`
		Tenant    string `json:"tenant"`
		UserAgent string `json:"user_agent"`
		IP        string `json:"ip"`
	} `json:"items"`
	Next string `json:"next_cursor"`
}

func (l *securityLog) kinds() string {
	var kinds []string
	for _, item := range l.Items {
		kinds = append(kinds, item.Kind)
	}
	slices.Sort(kinds)
	return strings.Join(kinds, " ")
}

func TestTheSecurityLogIsShownToThoseItConcerns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada, owner, admin := w.person(w.acme, auth.Viewer), w.person(w.acme, auth.Owner), w.platformAdmin()
	logOf := func(by caller, address string) securityLog {
		t.Helper()
		return read[securityLog](t, w.want(w.send(by, "GET", address, nil), http.StatusOK))
	}
	signIn := func(email, password string, want int) {
		w.want(w.send(caller{}, "POST", "/api/v1/session", map[string]any{"email": email, "password": password},
			"User-Agent", "=cmd|Netscape"), want)
	}
	signIn(ada.account.Email, password, http.StatusOK)
	if got := logOf(ada, "/api/v1/account/security-log"); got.kinds() != "signed_in" ||
		got.Items[0].IP != "192.0.2.1" || !got.Items[0].Succeeded {
		t.Errorf("at once the account's log has %+v", got)
	}
	signIn(strings.ToUpper(ada.account.Email), "not the password at all", http.StatusUnauthorized)
	signIn("not an address: my password", "x", http.StatusUnauthorized)
	w.want(w.send(ada, "POST", "/api/v1/tenants/acme/plans", map[string]any{"name": "gold"}), http.StatusForbidden)
	w.want(w.send(owner, "GET", "/api/v1/tenants/acme/users/export", nil), http.StatusOK)
	id, token := w.key(w.acme, auth.PermissionManage)
	w.exec("UPDATE api_key SET networks = '{198.51.100.0/24}' WHERE key_id = $1", id)
	w.refresh()
	w.want(w.send(caller{key: token}, "GET", "/api/v1/tenants/acme", nil), http.StatusForbidden)
	w.want(w.send(caller{}, "POST", "/api/v1/password-reset", map[string]any{"email": ada.account.Email}),
		http.StatusNoContent)
	w.access.Flush(w.ctx())

	if got := logOf(ada, "/api/v1/account/security-log"); got.kinds() != "denied reset_asked sign_in_failed signed_in" {
		t.Errorf("the account's own log has %s", got.kinds())
	}
	if got := logOf(owner, "/api/v1/tenants/acme/security-log"); got.kinds() != "denied exported outside_network" {
		t.Errorf("the tenant's log has %s", got.kinds())
	}
	if got := logOf(admin, "/api/v1/tenants/other/security-log"); got.kinds() != "" {
		t.Errorf("another tenant's log has %s", got.kinds())
	}
	everything := logOf(admin, "/api/v1/security-log")
	if got := everything.kinds(); got != "denied exported outside_network reset_asked sign_in_failed sign_in_failed "+
		"signed_in" {
		t.Errorf("the whole log has %s", got)
	}
	for query, want := range map[string]string{
		"kind=outside_network":                          "outside_network",
		"account_id=" + formatID(ada.account.ID):        "denied signed_in",
		"email=" + url.QueryEscape(ada.account.Email):   "denied reset_asked sign_in_failed signed_in",
		"tenant=acme":                                   "denied exported outside_network",
		"tenant=acme&kind=denied":                       "denied",
		"ip=192.0.2.1&kind=signed_in":                   "signed_in",
		"ip=2001:db8::1":                                "",
		"from=2999-01-01T00:00:00Z":                     "",
		"until=2020-01-01T00:00:00Z":                    "",
		"from=2020-01-01T00:00:00Z&kind=sign_in_failed": "sign_in_failed sign_in_failed",
	} {
		if got := logOf(admin, "/api/v1/security-log?"+query); got.kinds() != want {
			t.Errorf("with %s the log has %q, want %q", query, got.kinds(), want)
		}
	}
	w.want(w.send(admin, "GET", "/api/v1/security-log?ip=nowhere", nil), http.StatusBadRequest)

	var paged []string
	for address := "/api/v1/security-log?limit=2"; address != ""; {
		page := logOf(admin, address)
		for _, item := range page.Items {
			paged = append(paged, item.EventID)
		}
		address = ""
		if page.Next != "" {
			address = "/api/v1/security-log?limit=2&cursor=" + page.Next
		}
	}
	if len(paged) < len(everything.Items) || len(slices.Compact(slices.Sorted(slices.Values(paged)))) != len(paged) {
		t.Errorf("pages have %d entries, some twice, want all of %d once", len(paged), len(everything.Items))
	}

	file := w.want(w.send(admin, "GET", "/api/v1/security-log/export?kind=signed_in", nil), http.StatusOK).body
	if !strings.HasPrefix(file, "event_id,at,count,kind,") || !strings.Contains(file, "'=cmd|Netscape") ||
		strings.Count(file, "\n") != 2 {
		t.Errorf("the file is %s", file)
	}
	for _, item := range everything.Items {
		if item.Typed != "" && !auth.SameAddress(item.Typed, ada.account.Email) {
			t.Errorf("the log has %q", item.Typed)
		}
	}
	w.wantNoSecrets()
}

func TestATenantsLogHasTheRefusalsOfItsKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.person(w.acme, auth.Owner)
	for _, refused := range []struct{ kind, permission, change string }{
		{"refused", "manage", "revoked_at = now()"},
		{"refused", "manage", "expires_at = now() - interval '1 hour'"},
		{"outside_network", "manage", "networks = '{198.51.100.0/24}'"},
		{"denied", "check", "networks = '{}'"},
	} {
		id, token := w.key(w.acme, auth.Permission(refused.permission))
		w.refresh()
		w.exec("UPDATE api_key SET "+refused.change+" WHERE key_id = $1", id)
		for _, isKnown := range []bool{false, true} { // to the snapshot, which is a second late
			if isKnown {
				w.refresh()
			}
			w.send(caller{key: token}, "GET", "/api/v1/tenants/other", nil)
			w.access.Flush(w.ctx())
			log := read[securityLog](t, w.want(w.send(owner, "GET",
				"/api/v1/tenants/acme/security-log?kind="+refused.kind, nil), http.StatusOK))
			if len(log.Items) == 0 || log.Items[0].KeyID != id || log.Items[0].Tenant != "acme" {
				t.Errorf("%s, known to the snapshot %v: the log has %+v", refused.change, isKnown, log.Items)
			}
		}
	}
	id, _ := w.key(w.acme, auth.PermissionManage)
	w.refresh()
	w.send(caller{key: "slk_" + id + "_" + strings.Repeat("0", 32)}, "GET", "/api/v1/tenants/acme", nil)
	w.access.Flush(w.ctx())
	everything := read[securityLog](t,
		w.want(w.send(w.platformAdmin(), "GET", "/api/v1/security-log?kind=refused&limit=1", nil), http.StatusOK))
	if len(everything.Items) != 1 || everything.Items[0].KeyID != "" || everything.Items[0].Tenant != "" {
		t.Errorf("a made-up secret is logged as %+v", everything.Items)
	}
}

func TestAnUnprovenAccountIsNotShownWhatStrangersDidForItsAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	claimed := w.person(w.acme, auth.Viewer)
	w.exec("UPDATE account SET unproven_in = $1 WHERE account_id = $2", w.acme.ID, claimed.account.ID)
	w.want(w.send(caller{}, "POST", "/api/v1/session", map[string]any{"email": claimed.account.Email, "password": "x"}),
		http.StatusUnauthorized)
	w.access.Flush(w.ctx())
	got := read[securityLog](t, w.want(w.send(claimed, "GET", "/api/v1/account/security-log", nil), http.StatusOK))
	if got.kinds() != "" {
		t.Errorf("it is shown %s", got.kinds())
	}
}
