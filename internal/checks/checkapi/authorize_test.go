package checkapi_test

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/sluicegate/sluice/internal/checks/checkapi"
	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func (h *harness) authorize(method, path string, lines ...string) *httptest.ResponseRecorder {
	header := http.Header{"X-Sluice-Key": {fullKey}}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		header[name] = append(header[name], value)
	}
	return h.send(method, path, header, "")
}

func (h *harness) mapped(document string) *harness {
	h.snapshot = h.snapshot.With(snapshot.Rows{Gateways: []rules.Gateway{
		{TenantID: 1, Kind: rules.GatewayAuthorize, Document: document, Revision: 2},
	}})
	return h
}

func TestAProxyIsAnsweredForItsVisitor(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "ip:{ip}", 0.1, 1), limit(t, 2, "endpoint:/never", 1, 1))
	h.snapshot = h.snapshot.With(snapshot.Rows{Rules: []rules.Rule{
		with(limit(t, 3, "endpoint:/blocked", 0, 0), func(r *rules.Rule) { r.Action = rules.ActionBlock }),
	}})
	lines := []string{"X-Forwarded-For: 6.6.6.6, 203.0.113.9", "X-Forwarded-Uri: /a?b", "X-Forwarded-Method: GET"}

	allowed := h.authorize("GET", "/v1/authorize", lines...)
	h.want(allowed, 200, "")
	h.wantHeaders(allowed, map[string]string{
		"RateLimit-Policy": `"ip-1";q=1;w=10`, "RateLimit": `"ip-1";r=0;t=10`,
		"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1797000010",
	})
	for _, method := range []string{"GET", "HEAD", "POST", "DELETE", "OPTIONS", "PROPFIND"} {
		denied := h.authorize(method, "/v1/authorize", lines...)
		if denied.Code != 429 || header(denied, "Retry-After") != "10" ||
			header(denied, "X-Sluice-Reason") != "limit_exceeded" ||
			header(denied, "Content-Type") != "application/problem+json" || header(denied, "X-Sluice-Status") != "" ||
			method != "HEAD" && (!strings.Contains(denied.Body.String(), quotaExceeded) ||
				!strings.Contains(denied.Body.String(), `"violated-policies":["ip-1"]`)) {
			t.Errorf("%s is answered %d %v %s", method, denied.Code, denied.Header(), denied.Body)
		}
	}
	as403 := h.authorize("GET", "/v1/authorize?deny=403", lines...)
	if as403.Code != 403 || header(as403, "X-Sluice-Status") != "429" || header(as403, "Retry-After") != "10" {
		t.Errorf("with deny=403 it is answered %d %v", as403.Code, as403.Header())
	}
	h.wantStatus(h.authorize("POST", "/v1/authorize/orders?deny=403", lines...), 429)
	blocked := h.authorize("GET", "/v1/authorize/blocked")
	if blocked.Code != 429 || header(blocked, "Retry-After") != "" ||
		!strings.Contains(blocked.Body.String(), "urn:sluice:problem:blocked") {
		t.Errorf("a blocked endpoint is answered %d %s", blocked.Code, blocked.Body)
	}
	h.wantStatus(h.authorize("GET", "/v1/authorize", "X-Forwarded-For: 203.0.113.9, 203.0.113.10"), 200)
	if h.observed.route != "/v1/authorize" {
		t.Errorf("the route in metrics is %s", h.observed.route)
	}
	h.wantStatus(h.authorize("GET", "/v1/authorized"), 404)
}

func TestAClosedTierIsAnswered503ToAProxy(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(),
		with(limit(t, 1, "ip:{ip}", 1, 1), func(r *rules.Rule) { r.FailureMode = rules.FailClosed }))
	h.storeErr = errStoreDown
	w := h.authorize("GET", "/v1/authorize", "X-Forwarded-For: 203.0.113.9")
	if w.Code != 503 || header(w, "Retry-After") != "1" ||
		!strings.Contains(w.Body.String(), "http-problem-types#temporary-reduced-capacity") {
		t.Errorf("answered %d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := h.authorize("GET", "/v1/authorize?deny=403", "X-Forwarded-For: 203.0.113.9"); w.Code != 403 ||
		header(w, "X-Sluice-Status") != "503" {
		t.Errorf("answered %d %v", w.Code, w.Header())
	}
}

// Envoy lets a request pass on a 5xx.
func TestEnvoysVisitorIsRefusedWhereARuleFailsClosed(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(),
		with(limit(t, 1, "endpoint:/a", 1, 1), func(r *rules.Rule) { r.FailureMode = rules.FailClosed }))
	h.config.Tokens = verifier{}
	h.storeErr = errStoreDown
	refused := func(why string) {
		t.Helper()
		w := h.authorize("GET", "/v1/authorize/a", "Authorization: Bearer early")
		if w.Code != 403 || header(w, "X-Sluice-Status") != "503" || header(w, "Retry-After") != "1" ||
			header(w, "Content-Type") != "application/problem+json" {
			t.Errorf("%s: answered %d %v %s", why, w.Code, w.Header(), w.Body)
		}
	}
	refused("a rule that fails closed")
	h.mapped(`{"jwt":{"jwks":"{\"keys\":[{\"kty\":\"EC\"}]}"},"user":{"claim":"sub"}}`)
	refused("keys that were not read")
	h.snapshot = nil
	h.wantStatus(h.authorize("GET", "/v1/authorize/a"), 502)
}

const quotaExceeded = `"type":"https://iana.org/assignments/http-problem-types#quota-exceeded"`

// A process whose rules are older than the store's meets reasons that it does not ask for.
func TestEveryReasonHasAnAnswerForAProxy(t *testing.T) {
	t.Parallel()
	lines := []string{"X-Forwarded-Uri: /api"}
	h := newHarness(t, rules.DefaultSettings(), with(limit(t, 1, "endpoint:/api", 0, 1), func(r *rules.Rule) {
		r.Algorithm, r.MaxHold, r.InForceSince = rules.Concurrency, time.Minute, start
	}))
	if w := h.post("/v1/check", `{"endpoint":"/api"}`); w.Code != 200 {
		t.Fatalf("the first is answered %d %s", w.Code, w.Body)
	}
	old := newHarness(t, rules.DefaultSettings(), with(limit(t, 1, "endpoint:/api", 1, 1), func(r *rules.Rule) {
		r.InForceSince = start.Add(-time.Hour)
	}))
	old.store = h.store
	if w := old.authorize("GET", "/v1/authorize", lines...); w.Code != 429 ||
		header(w, "X-Sluice-Reason") != "concurrency_exceeded" ||
		header(w, "Retry-After") != "1" || !strings.Contains(w.Body.String(), quotaExceeded) {
		t.Errorf("answered %d %v %s", w.Code, w.Header(), w.Body)
	}
	for _, reason := range enforce.Reasons {
		d := enforce.Decision{Reason: reason, Deciding: -1}
		if p := checkapi.DenialOf(reason); p == nil || p.Status != checkjson.Status(&d) {
			t.Errorf("%s is answered %+v, with status %d", reason, p, checkjson.Status(&d))
		}
	}
}

func TestAnAnswerToAProxyNamesRulesThatCannotActThere(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(),
		with(limit(t, 1, "endpoint:/queue", 5, 10), func(r *rules.Rule) { r.Algorithm = rules.LeakyBucket }),
		with(limit(t, 2, "endpoint:/places", 0, 1),
			func(r *rules.Rule) { r.Algorithm, r.MaxHold = rules.Concurrency, time.Minute }),
		limit(t, 3, "endpoint:/plain", 1, 1))
	const note = "X-Sluice-Note"
	ask := func(path string, status int, want string) {
		t.Helper()
		if w := h.authorize("GET", "/v1/authorize", "X-Forwarded-Uri: "+path); w.Code != status ||
			header(w, note) != want {
			t.Errorf("%s is answered %d %q, want %d %q", path, w.Code, header(w, note), status, want)
		}
	}
	ask("/queue", 200, "")
	ask("/queue", 429, "rule 1 is a queue; it denied the request because a gateway cannot delay one")
	ask("/plain", 200, "")
	ask("/plain", 429, "")
	for range 2 {
		ask("/places", 200, "rule 2 counts requests in flight; it was not applied because a gateway does not say "+
			"when a request ends")
	}
}

func TestAnExplanationSaysWhichRulesCannotActAtAGateway(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(),
		with(limit(t, 1, "global", 5, 10), func(r *rules.Rule) { r.Algorithm = rules.LeakyBucket }),
		with(limit(t, 2, "global", 0, 1),
			func(r *rules.Rule) { r.Name, r.Algorithm, r.MaxHold = "places", rules.Concurrency, time.Minute }))
	explained := h.post("/v1/explain", `{"user_id":7}`).Body.String()
	for _, want := range []string{`"at_gateway":"denies_delays"`, `"at_gateway":"not_applied"`, `"near_misses":[]`} {
		if !strings.Contains(explained, want) {
			t.Errorf("explained without %s: %s", want, explained)
		}
	}
	check := enforce.Check{Request: rules.Request{UserID: "7"}, Cost: enforce.Token, Proxied: true}
	proxied := must(checkjson.ExplainCheck(t.Context(), h.config.Limiter, check, h.snapshot.Tenant(1), h.now))(t)
	if want := `"near_misses":[{"rule_id":2,`; !strings.Contains(string(proxied), want) {
		t.Errorf("explained to a gateway without %s: %s", want, proxied)
	}
}

func TestAWrongKeyOfAProxyIs500(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	for name, test := range map[string]struct {
		header http.Header
		status int
	}{
		"in its header": {http.Header{"X-Sluice-Key": {fullKey}}, 200},
		"with a scheme": {http.Header{"X-Sluice-Key": {"Bearer " + fullKey}}, 200},
		"beside the visitor's": {
			http.Header{"X-Sluice-Key": {fullKey}, "Authorization": {"Bearer visitor"}},
			200,
		},
		"in Authorization":             {http.Header{"Authorization": {"Bearer " + fullKey}}, 200},
		"none":                         {http.Header{}, 500},
		"a visitor's in its place":     {http.Header{"Authorization": {"Bearer visitor"}}, 500},
		"a wrong one":                  {http.Header{"X-Sluice-Key": {fullKey + "0"}}, 500},
		"two":                          {http.Header{"X-Sluice-Key": {fullKey, fullKey}}, 400},
		"one that may not check":       {http.Header{"X-Sluice-Key": {"slk_explain_" + secret}}, 500},
		"one of a suspended tenant":    {http.Header{"X-Sluice-Key": {"slk_suspended_" + secret}}, 500},
		"one of another tenant's name": {http.Header{"X-Sluice-Key": {"slk_other_" + secret}}, 200},
	} {
		w := h.send("GET", "/v1/authorize", test.header, "")
		if w.Code != test.status || w.Header().Get("WWW-Authenticate") != "" {
			t.Errorf("%s: answered %d %v, want %d", name, w.Code, w.Header(), test.status)
		}
	}
	h.snapshot = nil
	for _, target := range []string{"/v1/authorize", "/v1/authorize?deny=403"} {
		h.wantStatus(h.authorize("GET", target), 502)
	}
}

// The visitor's tenant would decide, whose mapping could read the proxy's key; with a 500 proxies would let the request
// pass.
func TestAVisitorsKeyBesideTheProxysIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	for _, keys := range [][2]string{
		{"slk_other_" + secret, "Bearer " + fullKey},
		{"Bearer slk_other_" + secret, "bearer   " + fullKey},
		{fullKey, "Bearer slk_other_" + secret},
		{"garbage", "Bearer " + fullKey},
	} {
		w := h.send("GET", "/v1/authorize", http.Header{"X-Sluice-Key": {keys[0]}, "Authorization": {keys[1]}}, "")
		if w.Code != 400 || !strings.Contains(w.Body.String(), "two API keys of Sluice") {
			t.Errorf("%q: answered %d %s", keys, w.Code, w.Body)
		}
	}
}

func TestAMappingSaysWhoTheVisitorIs(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(),
		limit(t, 1, "user:{user_id}", 0.1, 1),
		with(limit(t, 2, "endpoint:/orders/{id}", 0.1, 5), func(r *rules.Rule) { r.Plan = "pro" }))
	h.mapped(
		`{"user":{"header":"x-user","plain":true},"plan":{"header":"x-plan"},"endpoint":{"templates":["/orders/{id}"]},
			"cost":{"query":"n"}}`)
	pro := []string{"X-User: 1", "X-Plan: pro", "X-Forwarded-Uri: /orders/17"}
	if w := h.authorize("GET", "/v1/authorize", pro...); w.Code != 200 ||
		header(w, "RateLimit") != `"user-1";r=0;t=10, "endpoint-2";r=4;t=10` {
		t.Errorf("answered %d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := h.authorize("GET", "/v1/authorize", "X-User: 2", "X-Plan: pro",
		"X-Forwarded-Uri: /orders/18?n=6"); w.Code != 429 {
		t.Errorf("a cost above the burst is answered %d %s", w.Code, w.Body)
	}
	for _, wrong := range []string{"X-Plan: gold", "X-User: 2"} {
		w := h.authorize("GET", "/v1/authorize", append([]string{wrong}, pro...)...)
		if w.Code != 400 || !strings.Contains(w.Body.String(), "invalid-request") {
			t.Errorf("%s is answered %d %s", wrong, w.Code, w.Body)
		}
	}
	if w := h.authorize("GET", "/v1/authorize?deny=403", "X-Plan: gold"); w.Code != 403 ||
		header(w, "X-Sluice-Status") != "400" {
		t.Errorf("answered %d %v", w.Code, w.Header())
	}
	h.mapped(`{"from":"tomorrow"}`)
	if w := h.authorize("GET", "/v1/authorize", pro...); w.Code != 500 || !strings.Contains(h.logText(), "tenant=one") {
		t.Errorf("a mapping that is not understood is answered %d", w.Code)
	}
}

func TestAMappingSaysWhatARequestCosts(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), with(limit(t, 1, "ip:{ip}", 0.1, 10), func(r *rules.Rule) {
		r.Meter = "tokens"
	}))
	h.mapped(`{"costs":{"tokens":{"header":"x-tokens"}}}`)
	lines := []string{"X-Forwarded-For: 203.0.113.9", "X-Tokens: 6"}
	for _, want := range []int{200, 429} {
		h.wantStatus(h.authorize("GET", "/v1/authorize", lines...), want)
	}
}

func TestNoSpellingOfAHeaderEscapesALimit(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"empty": "", "long": strings.Repeat("u", 300), "Latin-1": "\xe9", "with a NUL in UTF-8": "\xc0\x80",
	} {
		for mapping, pattern := range map[string]string{
			`{"user":{"header":"x-user"}}`:                                            "user:{user_id}",
			`{"user":{"header":"x-user","plain":true}}`:                               "user:{user_id}",
			`{"attributes":{"user":{"header":"x-user"}}}`:                             "attr.user:{attr.user}",
			`{"endpoint":{"header":"x-uri"},"user":{"header":"x-user","plain":true}}`: "user:{user_id}:endpoint:/api/*",
		} {
			h := newHarness(t, rules.DefaultSettings(), limit(t, 1, pattern, 0.1, 1)).mapped(mapping)
			path := "X-Uri: /api/" + strings.Repeat("x", 2000) + value
			for _, want := range []int{200, 429} {
				if w := h.authorize("GET", "/v1/authorize", "X-User: "+value, path); w.Code != want {
					t.Errorf("a value that is %s is answered %d by %s %s, want %d", name, w.Code, mapping, w.Body, want)
				}
			}
		}
	}
}

func TestGapsOfProxiedRequestsAreCounted(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings()).mapped(`{"cost":{"query":"n"}}`)
	var gaps []gateway.Gap
	h.config.Gap = func(gap gateway.Gap) { gaps = append(gaps, gap) }
	const address = "X-Forwarded-For: 203.0.113.9"
	h.authorize("GET", "/v1/authorize", "X-Forwarded-Uri: /x?n=2", address)
	h.authorize("GET", "/v1/authorize", "X-Forwarded-Uri: /x?n=two", address)
	h.authorize("GET", "/v1/authorize", "X-Forwarded-Uri: /x?n=2", "X-Forwarded-For: unknown")
	if want := []gateway.Gap{gateway.GapCost, gateway.GapAddress}; !slices.Equal(gaps, want) {
		t.Errorf("the gaps are %q, want %q", gaps, want)
	}
}

type verifier struct{}

var errForged = errors.New("no key has signed it")

func (verifier) Verify(_ rules.TenantID, _ *gateway.Mapping, token string) (gateway.Claims, error) {
	switch token {
	case "good":
		return gateway.Claims{"sub": "42"}, nil
	case "early":
		return nil, gateway.ErrNoKeys
	case "panic":
		panic("a token that is not understood")
	}
	return nil, errForged
}

func TestATokenSaysWhoTheVisitorIs(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 0.1, 1))
	h.config.Tokens = verifier{}
	const mapping = `{"jwt":{"jwks":"{\"keys\":[{\"kty\":\"EC\"}]}","optional":%t},"user":{"claim":"sub"}}`
	h.mapped(fmt.Sprintf(mapping, false))
	for authorization, status := range map[string]int{
		"": 401, "Bearer good": 200, "Bearer forged": 401, "Basic good": 401, "Bearer early": 503, "good": 401,
	} {
		w := h.authorize("GET", "/v1/authorize", "Authorization: "+authorization)
		if challenged := w.Header().Get("WWW-Authenticate") == `Bearer error="invalid_token"`; w.Code != status ||
			challenged != (status == 401) {
			t.Errorf("%q is answered %d %v %s, want %d", authorization, w.Code, w.Header(), w.Body, status)
		}
	}
	h.wantStatus(h.authorize("GET", "/v1/authorize", "Authorization: Bearer good"), 429)
	h.wantStatus(h.send("GET", "/v1/authorize", http.Header{"Authorization": {"Bearer " + fullKey}}, ""), 401)
	h.mapped(fmt.Sprintf(mapping, true))
	for _, authorization := range []string{"", "Bearer forged", "Bearer early"} {
		if w := h.authorize("GET", "/v1/authorize", "Authorization: "+authorization); w.Code != 200 ||
			header(w, "RateLimit") != "" {
			t.Errorf("%q is answered %d %v", authorization, w.Code, w.Header())
		}
	}
}

// nginx's auth_request makes a 500 of every status but 2xx, 401 and 403, and hands a 401 to visitors.
func TestWithDeny403AProxySeesNoOtherRefusal(t *testing.T) {
	t.Parallel()
	const tokens = `{"jwt":{"jwks":"{\"keys\":[{\"kty\":\"EC\"}]}"},"user":{"claim":"sub"}}`
	for name, test := range map[string]struct {
		mapping string
		lines   []string
		status  string
	}{
		"a denial":                       {"", []string{"X-Forwarded-Uri: /blocked"}, "429"},
		"an unknown plan":                {`{"plan":{"header":"x-plan"}}`, []string{"X-Plan: gold"}, "400"},
		"a token that is missing":        {tokens, nil, "401"},
		"a token whose keys are unknown": {tokens, []string{"Authorization: Bearer early"}, "503"},
		"a mapping of a newer version":   {`{"from":"tomorrow"}`, nil, "500"},
		"a second key":                   {"", []string{"X-Sluice-Key: another"}, "400"},
		"headers of 16 KiB":              {"", []string{"X-User: " + strings.Repeat("u", 16<<10)}, "431"},
		"101 headers":                    {"", slices.Repeat([]string{"X-User: u"}, 101), "431"},
		"an encoding that is none":       {"", []string{"Transfer-Encoding: identity"}, "400"},
		"a panic":                        {tokens, []string{"Authorization: Bearer panic"}, "500"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, rules.DefaultSettings(),
				with(limit(t, 1, "endpoint:/blocked", 0, 0), func(r *rules.Rule) { r.Action = rules.ActionBlock }),
				limit(t, 2, "global", 100, 100))
			h.config.Tokens = verifier{}
			if test.mapping != "" {
				h.mapped(test.mapping)
			}
			w := h.authorize("GET", "/v1/authorize?deny=403", test.lines...)
			if w.Code != 403 || header(w, "X-Sluice-Status") != test.status || w.Body.Len() > 0 {
				t.Errorf("answered %d %v %s, want 403 and the status %s", w.Code, w.Header(), w.Body, test.status)
			}
			if challenged := w.Header().Get("WWW-Authenticate") != ""; challenged != (test.status == "401") {
				t.Errorf("answered %v", w.Header())
			}
		})
	}
}

func TestAProxyKeepsItsConnection(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	listener := fasthttputil.NewInmemoryListener()
	h.run(checkapi.NewServer(h.config), listener)
	conn := must(listener.Dial())(t)
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for _, body := range []string{
		"", "Content-Length: 5\r\n", "",
		"Content-Length: 5\r\nContent-Type: text/plain\r\n",
	} {
		request := "POST /v1/authorize/a HTTP/1.1\r\nHost: s\r\nX-Sluice-Key: " + fullKey + "\r\n" + body + "\r\n"
		if body != "" {
			request += "hello"
		}
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(answers, nil)
		if err != nil || response.StatusCode != 200 || response.Close {
			t.Fatalf("answered %+v, %v", response, err)
		}
		_ = response.Body.Close()
	}
}

func TestALongHeaderOfAVisitorIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings()).mapped(`{"user":{"header":"x-user"}}`)
	h.wantStatus(h.authorize("GET", "/v1/authorize", "X-User: "+strings.Repeat("u", 12<<10)), 200)
	h.wantStatus(h.authorize("GET", "/v1/authorize", "X-User: "+strings.Repeat("u", 16<<10)), 431)
}
