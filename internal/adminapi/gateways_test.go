package adminapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

// asker sends a mapping, expecting a status and a part of the answer.
func (w *world) asker(by caller, path string) func(method, ifMatch, body string, status int, part string) answer {
	return func(method, ifMatch, body string, status int, part string) answer {
		w.t.Helper()
		q := request{
			method: method, path: path, body: body, header: map[string]string{"Content-Type": "application/json"},
		}
		if ifMatch != "" {
			q.header["If-Match"] = ifMatch
		}
		got := w.do(by, q)
		if got.status != status || !strings.Contains(got.body, part) {
			w.t.Errorf("answered %d %s, want %d with %s", got.status, got.body, status, part)
		}
		return got
	}
}

func TestAMappingIsEditedByVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant := w.tenant(w.name("tenant"))
	ask := w.asker(w.person(tenant, auth.Editor), "/api/v1/tenants/"+tenant.Slug+"/gateways/authorize")
	ask("GET", "", "", 200, `"is_default":true`)
	ask("PUT", "", `{}`, 428, "")
	first := ask("PUT", `"0"`,
		`{"user":{"header":"X-User","plain":true},"attributes":{"org":{"header":"X-Org"}}}`, 200, `"header":"X-User"`)
	ask("PUT", `"0"`, `{}`, 412, "")
	ask("PUT", "*", `{"user":{"header":"a b"}}`, 400, `"/user/header"`)
	ask("PUT", "*", `{"users":{}}`, 400, "users")
	ask("PUT", "*", `{"jwt":{"jwks_url":"http://10.0.0.1/keys"}}`, 400, `"/jwt/jwks_url"`)
	ask("PUT", first.header.Get("ETag"), `{"cost":{"default":2.5}}`, 200, `"default":2.5`)
	ask("DELETE", first.header.Get("ETag"), "", 412, "")
	ask("DELETE", "*", "", 204, "")
	ask("GET", "", "", 200, `"is_default":true`)
}

func TestASampleRequestShowsTheCheckThatItBecomes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant := w.tenant(w.name("tenant"))
	w.refresh()
	got := w.do(w.person(tenant, auth.Viewer), request{
		method: http.MethodPost, path: "/api/v1/tenants/" + tenant.Slug + "/gateways/authorize/try",
		header: map[string]string{"Content-Type": "application/json"},
		body: `{"method":"GET","uri":"/orders/17?limit=0.5",
			"headers":[{"name":"x-forwarded-for","value":"9.9.9.9, 203.0.113.9"}],"claims":{"sub":42},
			"mapping":{"jwt":{"jwks_url":"https://id.example.com"},"user":{"claim":"sub"},
			"cost":{"query":"limit","default":0.25},"endpoint":{"templates":["/orders/{id}"]}}}`,
	})
	for _, part := range []string{
		`"user_id":"42"`, `"endpoint":"/orders/{id}"`, `"ip":"203.0.113.9"`, `"cost":0.5`,
		`"explanation":{"decision":{"allowed":true`,
	} {
		if got.status != 200 || !strings.Contains(got.body, part) {
			t.Errorf("answered %d %s, want %s", got.status, got.body, part)
		}
	}
}

func TestAMappingOfDescriptorsIsEditedByVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant := w.tenant(w.name("tenant"))
	by := w.person(tenant, auth.Editor)
	ask := w.asker(by, "/api/v1/tenants/"+tenant.Slug+"/gateways/descriptors")
	ask("GET", "", "", 200, `"is_default":true`)
	ask("PUT", "", `{}`, 428, "")
	first := ask("PUT", `"0"`,
		`{"keys":{"customer":"user_id"},
			"domains":{"edge":{"templates":[["a=1","b"],["c"]],"replaces":{"a=1,b":["c"]}}}}`,
		200, `"replaces":{"a=1,b":["c"]}`)
	ask("PUT", `"0"`, `{}`, 412, "")
	ask("PUT", "*", `{"keys":{"a":"cost"}}`, 400, `"/keys/a"`)
	ask("PUT", "*", `{"domains":{"edge":{"templates":[["a"],["a"]]}}}`, 400, `"/domains/edge/templates/1"`)
	ask("PUT", "*", `{"domains":{"edge":{"templates":[["a"]],"replaces":{"a":["b"]}}}}`, 400,
		`"/domains/edge/replaces"`)
	ask("PUT", "*", `{"domain":{}}`, 400, "domain")
	ask("PUT", first.header.Get("ETag"), `{"domains":{"edge":{}}}`, 200, `"edge":{}`)
	ask("DELETE", first.header.Get("ETag"), "", 412, "")
	ask("DELETE", "*", "", 204, "")
	ask("GET", "", "", 200, `"is_default":true`)
	audit := w.do(by, request{method: "GET", path: "/api/v1/tenants/" + tenant.Slug + "/audit"})
	if n := strings.Count(audit.body, `"id":"descriptors"`); n != 3 {
		t.Errorf("%d of 3 changes are in the audit log: %s", n, audit.body)
	}
}

func TestSampleDescriptorsShowTheChecksThatTheyBecome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant := w.tenant(w.name("tenant"))
	w.rule(tenant, func(r *rules.Rule) {
		r.Pattern, r.Mode = must(rules.ParsePattern("attr.descriptor:customer:user:{user_id}"))(t), rules.ModeEnforce
	})
	w.refresh()
	by := w.person(tenant, auth.Viewer)
	try := func(body string) answer {
		t.Helper()
		return w.do(by, request{
			method: http.MethodPost, path: "/api/v1/tenants/" + tenant.Slug + "/gateways/descriptors/try", body: body,
			header: map[string]string{"Content-Type": "application/json"},
		})
	}
	const entries = `"descriptors":[{"entries":[{"key":"customer","value":"42"}]},
		{"hits_addend":0,"entries":[{"key":"a","value":"x"},{"key":"plan","value":"nonesuch"}]}]`
	got := try(`{"domain":"edge","hits_addend":2,` + entries +
		`,"mapping":{"keys":{"customer":"user_id"},
			"domains":{"edge":{"templates":[["customer"],["a","plan"]],"replaces":{"customer":["a,plan"]}}}}}`)
	for _, part := range []string{
		`"answered":true`, `"user_id":"42"`, `"cost":2`, `"descriptor":"customer"`,
		`"key_pattern":"user:{user_id}:attr.descriptor:customer"`,
		`"cost":0`, `"replaced":true`, `"replaced":false`,
	} {
		if got.status != 200 || !strings.Contains(got.body, part) {
			t.Errorf("answered %d %s, want %s", got.status, got.body, part)
		}
	}
	if strings.Contains(got.body, `"descriptor":"a,plan"`) {
		t.Errorf("a replaced descriptor has a name: %s", got.body)
	}
	got = try(`{"domain":"edge","hits_addend":2,` + entries +
		`,"mapping":{"domains":{"edge":{"meter":"tokens",
			"hits":{"customer":{"record":true},"a,plan":{"record":true}}}}}}`)
	for _, part := range []string{
		`"costs":{"requests":0,"tokens":2}`, `"recorded":true`, `"costs":{"requests":0,"tokens":0}`, `"recorded":false`,
	} {
		if got.status != 200 || !strings.Contains(got.body, part) {
			t.Errorf("answered %d %s, want %s", got.status, got.body, part)
		}
	}
	const limited = `"descriptors":[{"entries":[{"key":"customer","value":"42"}],
		"limit":{"requests_per_unit":7,"unit":"HOUR"}}]`
	for _, allowed := range []string{"true", "false"} {
		got = try(`{"domain":"edge",` + limited + `,"mapping":{"keys":{"customer":"user_id"},
			"domains":{"edge":{"own_limits":` + allowed + `}}}}`)
		if got.status != 200 || !strings.Contains(got.body, `"own_limit":`+allowed) ||
			strings.Contains(got.body, `"limit_text":"7 per hour","overridden":false`) != (allowed == "true") ||
			strings.Contains(got.body, `"algorithm":"fixed_window"`) != (allowed == "true") {
			t.Errorf("with own_limits %s: %d %s", allowed, got.status, got.body)
		}
	}
	for body, want := range map[string]string{
		`{"domain":"nobody",` + entries + `}`:                        `"answered":false,"results":[]`,
		`{"domain":"d","descriptors":[]}`:                            `"/descriptors"`,
		`{"domain":"d","descriptors":[{"entries":[]}]}`:              `"/descriptors/0/entries"`,
		`{"domain":"d",` + entries + `,"mapping":{"keys":{"a":""}}}`: `"/mapping/keys/a"`,
	} {
		if got := try(body); !strings.Contains(got.body, want) {
			t.Errorf("%s is answered %d %s, want %s", body, got.status, got.body, want)
		}
	}
}

func TestARuleThatNoDescriptorMeetsSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant := w.tenant(w.name("tenant"))
	by := w.person(tenant, auth.Editor)
	made := func(pattern string, change ...func(*rules.Rule)) string {
		t.Helper()
		rule := w.rule(tenant, append(change, func(r *rules.Rule) {
			r.Pattern = must(rules.ParsePattern(pattern))(t)
		})...)
		return fmt.Sprintf("/api/v1/tenants/%s/rules/%d", tenant.Slug, rule.ID)
	}
	met := []string{
		made(`attr.domain:edge:attr.descriptor:a`), made(`attr.descriptor:"a,b=x"`), made("user:{user_id}"),
		made(`attr.domain:edge`), made("attr.descriptor:anything", func(r *rules.Rule) { r.Active = false }),
		made(fmt.Sprintf(`attr.domain:%s:attr.descriptor:anything`, tenant.Slug)), made("attr.descriptor:anything"),
	}
	unmet := []string{made(`attr.domain:edge:attr.descriptor:b`), made(`attr.domain:gone:attr.descriptor:a`)}
	put := func(mapping string) {
		t.Helper()
		w.want(w.do(by, request{
			method: "PUT", path: "/api/v1/tenants/" + tenant.Slug + "/gateways/descriptors", body: mapping,
			header: map[string]string{"Content-Type": "application/json", "If-Match": "*"},
		}), http.StatusOK)
	}
	want := func(paths []string, isUnmet bool) {
		t.Helper()
		for _, path := range paths {
			got := w.get(by, path)
			if strings.Contains(got.body, `"no_descriptor":true`) != isUnmet {
				t.Errorf("that no descriptor meets it should be %t: %s", isUnmet, got.body)
			}
		}
	}
	put(`{"domains":{"edge":{"templates":[["a"],["b"],["a","b=x"]]},"gone":{}}}`)
	want(append(met, unmet...), false)
	put(`{"domains":{"edge":{"templates":[["a"],["a","b=x"]]}}}`)
	want(met, false)
	want(unmet, true)
	put(fmt.Sprintf(`{"domains":{"edge":{"templates":[["a"]]},%q:{"templates":[["a"]]}}}`, tenant.Slug))
	want(met[1:2], true)
	want(met[5:], true)
}
