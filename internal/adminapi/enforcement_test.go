package adminapi_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
)

func TestOwnersTurnTheSwitchForBadDays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner, editor := w.person(w.acme, auth.Owner), w.person(w.acme, auth.Editor)
	_, token := w.key(w.acme, auth.PermissionManage)
	w.refresh()
	const path = "/api/v1/tenants/acme"
	type tenant struct {
		Enforcement string `json:"enforcement"`
		Name        string `json:"name"`
	}
	turn := func(by caller, to, ifMatch string) answer {
		return w.send(by, "PATCH", path, map[string]any{"enforcement": to}, "If-Match", ifMatch)
	}

	first := w.get(owner, path)
	if got := read[tenant](t, first).Enforcement; got != "on" {
		t.Fatalf("a new tenant's enforcement is %q, want on", got)
	}
	for who, by := range map[string]caller{"an editor": editor, "a key": {key: token}} {
		if got := turn(by, "shadow", "*"); got.status != http.StatusForbidden {
			t.Errorf("%s is answered %d, want 403", who, got.status)
		}
	}
	w.want(turn(owner, "off", "*"), http.StatusBadRequest)
	w.want(w.send(owner, "PATCH", path, map[string]any{"enforcement": "shadow"}), http.StatusPreconditionRequired)
	turned := w.want(turn(owner, "shadow", first.header.Get("ETag")), http.StatusOK)
	if got := read[tenant](t, turned); got.Enforcement != "shadow" || got.Name != "acme" {
		t.Errorf("it became %+v, want acme in shadow", got)
	}
	w.want(turn(owner, "on", first.header.Get("ETag")), http.StatusPreconditionFailed)

	for _, list := range []string{"/api/v1/tenants", "/api/v1/session"} {
		if got := w.get(editor, list); !strings.Contains(got.body,
			`"enforcement":"shadow"`) {
			t.Errorf("%s does not say that acme is in shadow: %s", list, got.body)
		}
	}
	log := w.get(editor, path+"/audit?object_kind=tenant&object_id=acme&limit=1")
	for _, part := range []string{owner.account.Email, `"enforcement":"shadow"`, `"enforcement":"on"`} {
		if !strings.Contains(log.body, part) {
			t.Errorf("the audit log does not have %s: %s", part, log.body)
		}
	}

	file := w.get(owner, path+"/export")
	if strings.Contains(file.body, "enforcement") {
		t.Errorf("the exported file has the switch: %s", file.body)
	}
	w.want(w.do(owner, request{
		method: "POST", path: path + "/import?prune=true", body: file.body,
		header: map[string]string{"Content-Type": "application/yaml"},
	}), http.StatusOK)
	if got := read[tenant](t, w.send(owner, "GET", path, nil)).Enforcement; got != "shadow" {
		t.Errorf("after an import it is %q, want shadow still", got)
	}

	entry := read[struct {
		Items []struct {
			AuditID int64 `json:"audit_id,string"`
		} `json:"items"`
	}](t, log).Items[0].AuditID
	revert := path + "/audit/" + strconv.FormatInt(entry, 10) + "/revert"
	w.want(w.send(editor, "POST", revert, nil), http.StatusForbidden)
	w.want(w.send(owner, "POST", revert, nil), http.StatusOK)
	if got := read[tenant](t, w.send(owner, "GET", path, nil)).Enforcement; got != "on" {
		t.Errorf("after the revert it is %q, want on", got)
	}
}
