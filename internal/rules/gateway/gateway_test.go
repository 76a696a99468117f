package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
)

type headers []string

func (h headers) Values(name string) (values [][]byte) {
	for _, line := range h {
		n, value, _ := strings.Cut(line, ": ")
		if http.CanonicalHeaderKey(n) == name {
			values = append(values, []byte(value))
		}
	}
	return values
}

func compile(t *testing.T, document string) *gateway.Mapping {
	t.Helper()
	a, err := gateway.ParseAuthorize(document)
	if err != nil {
		t.Fatal(err)
	}
	again, err := gateway.ParseAuthorize(a.Document())
	if err != nil || again.Document() != a.Document() {
		t.Fatalf("%s is read back as %s: %v", a.Document(), again.Document(), err)
	}
	return a.Compile()
}

const jwt = `"jwt":{"jwks":"{\"keys\":[{\"kty\":\"EC\"}]}"}`

func TestARequestBecomesACheck(t *testing.T) {
	t.Parallel()
	// printf 42 | openssl dgst -sha256 -binary | basenc --base64url
	const hashOf42 = "sha256-c0dctApWjo2ooEXO0RATfhWfiQrE2og7axfcZRs6gEk"
	const hashOfNothing = "sha256-47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
	long := strings.Repeat("u", 257)
	tests := map[string]struct {
		document string
		headers  headers
		want     string // the fields that differ from the default
	}{
		"nothing is said": {`{}`, nil, "cost=1000000"},
		"the defaults": {
			`{}`,
			headers{"X-Forwarded-Uri: /a/b?c=d", "X-Forwarded-Method: POST", "X-Forwarded-For: 9.9.9.9, 203.0.113.9"},
			"endpoint=/a/b method=POST ip=203.0.113.9 cost=1000000",
		},
		"identity is not guessed": {`{}`, headers{"X-User-Id: 42", "Authorization: Bearer x"}, "cost=1000000"},
		"a header is hashed": {
			`{"user":{"header":"x-api-key"}}`,
			headers{"X-Api-Key: 42"},
			"user=" + hashOf42 + " cost=1000000",
		},
		"unless it is plain": {
			`{"user":{"header":"x-user","plain":true}}`,
			headers{"X-User: 42"},
			"user=42 cost=1000000",
		},
		"without the header there is none": {`{"user":{"header":"x-user"}}`, nil, "cost=1000000"},
		"those without the header share a user": {
			`{"user":{"header":"x-user","default":"anonymous"}}`, nil, "user=anonymous cost=1000000",
		},
		"those with it do not": {
			`{"user":{"header":"x-user","plain":true,"default":"anonymous"}}`,
			headers{"X-User: 42"},
			"user=42 cost=1000000",
		},
		"an empty one is somebody": {
			`{"user":{"header":"x-user"},"attributes":{"a":{"header":"x-a"}}}`,
			headers{"X-User: ", "X-A:  "},
			"user=" + hashOfNothing + " cost=1000000 attr.a=" + hashOfNothing,
		},
		"an empty plain one too": {
			`{"user":{"header":"x-user","plain":true}}`,
			headers{"X-User: "},
			"user=" + hashOfNothing + " cost=1000000",
		},
		"spellings of an identity": {
			`{"user":{"header":"x-user","plain":true,"lower":true,"trim":true},"attributes":{"a":{"header":"x-a"}}}`,
			headers{"X-User: \u00a0Ann ", "X-A: Ann"},
			"user=ann cost=1000000 attr.a=Ann",
		},
		"are one before they are hashed": {
			`{"user":{"header":"x-user","lower":true}}`,
			headers{"X-User: ABC"},
			"user=" + gateway.HashUser([]byte("abc")) + " cost=1000000",
		},
		"a long user is hashed": {
			`{"user":{"header":"x-user","plain":true}}`,
			headers{"X-User: " + long},
			"user=" + gateway.HashUser([]byte(long)) + " cost=1000000",
		},
		"a user in Latin-1 is hashed": {
			`{"user":{"header":"x-user","plain":true}}`,
			headers{"X-User: \xe9"},
			"user=" + gateway.HashUser([]byte("\xe9")) + " cost=1000000",
		},
		"a long attribute is hashed": {
			`{"attributes":{"agent":{"header":"user-agent"}}}`,
			headers{"User-Agent: " + long},
			"cost=1000000 attr.agent=" + gateway.HashUser([]byte(long)),
		},
		"a long path keeps its beginning": {
			`{}`,
			headers{"X-Forwarded-Uri: /api/" + strings.Repeat("漢", 115)},
			"endpoint=" + ("/api/" + strings.Repeat("%E6%BC%A2", 115))[:1024-len(hashOf42)] +
				gateway.HashUser([]byte("/api/"+strings.Repeat("%E6%BC%A2", 115))) + " cost=1000000",
		},
		"a method that is none is hashed": {
			`{}`,
			headers{"X-Forwarded-Uri: /", "X-Forwarded-Method: G ET"},
			"endpoint=/ method=" + gateway.HashUser([]byte("G ET")) + " cost=1000000",
		},
		"a cost in words is the default": {
			`{"cost":{"header":"x-cost","default":2}}`,
			headers{"X-Cost: five"},
			"cost=2000000 unusable-cost",
		},
		"a negative one too": {
			`{"cost":{"query":"n"}}`,
			headers{"X-Forwarded-Uri: /?n=-5"},
			"endpoint=/ cost=1000000 unusable-cost",
		},
		"and another spelling": {
			`{"cost":{"query":"n"}}`,
			headers{"X-Forwarded-Uri: /?n=1e9&n=3&n=%2B100"},
			"endpoint=/ cost=3000000 unusable-cost",
		},
		"decimals are rounded up": {
			`{"cost":{"query":"n"}}`,
			headers{"X-Forwarded-Uri: /?n=5.0000001"},
			"endpoint=/ cost=5000001",
		},
		"zeros are no decimals": {
			`{"cost":{"query":"n"}}`,
			headers{"X-Forwarded-Uri: /?n=5.00000000"},
			"endpoint=/ cost=5000000",
		},
		"a huge cost is the largest": {
			`{"cost":{"query":"n"}}`,
			headers{"X-Forwarded-Uri: /?n=99999999999999999999999"},
			"endpoint=/ cost=1000000000000000",
		},
		"another header for the " +
			"URI": {
			`{"endpoint":{"header":"X-Original-URI","method_header":"X-Original-Method"}}`,
			headers{"X-Original-Uri: /a", "X-Original-Method: PUT", "X-Forwarded-Uri: /b"},
			"endpoint=/a method=PUT cost=1000000",
		},
		"a template": {
			`{"endpoint":{"templates":["/orders/{id}"]}}`,
			headers{"X-Forwarded-Uri: /orders/123?x"},
			"endpoint=/orders/{id} cost=1000000",
		},
		"a cost in a header": {
			`{"cost":{"header":"x-cost","default":2}}`,
			headers{"X-Cost: 0.25"},
			"cost=250000",
		},
		"without a cost the default": {`{"cost":{"header":"x-cost","default":2.5}}`, nil, "cost=2500000"},
		"a cost of the visitor's query": {
			`{"cost":{"query":"limit"}}`,
			headers{"X-Forwarded-Uri: /a?limit=5&x=1"},
			"endpoint=/a cost=5000000",
		},
		"of several the largest": {
			`{"cost":{"query":"limit"}}`,
			headers{"X-Forwarded-Uri: /a?limit=5&limit=70&l%69mit=9"},
			"endpoint=/a cost=70000000",
		},
		"a visitor cannot ask for nothing": {
			`{"cost":{"query":"limit"}}`,
			headers{"X-Forwarded-Uri: /a?limit=0"},
			"endpoint=/a cost=1000000",
		},
		"two trusted hops": {
			`{"address":{"trusted_hops":2}}`,
			headers{"X-Forwarded-For: 6.6.6.6, 203.0.113.9", "X-Forwarded-For: 10.0.0.1, 10.0.0.2"},
			"ip=203.0.113.9 cost=1000000",
		},
		"a list shorter than its hops counts the last": {
			`{"address":{"trusted_hops":2}}`,
			headers{"X-Forwarded-For: 6.6.6.6, 10.0.0.2"},
			"ip=10.0.0.2 cost=1000000",
		},
		"as does one without an address there": {
			`{"address":{"trusted_hops":1,"short":"last"}}`,
			headers{"X-Forwarded-For: unknown, 10.0.0.2"},
			"ip=10.0.0.2 cost=1000000",
		},
		"or nobody": {
			`{"address":{"trusted_hops":2,"short":"nobody"}}`,
			headers{"X-Forwarded-For: 6.6.6.6, 10.0.0.2"},
			"cost=1000000",
		},
		"whom a default stands for": {
			`{"address":{"trusted_hops":2,"short":"nobody","default":"0.0.0.0"}}`,
			headers{"X-Forwarded-For: 6.6.6.6, 10.0.0.2"},
			"ip=0.0.0.0 cost=1000000",
		},
		"as it does without a header": {`{"address":{"default":"::"}}`, nil, "ip=:: cost=1000000"},
		"and not for an address": {
			`{"address":{"default":"0.0.0.0"}}`, headers{"X-Forwarded-For: 10.0.0.2"}, "ip=10.0.0.2 cost=1000000",
		},
		"Forwarded": {
			`{"address":{"header":"Forwarded","trusted_hops":1}}`,
			headers{
				`Forwarded: for="_gazonk", For="[2001:db8::9]:4711";proto=https`,
				"Forwarded: by=b; for=10.0.0.1:80",
			},
			"ip=2001:db8::9 cost=1000000",
		},
		"a quote that a visitor left open": {
			`{"address":{"header":"forwarded"}}`,
			headers{`Forwarded: for="6.6.6.6, for=203.0.113.9`},
			"ip=203.0.113.9 cost=1000000",
		},
		"an unknown one": {
			`{"address":{"header":"forwarded"}}`,
			headers{"Forwarded: for=unknown"},
			"cost=1000000",
		},
		"an address with port": {`{}`, headers{"X-Forwarded-For: [2001:db8::1]:443"}, "ip=2001:db8::1 cost=1000000"},
		"an address with zone": {`{}`, headers{"X-Forwarded-For: fe80::1%eth0"}, "ip=fe80::1 cost=1000000"},
		"IPv4 within IPv6": {
			`{"address":{"header":"x-real-ip"}}`,
			headers{"X-Real-Ip: ::ffff:203.0.113.9"},
			"ip=203.0.113.9 cost=1000000",
		},
		"no address": {`{}`, headers{"X-Forwarded-For: unknown"}, "cost=1000000"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantCheck(t, test.document, gateway.Request{Headers: test.headers}, nil, test.want)
		})
	}
}

func wantCheck(t *testing.T, document string, r gateway.Request, claims gateway.Claims, want string) {
	t.Helper()
	r.Method = http.MethodGet
	check, err := compile(t, document).Check(&r, claims)
	if got := show(check); err != nil || got != want ||
		check.NoAddress != (!check.IP.IsValid() || check.IP.IsUnspecified()) {
		t.Errorf("the check is %q, %v, want %q; without an address %t", got, err, want, check.NoAddress)
	}
}

func TestClaimsPathAndQueryBecomeACheck(t *testing.T) {
	t.Parallel()
	wantCheck(t, `{`+jwt+`,"user":{"claim":"sub"},"plan":{"claim":"org.plan"},`+
		`"attributes":{"org":{"claim":"org.id"},"none":{"claim":"x"}}}`,
		gateway.Request{Headers: headers{}}, gateway.Claims{"sub": "42", "org.plan": "pro", "org.id": "7"},
		"user=42 plan=pro cost=1000000 attr.org=7")
	spoofed := headers{"X-Forwarded-Uri: /spoofed", "X-Forwarded-Method: PUT"}
	wantCheck(t, `{}`, gateway.Request{Headers: spoofed, Below: "/orders/1"}, nil,
		"endpoint=/orders/1 method=GET cost=1000000")
	wantCheck(t, `{"cost":{"query":"limit"}}`, gateway.Request{Headers: headers{}, Below: "/a", Query: "limit=5"}, nil,
		"endpoint=/a method=GET cost=5000000")
	wantCheck(t, `{"costs":{"input_tokens":{"header":"x-tokens"},"usd":{"query":"usd","default":0.5},"images":{}}}`,
		gateway.Request{Headers: headers{"X-Tokens: 1200"}, Below: "/a", Query: "usd=0.25&usd=2.0000001&usd=x"}, nil,
		"endpoint=/a method=GET cost=1000000 images=1000000 input_tokens=1200000000 usd=2000001 unusable-cost")
}

func show(c gateway.Check) string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+"="+value)
		}
	}
	add("user", c.UserID)
	add("plan", c.Plan)
	add("endpoint", c.Endpoint)
	add("method", c.Method)
	if c.IP.IsValid() {
		add("ip", c.IP.String())
	}
	add("cost", fmt.Sprint(c.Cost))
	for _, cost := range c.Costs {
		add(string(cost.Meter), fmt.Sprint(cost.Cost))
	}
	if c.UnusableCost {
		parts = append(parts, "unusable-cost")
	}
	for _, a := range c.Attributes {
		add("attr."+a.Name, a.Value)
	}
	return strings.Join(parts, " ")
}

func TestARequestThatIsNoCheckIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		document string
		headers  headers
		want     string
	}{
		"an identity twice": {
			`{"user":{"header":"x-user","plain":true}}`,
			headers{"X-User: 42", "X-User: 43"},
			"came more than once",
		},
		"a hashed one twice": {
			`{"user":{"header":"x-key"}}`,
			headers{"X-Key: 42", "X-Key: 43"},
			"came more than once",
		},
		"the URI twice": {`{}`, headers{"X-Forwarded-Uri: /a", "X-Forwarded-Uri: /b"}, "came more than once"},
		"a list that is too short": {
			`{"address":{"trusted_hops":1,"short":"refuse"}}`,
			headers{"X-Forwarded-For: 10.0.0.1"},
			"no address",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := compile(t, test.document).Check(&gateway.Request{Headers: test.headers, Method: "GET"}, nil)
			var refused *gateway.Error
			if !errors.As(err, &refused) || !strings.Contains(refused.Detail, test.want) {
				t.Errorf("the error is %v, want one that says %q", err, test.want)
			}
		})
	}
}

func TestAPathHasOneSpelling(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]string{
		"/":                          "/",
		"/a/b/":                      "/a/b/",
		"//a///b":                    "/a/b",
		"/x/../a/./b":                "/a/b",
		"/a/..":                      "/",
		"/a/b/..":                    "/a/",
		"/../../etc":                 "/etc",
		"/%61/%2e%2e/b":              "/b",
		"/a%2fb":                     "/a%2Fb",
		"/%C3%A9/\xc3\xa9":           "/%C3%A9/%C3%A9",
		"/a b":                       "/a%20b",
		"/100%":                      "/100%25",
		"/%zz":                       "/%25zz",
		"/a%00":                      "/a%00",
		"https://h.example/a?":       "/a%3F", // the query was removed before
		"HTTP://h":                   "/",
		"*":                          "/*",
		"/a#b":                       "/a",
		"/.well-known/x":             "/.well-known/x",
		"/a;b=c,(d)!$&'()*+=:@~_-.x": "/a;b=c,(d)!$&'()*+=:@~_-.x",
	} {
		check, err := gateway.Default.Check(&gateway.Request{Headers: headers{}, Below: sent, Method: "GET"}, nil)
		if err != nil || check.Endpoint != want {
			t.Errorf("%q becomes %q, %v, want %q", sent, check.Endpoint, err, want)
		}
		again, err := gateway.Default.Check(&gateway.Request{Headers: headers{}, Below: want, Method: "GET"}, nil)
		if sent != "https://h.example/a?" && (err != nil || again.Endpoint != want) {
			t.Errorf("%q becomes %q, %v", want, again.Endpoint, err)
		}
	}
}

func TestTemplatesFoldPaths(t *testing.T) {
	t.Parallel()
	document := `{"endpoint":{"templates":["/orders/{id}","/orders/latest","/orders/{id}/items/{item}",` +
		`"/{kind}/latest/x","/files/*","/"]}}`
	m := compile(t, document)
	for sent, want := range map[string]string{
		"/orders/123":           "/orders/{id}",
		"/orders/latest":        "/orders/latest",
		"/orders/latest/x":      "/{kind}/latest/x",
		"/orders/1/items/2":     "/orders/{id}/items/{item}",
		"/orders/1/items/":      "/orders/1/items/",
		"/orders/":              "/orders/",
		"/orders":               "/orders",
		"/orders/1/2":           "/orders/1/2",
		"/files":                "/files",
		"/files/":               "/files/",
		"/files/a":              "/files/*",
		"/files/a/b/c":          "/files/*",
		"/files//a":             "/files/*",
		"/":                     "/",
		"/orders/x%2Fitems%2Fy": "/orders/{id}",
	} {
		check, err := m.Check(&gateway.Request{Headers: headers{}, Below: sent, Method: "GET"}, nil)
		if err != nil || check.Endpoint != want {
			t.Errorf("%q becomes %q, %v, want %q", sent, check.Endpoint, err, want)
		}
	}
}

func TestFoldsMergePathsAsARouterDoes(t *testing.T) {
	t.Parallel()
	const all = `"case","trailing_slash","parameters","encoded_slashes"`
	for _, test := range []struct{ folds, sent, want string }{
		{``, "/Orders/", "/Orders/"},
		{`"case"`, "/Other/%c3%89/", "/other/%C3%89/"},
		{`"trailing_slash"`, "/Orders//", "/Orders"},
		{`"trailing_slash"`, "/", "/"},
		{`"parameters"`, "/a;v=1/b;c", "/a/b"},
		{`"parameters"`, "/x/..;/a", "/a"},
		{`"encoded_slashes"`, "/a%2fb", "/a/b"},
		{`"encoded_slashes"`, "/x%2F..%2Fa", "/a"},
		{all, "/A%2FB;v/C/", "/a/b/c"},
		{all, "/ORDERS/17/", "/Orders/{Id}/"},
		{all, "/files;x%2FA", "/files/*"},
		{all, "/files%2FA", "/files/*"},
	} {
		m := compile(t, `{"endpoint":{"templates":["/Orders/{Id}/","/files/*"],"folds":[`+test.folds+`]}}`)
		check, err := m.Check(&gateway.Request{Headers: headers{}, Below: test.sent, Method: "GET"}, nil)
		if err != nil || check.Endpoint != test.want {
			t.Errorf("with %s %q becomes %q, %v, want %q", test.folds, test.sent, check.Endpoint, err, test.want)
		}
	}
}

func TestARuleCanNameATemplate(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"endpoint:/orders/{id}", `endpoint:"/orders/{id}"`,
		"user:{user_id}:endpoint:/orders/{id}",
	} {
		if _, err := rules.ParsePattern(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAWrongMappingIsRefused(t *testing.T) {
	t.Parallel()
	for document, field := range map[string]string{
		`{"user":{}}`: "user",
		`{"user":{"header":"a","claim":"b"},` + jwt + `}`:                           "user",
		`{"user":{"claim":"sub"}}`:                                                  "user.claim",
		`{"user":{"header":"a b"}}`:                                                 "user.header",
		`{"user":{"header":"x-sluice-key"}}`:                                        "user.header",
		`{"user":{"header":"authorization","plain":true}}`:                          "user.plain",
		`{"plan":{"header":"Authorization"}}`:                                       "plan.header",
		`{"endpoint":{"header":"authorization"}}`:                                   "endpoint.header",
		`{"endpoint":{"method_header":"cookie"}}`:                                   "endpoint.method_header",
		`{"attributes":{"a":{"header":"authorization"}}}`:                           "attributes.a.header",
		`{"attributes":{"a":{"header":"Cookie"}}}`:                                  "attributes.a.header",
		`{"user":{"header":"a","default":"\u0000"}}`:                                "user.default",
		`{"cost":{"header":"a","query":"b"}}`:                                       "cost",
		`{"cost":{"default":-1}}`:                                                   "cost.default",
		`{"cost":{"default":0.0000001}}`:                                            "cost.default",
		`{"costs":{"usd":{"header":"a","query":"b"}}}`:                              "costs.usd",
		`{"costs":{"usd":{"default":-1}}}`:                                          "costs.usd.default",
		`{"costs":{"USD":{"header":"a"}}}`:                                          "costs",
		`{"costs":{"requests":{"header":"a"}}}`:                                     "costs.requests",
		`{"costs":{"a":{},"b":{},"c":{},"d":{},"e":{},"f":{},"g":{},"h":{}}}`:       "costs",
		`{"address":{"trusted_hops":17}}`:                                           "address.trusted_hops",
		`{"endpoint":{"templates":["orders"]}}`:                                     "endpoint.templates.0",
		`{"endpoint":{"templates":["/a","/o{id}"]}}`:                                "endpoint.templates.1",
		`{"endpoint":{"templates":["/*/a"]}}`:                                       "endpoint.templates.0",
		`{"endpoint":{"templates":["/a/{x}","/a/{y}"]}}`:                            "endpoint.templates.1",
		`{"endpoint":{"templates":["/%61"]}}`:                                       "endpoint.templates.0",
		`{"endpoint":{"folds":["dots"]}}`:                                           "endpoint.folds.0",
		`{"endpoint":{"templates":["/a","/A/"],"folds":["case","trailing_slash"]}}`: "endpoint.templates.1",
		`{"address":{"default":"nobody"}}`:                                          "address.default",
		`{"address":{"short":"first"}}`:                                             "address.short",
		`{"attributes":{"a b":{"header":"x"}}}`:                                     "attributes",
		`{"jwt":{}}`:                                                                "jwt",
		`{"jwt":{"jwks_url":"ftp://a"}}`:                                            "jwt.jwks_url",
		`{"jwt":{"jwks_url":"https://u:p@a/b"}}`:                                    "jwt.jwks_url",
		`{"jwt":{"jwks":"[]"}}`:                                                     "jwt.jwks",
		`{"jwt":{"jwks":"{\"keys\":[{\"kty\":\"oct\"}]}"}}`:                         "jwt.jwks",
		`{"jwt":{"jwks":"{\"keys\":[{\"kty\":\"EC\",\"d\":1}]}"}}`:                  "jwt.jwks",
	} {
		var a gateway.Authorize
		if err := json.Unmarshal([]byte(document), &a); err != nil {
			t.Fatal(document, err)
		}
		if wrong := a.Validate(); len(wrong) != 1 || wrong[0].Field != field {
			t.Errorf("%s: %v, want one error at %s", document, wrong, field)
		}
	}
	for _, document := range []string{`{"users":{}}`, `{} {}`, `[]`, ``} {
		if _, err := gateway.ParseAuthorize(document); err == nil {
			t.Errorf("%s is read", document)
		}
	}
}

func TestClaimsAreTextOrWholeNumbers(t *testing.T) {
	t.Parallel()
	claims, err := gateway.ReadClaims(
		[]byte(`{"a":"x","b":7,"c":{"d":{"e":"deep"}},"https://f.g/h":"url","i":1.5,"j":true,"k":null,"l":[1]}`),
		[]string{"a", "b", "c.d.e", "https://f.g/h", "i", "j", "k", "l", "m", "c.d", "a.x"})
	if want := (gateway.Claims{"a": "x", "b": "7", "c.d.e": "deep", "https://f.g/h": "url"}); err != nil ||
		!maps.Equal(claims, want) {
		t.Errorf("the claims are %v, %v, want %v", claims, err, want)
	}
}

func FuzzCleanPath(f *testing.F) {
	for _, seed := range []string{"/a/../b", "/%2e%2E/%", "//", "http://x/%c3", "/a/./", "*"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if path == "" {
			return
		}
		once, err := gateway.Default.Check(&gateway.Request{Headers: headers{}, Below: path, Method: "GET"}, nil)
		if err != nil {
			return
		}
		twice, err := gateway.Default.Check(&gateway.Request{Headers: headers{}, Below: once.Endpoint, Method: "GET"},
			nil)
		if err != nil || twice.Endpoint != once.Endpoint || !strings.HasPrefix(once.Endpoint, "/") {
			t.Errorf("%q becomes %q, which becomes %q: %v", path, once.Endpoint, twice.Endpoint, err)
		}
	})
}

func TestAWrongMappingOfDescriptorsIsRefused(t *testing.T) {
	t.Parallel()
	for document, field := range map[string]string{
		`{"keys":{"a":"cost"}}`:                                                "keys.a",
		`{"keys":{"":"plan"}}`:                                                 "keys",
		`{"domains":{"":{}}}`:                                                  "domains",
		`{"domains":{"d":{"templates":[[]]}}}`:                                 "domains.d.templates.0",
		`{"domains":{"d":{"templates":[["a"],["a"]]}}}`:                        "domains.d.templates.1",
		`{"domains":{"d":{"templates":[["=a"]]}}}`:                             "domains.d.templates.0",
		`{"domains":{"d":{"templates":[["a"],["b"]],"replaces":{"a":["c"]}}}}`: "domains.d.replaces",
		`{"domains":{"d":{"templates":[["a"],["b"]],"replaces":{"c":["a"]}}}}`: "domains.d.replaces",
		`{"domains":{"d":{"templates":[["a"]],"replaces":{"a":["a"]}}}}`:       "domains.d.replaces",
		`{"domains":{"d":{"templates":[["a"]],"replaces":{"a":[]}}}}`:          "domains.d.replaces",
		`{"domains":{"d":{"meter":"Tokens"}}}`:                                 "domains.d.meter",
		`{"domains":{"d":{"hits":{"a":{"meter":"a b"}}}}}`:                     "domains.d.hits.a.meter",
		`{"domains":{"d":{"templates":[["a"]],"hits":{"b":{"record":true}}}}}`: "domains.d.hits",
		`{"domains":{"d":{"templates":[["a"]]},"e":{"replaces":{"a":["a"]}}}}`: "domains.e.replaces",
		`{"domains":{"d":{"templates":[["` + strings.Repeat("x", 600) +
			`"]]}}}`: "domains.d.templates.0",
		`{"domains":{"d":{"templates":[["a"` + strings.Repeat(`,"a"`, 16) + `]]}}}`: "domains.d.templates.0",
	} {
		var d gateway.Descriptors
		if err := json.Unmarshal([]byte(document), &d); err != nil {
			t.Fatal(err)
		}
		wrong := d.Validate()
		if len(wrong) == 0 || wrong[0].Field != field {
			t.Errorf("%s: %v, want %s", document, wrong, field)
		}
		if _, err := gateway.ParseDescriptors(document); err == nil {
			t.Errorf("%s can be read", document)
		}
	}
}

func TestADescriptorWithoutANameGetsNone(t *testing.T) {
	t.Parallel()
	d, err := gateway.ParseDescriptors(`{"domains":{"d":{"templates":[["a"]]}}}`)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := d.Compile().Check("d", []gateway.Entry{{Key: "descriptor", Value: "a"}}, nil)
	for _, a := range r.Attributes {
		if a.Name == gateway.DescriptorAttribute {
			t.Errorf("it is called %q", a.Value)
		}
	}
}
