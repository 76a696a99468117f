package checkapi_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestHealthIsAnsweredWithoutAKey(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		path   string
		ready  httpapi.Readiness
		status int
		body   string
	}{
		"the process lives": {"/healthz", httpapi.Readiness{}, 200, `{"status":"ok","version":"v1.2.3"}`},
		"rules were loaded": {
			"/readyz",
			httpapi.Readiness{
				Open: true, RulesLoaded: true, RulesAge: 1500 * time.Microsecond, Database: "up",
				Redis: "memory",
			},
			200,
			`{"status":"ready","rules_loaded":true,"rules_age_ms":2,"database":"up","redis":"memory","warnings":[]}`,
		},
		"neighbours that are down do not take the process out of service": {
			"/readyz",
			httpapi.Readiness{
				Open: true, RulesLoaded: true, RulesAge: time.Hour, Database: "down", Redis: "down",
				Warnings: []string{"set noeviction", "and this"},
			},
			200,
			`{"status":"ready","rules_loaded":true,"rules_age_ms":3600000,"database":"down","redis":"down","warnings":["set noeviction","and this"]}`,
		},
		"rules were never loaded": {
			"/readyz",
			httpapi.Readiness{Database: "down", Redis: "up"},
			503,
			`{"status":"waiting for rules","rules_loaded":false,"rules_age_ms":null,"database":"down","redis":"up","warnings":[]}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, rules.DefaultSettings())
			h.snapshot, h.ready = nil, func() httpapi.Readiness { return test.ready }
			h.want(h.send("GET", test.path, nil, ""), test.status, test.body)
			h.want(h.send("HEAD", test.path, nil, ""), test.status, "")
			w := httptest.NewRecorder()
			httpapi.HealthHandler("v1.2.3", h.ready).ServeHTTP(w,
				httptest.NewRequestWithContext(t.Context(), "GET", test.path, nil))
			h.want(w, test.status, test.body)
		})
	}
}
