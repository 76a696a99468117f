package adminapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
)

func TestAMappingIsEditedByVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant := w.tenant(w.name("tenant"))
	path := "/api/v1/tenants/" + tenant.Slug + "/gateways/authorize"
	by := w.person(tenant, auth.Editor)
	ask := func(method, ifMatch, body string) answer {
		t.Helper()
		q := request{method: method, path: path, body: body, header: map[string]string{"Content-Type": "application/json"}}
		if ifMatch != "" {
			q.header["If-Match"] = ifMatch
		}
		return w.do(by, q)
	}
	want := func(got answer, status int, part string) answer {
		t.Helper()
		if got.status != status || !strings.Contains(got.body, part) {
			t.Errorf("answered %d %s, want %d with %s", got.status, got.body, status, part)
		}
		return got
	}
	want(ask("GET", "", ""), 200, `"is_default":true`)
	want(ask("PUT", "", `{}`), 428, "")
	first := want(ask("PUT", `"0"`, `{"user":{"header":"X-User","plain":true},"attributes":{"org":{"header":"X-Org"}}}`), 200, `"header":"X-User"`)
	want(ask("PUT", `"0"`, `{}`), 412, "")
	want(ask("PUT", "*", `{"user":{"header":"a b"}}`), 400, `"/user/header"`)
	want(ask("PUT", "*", `{"users":{}}`), 400, "users")
	want(ask("PUT", "*", `{"jwt":{"jwks_url":"http://10.0.0.1/keys"}}`), 400, `"/jwt/jwks_url"`)
	want(ask("PUT", first.header.Get("ETag"), `{"cost":{"default":2.5}}`), 200, `"default":2.5`)
	want(ask("DELETE", first.header.Get("ETag"), ""), 412, "")
	want(ask("DELETE", "*", ""), 204, "")
	want(ask("GET", "", ""), 200, `"is_default":true`)
}

func TestASampleRequestShowsTheCheckThatItBecomes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant := w.tenant(w.name("tenant"))
	w.refresh()
	got := w.do(w.person(tenant, auth.Viewer), request{
		method: http.MethodPost, path: "/api/v1/tenants/" + tenant.Slug + "/gateways/authorize/try",
		header: map[string]string{"Content-Type": "application/json"},
		body: `{"method":"GET","uri":"/orders/17?limit=0.5","headers":[{"name":"x-forwarded-for","value":"9.9.9.9, 203.0.113.9"}],
			"claims":{"sub":42},"mapping":{"jwt":{"jwks_url":"https://id.example.com"},"user":{"claim":"sub"},
			"cost":{"query":"limit","default":0.25},"endpoint":{"templates":["/orders/{id}"]}}}`,
	})
	for _, part := range []string{`"user_id":"42"`, `"endpoint":"/orders/{id}"`, `"ip":"203.0.113.9"`, `"cost":0.5`, `"explanation":{"decision":{"allowed":true`} {
		if got.status != 200 || !strings.Contains(got.body, part) {
			t.Errorf("answered %d %s, want %s", got.status, got.body, part)
		}
	}
}
