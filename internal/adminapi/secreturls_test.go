package adminapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
)

func TestWebhookURLsAreSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, viewer, rule := w.person(w.acme, auth.Owner), w.person(w.acme, auth.Viewer), w.rule(w.acme)
	_, key := w.key(w.acme, auth.PermissionRead, auth.PermissionAlerts, auth.PermissionSettings)
	w.refresh()
	const token, later = "tokenthatopensthechannel", "tokenofanotherplace"
	places := map[string]string{"alert": "", "audit_webhook": auditWebhookPath}
	alert := map[string]any{
		"name": "loud", "rule_id": fmt.Sprint(rule.ID), "per": "rule", "threshold": 5, "window_minutes": 10,
		"url": "https://hooks.example.com/in?t=" + token,
	}
	made := w.want(w.send(by, "POST", alerts, alert), http.StatusCreated)
	places["alert"] = made.header.Get("Location")
	w.want(w.send(by, "POST", auditWebhookPath, map[string]any{"url": "https://siem.example.com:8443/" + token}),
		http.StatusCreated)
	for table, path := range places {
		shown := read[struct{ URL string }](t, w.get(viewer, path)).URL
		if !strings.HasPrefix(shown, "https://") || !strings.Contains(shown, ".example.com") ||
			!strings.HasSuffix(shown, "/…nnel") {
			t.Errorf("a viewer sees of the %s %q, want the host and the last four characters", table, shown)
		}
		for name, body := range map[string]map[string]any{
			"without the URL": {"is_active": false}, "with the URL as it is shown": {"is_active": true, "url": shown},
		} {
			w.want(w.send(by, "PATCH", path, body, "If-Match", "*"), http.StatusOK)
			if w.count("SELECT count(*) FROM "+table+" WHERE url LIKE '%"+token+"'") != 1 {
				t.Errorf("a PATCH of the %s %s lost the URL", table, name)
			}
		}
		w.want(w.send(by, "PATCH", path, map[string]any{"url": "https://hooks.example.com/" + later}, "If-Match", "*"),
			http.StatusOK)
		if w.count("SELECT count(*) FROM "+table+" WHERE url LIKE '%"+later+"'") != 1 {
			t.Errorf("a PATCH of the %s with a URL did not change it", table)
		}
		w.want(w.send(by, "PATCH", path, map[string]any{"url": shown}, "If-Match", "*"), http.StatusBadRequest)
	}
	for _, reader := range []caller{viewer, by, {key: key}} {
		for _, path := range []string{
			"/alerts", "/audit-webhook", "/audit", "/audit/export",
			"/audit/export?format=jsonl",
		} {
			w.get(reader, "/api/v1/tenants/acme"+path)
		}
	}
	for _, got := range w.answers {
		if strings.Contains(got.body, token) || strings.Contains(got.body, later) {
			t.Errorf("%s answers the URL: %s", got.operation, got.body)
		}
	}
	if w.count("SELECT count(*) FROM audit_event WHERE to_jsonb(audit_event)::text LIKE '%thechannel%' OR "+
		"to_jsonb(audit_event)::text LIKE '%anotherplace%'") > 0 ||
		strings.Contains(w.log.String(), "channel") {
		t.Error("the audit log or the log has the URL")
	}
	if w.count("SELECT count(*) FROM audit_event WHERE object_kind IN ('alert', 'audit_webhook') AND act = 'new "+
		"URL'") != 2 {
		t.Error("the audit log does not say that the URLs changed")
	}
}
