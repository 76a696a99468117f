package adminapi_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/notify/webhook"
	"github.com/sluicegate/sluice/internal/rules"
)

func (w *world) auditWebhook(tenant rules.Tenant, exists bool) {
	w.t.Helper()
	w.exec("WITH webhook AS (DELETE FROM audit_webhook WHERE tenant_id = $1) DELETE FROM job WHERE tenant_id = $1 AND "+
		"kind IN ($2, $3)", tenant.ID, auth.AuditWebhookKind, auth.AuditTestKind)
	if !exists {
		return
	}
	secret := "whs_of_" + w.name("audit") + "_0123456789abcdef"
	w.secrets = append(w.secrets, secret)
	must(w.store.CreateAuditWebhook(w.ctx(), rules.Actor{Kind: rules.ActorSystem}, auth.AuditWebhook{
		Tenant: tenant.ID, URL: "https://example.com/audit", Secret: secret, Active: true,
	}))(w.t)
}

const auditWebhookPath = "/api/v1/tenants/acme/audit-webhook"

type auditWebhookShown struct {
	URL           string  `json:"url"`
	IsActive      bool    `json:"is_active"`
	Version       int64   `json:"version"`
	Waiting       int64   `json:"waiting"`
	Failures      int     `json:"failures"`
	LastStatus    *int    `json:"last_status"`
	LastError     string  `json:"last_error"`
	NextAttemptAt *string `json:"next_attempt_at"`
	Test          *struct {
		IsWaiting bool    `json:"is_waiting"`
		EndedAt   *string `json:"ended_at"`
		Error     string  `json:"error"`
	} `json:"test"`
}

func TestTheAuditLogIsSentToAWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	w.want(w.send(by, "GET", auditWebhookPath, nil), http.StatusNotFound)
	w.want(w.send(by, "GET", auditWebhookPath+"?optional=true", nil), http.StatusNoContent)
	made := w.want(w.send(by, "POST", auditWebhookPath, map[string]any{"url": "https://example.com/audit"}),
		http.StatusCreated)
	first := read[struct {
		Webhook auditWebhookShown `json:"webhook"`
		Secret  string            `json:"secret"`
	}](t, made)
	w.want(w.send(by, "POST", auditWebhookPath, map[string]any{"url": "https://example.com/other"}),
		http.StatusConflict)
	rotated := w.want(w.send(by, "POST", auditWebhookPath+"/rotate", nil, "If-Match", made.header.Get("ETag")),
		http.StatusOK)
	second := read[struct {
		Secret string `json:"secret"`
	}](t, rotated)
	if made.header.Get("Location") != auditWebhookPath || !first.Webhook.IsActive || first.Secret == second.Secret ||
		len(first.Secret) < 30 {
		t.Errorf("it is made as %s and rotated to %s", made.body, rotated.body)
	}
	changed := w.send(by, "PATCH", auditWebhookPath, map[string]any{"url": "https://example.com/audit2"}, "If-Match",
		rotated.header.Get("ETag"))
	if got := read[auditWebhookShown](t, w.want(changed, http.StatusOK)); got.URL != "https://example.com/…" ||
		!got.IsActive || got.Waiting != 3 {
		t.Errorf("it is changed to %+v", got)
	}
	for _, stale := range []answer{
		w.send(by, "PATCH", auditWebhookPath, map[string]any{"is_active": false}, "If-Match", `"1"`),
		w.send(by, "POST", auditWebhookPath+"/rotate", nil, "If-Match", `"1"`),
		w.send(by, "DELETE", auditWebhookPath, nil, "If-Match", `"1"`),
	} {
		if stale.status != http.StatusPreconditionFailed || stale.header.Get("ETag") != `"3"` {
			t.Errorf("%s of an old version is answered %d with the ETag %s", stale.operation, stale.status,
				stale.header.Get("ETag"))
		}
	}
	if got := read[auditWebhookShown](t,
		w.want(w.send(by, "POST", auditWebhookPath+"/test", nil), http.StatusOK)); got.Test == nil ||
		!got.Test.IsWaiting {
		t.Errorf("after a test was asked for it is %+v", got)
	}
	w.want(w.send(by, "POST", auditWebhookPath+"/test", nil), http.StatusConflict)
	w.exec("UPDATE audit_webhook SET url = 'http://127.0.0.1:1/?token=hunter2'")
	w.work(auth.AuditKinds(w.store, webhook.New(webhook.Options{}))...)
	got := read[auditWebhookShown](t, w.get(by, auditWebhookPath))
	if got.Test == nil || got.Test.EndedAt == nil || got.Test.Error == "" || got.Failures != 1 ||
		got.LastStatus != nil ||
		!strings.Contains(got.LastError, "not public") || strings.Contains(got.LastError, "hunter2") ||
		got.NextAttemptAt == nil {
		t.Errorf("after two attempts it is %+v", got)
	}
	w.want(w.send(by, "DELETE", auditWebhookPath, nil, "If-Match", "*"), http.StatusNoContent)
	w.want(w.send(by, "GET", auditWebhookPath, nil), http.StatusNotFound)
	for _, path := range []string{"/api/v1/tenants/acme/audit", "/api/v1/tenants/acme/audit/export"} {
		got := w.get(by, path+"?object_kind=audit_webhook")
		if strings.Contains(got.body, "whs_") || !strings.Contains(got.body, "rotate secret") {
			t.Errorf("%s has %s", path, got.body)
		}
	}
	w.wantNoSecrets()
}

func TestAnAuditWebhookInsideTheNetworkIsRefusedWhenItIsSaved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *adminapi.Config) { c.CheckTarget = webhook.New(webhook.Options{}).CheckTarget })
	by := w.person(w.acme, auth.Owner)
	wrong := func(method, url string) {
		t.Helper()
		got := w.want(w.send(by, method, auditWebhookPath, map[string]any{"url": url}, "If-Match", "*"),
			http.StatusBadRequest)
		if pointers := pointersOf(t, got); !slices.Equal(pointers, []string{"/url"}) {
			t.Errorf("%s of %s points at %v", method, url, pointers)
		}
	}
	urls := []string{
		"http://10.0.0.1/", "http://[::1]/", "http://localhost/", "ftp://example.com",
		"https://u:p@example.com", "",
	}
	for _, url := range urls {
		wrong("POST", url)
	}
	w.auditWebhook(w.acme, true)
	for _, url := range urls {
		wrong("PATCH", url)
	}
	w.exec("UPDATE audit_webhook SET url = 'http://10.0.0.1/'")
	w.want(w.send(by, "PATCH", auditWebhookPath, map[string]any{"is_active": false}, "If-Match", "*"), http.StatusOK)
}
