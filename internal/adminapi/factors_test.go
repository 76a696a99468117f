package adminapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/pquerna/otp/totp"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
)

func (w *world) code(secret string) string {
	w.t.Helper()
	if secret == "" {
		return "123456"
	}
	return must(totp.GenerateCode(secret, time.Now()))(w.t)
}

func (w *world) beginFactor(by caller) (secret string) {
	w.t.Helper()
	begun, err := w.gate.BeginSecondFactor(w.ctx(), auth.Session{ID: by.sessionID, Account: by.account})
	if err == nil {
		w.secrets = append(w.secrets, begun.Secret)
	}
	return begun.Secret
}

func (w *world) turnFactorOn(by caller) (secret string) {
	w.t.Helper()
	secret = w.beginFactor(by)
	if secret == "" {
		return ""
	}
	session := auth.Session{ID: by.sessionID, Account: by.account}
	codes := must(w.gate.TurnSecondFactorOn(w.ctx(), by.account.Actor(), session, w.code(secret), auth.Browser{}))(w.t)
	w.secrets = append(w.secrets, codes...)
	return secret
}

func (w *world) stale(by caller) caller {
	w.t.Helper()
	w.exec("UPDATE session SET created_at = created_at - interval '11 minutes', confirmed_at = NULL WHERE session_id "+
		"= $1", by.sessionID)
	return by
}

func (w *world) wantKind(got answer, status int, kind string) {
	w.t.Helper()
	if is := read[problem](w.t, got).Type; got.status != status || is != "urn:sluice:problem:"+kind {
		w.t.Errorf("%s answered %d %s, want %d %s: %s", got.operation, got.status, is, status, kind, got.body)
	}
}

func (w *world) auditEntries() (n int) {
	w.t.Helper()
	return w.count("SELECT (SELECT count(*) FROM audit_event) + (SELECT count(*) FROM platform_audit_event) + " +
		"(SELECT count(*) FROM second_factor)")
}

func TestUndoingThatAKeyWasMadeWantsAFreshSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.stale(w.person(w.acme, auth.Owner))
	id, _ := w.key(w.acme, auth.PermissionCheck)
	entries, _, err := w.store.Audit(w.ctx(), w.acme.ID, auth.AuditFilter{ObjectKind: "api_key", ObjectID: id},
		auth.LogCursor{}, 1)
	path := fmt.Sprintf("/api/v1/tenants/acme/audit/%d/revert", must(entries, err)(t)[0].ID)
	w.wantKind(w.send(by, "POST", path, nil), http.StatusForbidden, "fresh-proof-required")
	w.want(w.send(by, "POST", "/api/v1/session/confirm", map[string]any{"password": password}), http.StatusNoContent)
	w.want(w.send(by, "POST", path, nil), http.StatusOK)
}

func TestSigningInTakesTwoSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	enrolment := read[struct {
		Secret, URI string
		QR          struct {
			Size int
			Path string
		}
	}](t, w.want(w.send(by, "POST", "/api/v1/account/second-factor", nil), http.StatusOK))
	if enrolment.QR.Size < 21 || !strings.HasPrefix(enrolment.QR.Path, "M0 0h7v1h-7z") { // the corner of every QR code
		t.Errorf("the QR code is %+v", enrolment.QR)
	}
	wrong := w.want(w.send(by, "POST", "/api/v1/account/second-factor/confirm", map[string]any{"code": "12345"}),
		http.StatusBadRequest)
	if at := pointersOf(t, wrong); len(at) != 1 || at[0] != "/code" {
		t.Errorf("a wrong code is wrong at %q", at)
	}
	codes := read[struct {
		RecoveryCodes []string `json:"recovery_codes"`
	}](t, w.want(w.send(by, "POST", "/api/v1/account/second-factor/confirm",
		map[string]any{"code": w.code(enrolment.Secret)}), http.StatusOK))

	signIn := map[string]any{"email": by.account.Email, "password": password}
	first := w.want(w.send(caller{}, "POST", "/api/v1/session", signIn), http.StatusAccepted)
	cookies := first.header.Values("Set-Cookie")
	if len(cookies) != 1 || !strings.HasPrefix(cookies[0], "sluice_pending=") ||
		!strings.Contains(cookies[0], "HttpOnly") {
		t.Fatalf("the first step sets %q", cookies)
	}
	cookie, _, _ := strings.Cut(cookies[0], ";")
	half := caller{session: strings.TrimPrefix(cookie, "sluice_pending=")}
	w.want(w.send(half, "GET", "/api/v1/session", nil), http.StatusUnauthorized) // it is no session
	w.want(w.send(caller{}, "POST", "/api/v1/session/second-factor", map[string]any{"code": codes.RecoveryCodes[0]}),
		http.StatusUnauthorized)
	w.want(w.send(caller{}, "POST", "/api/v1/session/second-factor", map[string]any{"code": "000000"}, "Cookie",
		cookie), http.StatusBadRequest)
	second := w.want(w.send(caller{}, "POST", "/api/v1/session/second-factor",
		map[string]any{"code": codes.RecoveryCodes[0]}, "Cookie", cookie), http.StatusOK)
	if all := strings.Join(second.header.Values("Set-Cookie"), "\n"); !strings.Contains(all, "sluice_session=") ||
		!strings.Contains(all, "sluice_pending=;") {
		t.Errorf("the second step sets %q", all)
	}
	state := read[struct {
		Enabled       bool
		RecoveryCodes int `json:"recovery_codes"`
	}](t, w.get(by, "/api/v1/account/second-factor"))
	if !state.Enabled || state.RecoveryCodes != auth.RecoveryCodes-1 {
		t.Errorf("the factor is %+v", state)
	}
	w.want(w.send(by, "DELETE", "/api/v1/account/second-factor", nil), http.StatusNoContent)
	w.want(w.send(caller{}, "POST", "/api/v1/session", signIn), http.StatusOK)
}

func TestATenantCanRequireASecondFactor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, viewer := w.person(w.acme, auth.Owner), w.person(w.acme, auth.Viewer)
	require := func(required bool) request {
		return w.json("PATCH", "/api/v1/tenants/acme",
			map[string]any{"settings": map[string]any{"require_second_factor": required}})
	}
	w.wantKind(w.do(owner, require(true)), http.StatusConflict, "conflict") // who would lock themselves out
	w.turnFactorOn(owner)
	w.want(w.do(owner, require(true)), http.StatusOK)
	w.get(owner, "/api/v1/tenants/acme/rules")
	for _, path := range []string{
		"", "/rules", "/violations/tail", "/export",
		"/stats/summary?from=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z",
	} {
		w.wantKind(w.send(viewer, "GET", "/api/v1/tenants/acme"+path, nil), http.StatusForbidden,
			"second-factor-required")
	}
	w.wantKind(w.send(w.platformAdmin(), "GET", "/api/v1/tenants/acme/rules", nil), http.StatusForbidden,
		"second-factor-required")
	w.want(w.send(w.person(w.other, auth.Owner), "GET", "/api/v1/tenants/acme/rules", nil), http.StatusNotFound)
	w.get(viewer, "/api/v1/session")
	_, key := w.key(w.acme, auth.PermissionRead)
	w.refresh()
	w.get(caller{key: key}, "/api/v1/tenants/acme/rules")
	w.turnFactorOn(viewer)
	w.get(viewer, "/api/v1/tenants/acme/rules")

	entries, _, err := w.store.Audit(w.ctx(), w.acme.ID, auth.AuditFilter{ObjectKind: "tenant"}, auth.LogCursor{}, 1)
	path := fmt.Sprintf("/api/v1/tenants/acme/audit/%d/revert", must(entries, err)(t)[0].ID)
	w.want(w.send(owner, "POST", path, nil), http.StatusConflict)
	w.wantKind(w.do(w.stale(owner), require(false)), http.StatusForbidden, "fresh-proof-required")
}

func TestThePlatformCanRequireASecondFactor(t *testing.T) {
	t.Parallel()
	for required, wants := range map[auth.RequireFactor][2]int{
		auth.RequireAdmins:   {http.StatusForbidden, http.StatusOK},
		auth.RequireEveryone: {http.StatusForbidden, http.StatusForbidden},
	} {
		w := newWorld(t, func(c *adminapi.Config) {
			c.Gate = auth.NewGate(c.People,
				auth.Options{
					RequireFactor: required,
					Vault:         must(auth.NewVault("c2l4dGVlbiBieXRlcyBhbmQgc2l4dGVlbiBtb3JlISE="))(t),
				})
		})
		for i, by := range []caller{w.platformAdmin(), w.person(w.acme, auth.Owner)} {
			for _, path := range []string{"/api/v1/tenants", "/api/v1/tenants/acme/rules"} {
				if got := w.send(by, "GET", path, nil); got.status != wants[i] {
					t.Errorf("with %s, %s answers %d, want %d: %s", required, path, got.status, wants[i], got.body)
				}
			}
			session := read[struct {
				Required bool `json:"second_factor_required"`
			}](t, w.get(by, "/api/v1/session"))
			if session.Required != (wants[i] == http.StatusForbidden) {
				t.Errorf("with %s, the session says %v", required, session.Required)
			}
			w.turnFactorOn(by)
			w.get(by, "/api/v1/tenants/acme/rules")
		}
	}
}

func TestEveryOperationWantsTheFactorThatThePlatformRequires(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *adminapi.Config) {
		c.Gate = auth.NewGate(c.People,
			auth.Options{
				RequireFactor: auth.RequireEveryone,
				Vault:         must(auth.NewVault("c2l4dGVlbiBieXRlcyBhbmQgc2l4dGVlbiBtb3JlISE="))(t),
			})
	})
	callers := map[string]caller{"an owner": w.person(w.acme, auth.Owner), "a platform admin": w.platformAdmin()}
	eachOperation(w.description, func(method, path string, o *openapi3.Operation) {
		least := o.Extensions["x-least-role"]
		if least == "anyone" || least == "account" && method != http.MethodGet {
			return
		}
		q := w.newFixture(w.acme, caller{}, path).request(method, path, o)
		for name, by := range callers {
			if least == "account" {
				w.want(w.do(by, q), success(o))
			} else if got := w.do(by, q); got.status != http.StatusForbidden ||
				read[problem](t, got).Type != "urn:sluice:problem:second-factor-required" {
				t.Errorf("%s by %s without the factor is answered %d, want 403 second-factor-required: %s",
					o.OperationID, name, got.status, got.body)
			}
		}
	})
}

func TestOwnersSeeWhoHasASecondFactor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, editor, viewer := w.person(w.acme, auth.Owner), w.person(w.acme, auth.Editor), w.person(w.acme, auth.Viewer)
	w.turnFactorOn(editor)
	_, reading := w.key(w.acme, auth.PermissionRead)
	_, managing := w.key(w.acme, auth.PermissionMembers)
	w.refresh()
	yes, no := new(true), new(false)
	for name, test := range map[string]struct {
		by             caller
		editor, viewer *bool
	}{
		"an owner":                        {owner, yes, no},
		"a platform admin":                {w.platformAdmin(), yes, no},
		"a key that manages members":      {caller{key: managing}, yes, no},
		"a key that reads":                {caller{key: reading}, nil, nil},
		"an editor, even of their own":    {editor, nil, nil},
		"a viewer, even of the same role": {viewer, nil, nil},
	} {
		list := read[struct {
			Items []struct {
				ID     int64 `json:"account_id,string"`
				Factor *bool `json:"second_factor"`
			}
		}](t, w.get(test.by, "/api/v1/tenants/acme/members"))
		seen := map[int64]*bool{}
		for _, member := range list.Items {
			seen[member.ID] = member.Factor
		}
		for id, want := range map[auth.AccountID]*bool{editor.account.ID: test.editor, viewer.account.ID: test.viewer} {
			if got := seen[int64(id)]; (got == nil) != (want == nil) || got != nil && *got != *want {
				t.Errorf("%s sees %v of account %d, want %v", name, got, id, want)
			}
		}
	}
}
