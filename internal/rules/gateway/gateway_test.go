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

// headers are request headers, as lines "Name: value".
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
	tests := map[string]struct {
		document string
		headers  headers
		below    string
		query    string
		claims   gateway.Claims
		want     string // the fields that differ from the default
	}{
		"nothing is said": {document: `{}`, want: "cost=1000000"},
		"the defaults": {
			`{}`,
			headers{"X-Forwarded-Uri: /a/b?c=d", "X-Forwarded-Method: POST", "X-Forwarded-For: 9.9.9.9, 203.0.113.9"},
			"", "", nil, "endpoint=/a/b method=POST ip=203.0.113.9 cost=1000000",
		},
		"identity is not guessed": {
			`{}`,
			headers{"X-User-Id: 42", "Authorization: Bearer x"},
			"", "", nil,
			"cost=1000000",
		},
		"a header is hashed": {
			`{"user":{"header":"x-api-key"}}`,
			headers{"X-Api-Key: 42"},
			"", "", nil,
			"user=" + hashOf42 + " cost=1000000",
		},
		"unless it is plain": {
			`{"user":{"header":"x-user","plain":true}}`,
			headers{"X-User: 42"},
			"", "", nil,
			"user=42 cost=1000000",
		},
		"an empty one is none": {`{"user":{"header":"x-user"}}`, headers{"X-User: "}, "", "", nil, "cost=1000000"},
		"claims": {
			`{` + jwt +
				`,"user":{"claim":"sub"},"plan":{"claim":"org.plan"},"attributes":{"org":{"claim":"org.id"},"none":{"claim":"x"}}}`,
			nil, "", "",
			gateway.Claims{"sub": "42", "org.plan": "pro", "org.id": "7"},
			"user=42 plan=pro cost=1000000 attr.org=7",
		},
		"the path below is the proxy's": {
			`{}`,
			headers{"X-Forwarded-Uri: /spoofed", "X-Forwarded-Method: PUT"},
			"/orders/1", "", nil,
			"endpoint=/orders/1 method=GET cost=1000000",
		},
		"another header for the " +
			"URI": {
			`{"endpoint":{"header":"X-Original-URI","method_header":"X-Original-Method"}}`,
			headers{"X-Original-Uri: /a", "X-Original-Method: PUT", "X-Forwarded-Uri: /b"},
			"", "", nil,
			"endpoint=/a method=PUT cost=1000000",
		},
		"a template": {
			`{"endpoint":{"templates":["/orders/{id}"]}}`,
			headers{"X-Forwarded-Uri: /orders/123?x"},
			"", "", nil, "endpoint=/orders/{id} cost=1000000",
		},
		"a cost in a header": {
			`{"cost":{"header":"x-cost","default":2}}`,
			headers{"X-Cost: 0.25"},
			"", "", nil, "cost=250000",
		},
		"without a cost the default": {
			`{"cost":{"header":"x-cost","default":2.5}}`, nil, "", "", nil,
			"cost=2500000",
		},
		"a cost of the visitor's query": {
			`{"cost":{"query":"limit"}}`,
			headers{"X-Forwarded-Uri: /a?limit=5&x=1"},
			"", "", nil, "endpoint=/a cost=5000000",
		},
		"of several the largest": {
			`{"cost":{"query":"limit"}}`,
			headers{"X-Forwarded-Uri: /a?limit=5&limit=70&l%69mit=9"},
			"", "", nil, "endpoint=/a cost=70000000",
		},
		"a visitor cannot ask for nothing": {
			`{"cost":{"query":"limit"}}`,
			headers{"X-Forwarded-Uri: /a?limit=0"},
			"", "", nil, "endpoint=/a cost=1000000",
		},
		"a query that Envoy kept": {
			`{"cost":{"query":"limit"}}`, nil, "/a", "limit=5", nil,
			"endpoint=/a method=GET cost=5000000",
		},
		"two trusted hops": {
			`{"address":{"trusted_hops":2}}`,
			headers{"X-Forwarded-For: 6.6.6.6, 203.0.113.9", "X-Forwarded-For: 10.0.0.1, 10.0.0.2"},
			"", "", nil,
			"ip=203.0.113.9 cost=1000000",
		},
		"a list shorter than its hops is nothing": {
			`{"address":{"trusted_hops":2}}`,
			headers{"X-Forwarded-For: 6.6.6.6, 10.0.0.2"},
			"", "", nil, "cost=1000000",
		},
		"an address with port": {
			`{}`,
			headers{"X-Forwarded-For: [2001:db8::1]:443"},
			"", "", nil,
			"ip=2001:db8::1 cost=1000000",
		},
		"an address with zone": {
			`{}`,
			headers{"X-Forwarded-For: fe80::1%eth0"},
			"", "", nil,
			"ip=fe80::1 cost=1000000",
		},
		"IPv4 within IPv6": {
			`{"address":{"header":"x-real-ip"}}`,
			headers{"X-Real-Ip: ::ffff:203.0.113.9"},
			"", "", nil, "ip=203.0.113.9 cost=1000000",
		},
		"no address": {
			`{}`,
			headers{"X-Forwarded-For: unknown"},
			"", "", nil,
			"cost=1000000",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := gateway.Request{Headers: test.headers, Method: "GET", Query: test.query, Below: test.below}
			check, err := compile(t, test.document).Check(&request, test.claims)
			if got := show(check); err != nil || got != test.want {
				t.Errorf("the check is %q, %v, want %q", got, err, test.want)
			}
		})
	}
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
		"a long user": {
			`{"user":{"header":"x-user","plain":true}}`,
			headers{"X-User: " + strings.Repeat("u", 257)},
			"more than 256 bytes",
		},
		"a user in Latin-1": {`{"user":{"header":"x-user","plain":true}}`, headers{"X-User: \xe9"}, "UTF-8"},
		"a long path": {
			`{}`,
			headers{"X-Forwarded-Uri: /" + strings.Repeat("p", 1024)},
			"more than 1024 bytes",
		},
		"a method that is none": {`{}`, headers{"X-Forwarded-Uri: /", "X-Forwarded-Method: G ET"}, "method"},
		"a cost in words":       {`{"cost":{"header":"x-cost"}}`, headers{"X-Cost: five"}, "must be a number"},
		"a negative cost":       {`{"cost":{"query":"n"}}`, headers{"X-Forwarded-Uri: /?n=-5"}, "must be a number"},
		"another spelling":      {`{"cost":{"query":"n"}}`, headers{"X-Forwarded-Uri: /?n=1e9"}, "must be a number"},
		"a plus":                {`{"cost":{"query":"n"}}`, headers{"X-Forwarded-Uri: /?n=%2B100"}, "must be a number"},
		"a huge cost": {
			`{"cost":{"query":"n"}}`,
			headers{"X-Forwarded-Uri: /?n=1000000001"},
			"must be at most",
		},
		"a huger one": {
			`{"cost":{"query":"n"}}`,
			headers{"X-Forwarded-Uri: /?n=99999999999999999999999"},
			"must be at most",
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
	document := `{"endpoint":{"templates":["/orders/{id}","/orders/latest","/orders/{id}/items/{item}","/{kind}/latest/x","/files/*","/"]}}`
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
		`{"user":{"header":"a","claim":"b"},` + jwt + `}`:          "user",
		`{"user":{"claim":"sub"}}`:                                 "user.claim",
		`{"user":{"header":"a b"}}`:                                "user.header",
		`{"user":{"header":"x-sluice-key"}}`:                       "user.header",
		`{"user":{"header":"authorization","plain":true}}`:         "user.plain",
		`{"cost":{"header":"a","query":"b"}}`:                      "cost",
		`{"cost":{"default":-1}}`:                                  "cost.default",
		`{"cost":{"default":0.0000001}}`:                           "cost.default",
		`{"address":{"trusted_hops":17}}`:                          "address.trusted_hops",
		`{"endpoint":{"templates":["orders"]}}`:                    "endpoint.templates.0",
		`{"endpoint":{"templates":["/a","/o{id}"]}}`:               "endpoint.templates.1",
		`{"endpoint":{"templates":["/*/a"]}}`:                      "endpoint.templates.0",
		`{"endpoint":{"templates":["/a/{x}","/a/{y}"]}}`:           "endpoint.templates.1",
		`{"endpoint":{"templates":["/%61"]}}`:                      "endpoint.templates.0",
		`{"attributes":{"a b":{"header":"x"}}}`:                    "attributes",
		`{"jwt":{}}`:                                               "jwt",
		`{"jwt":{"jwks_url":"ftp://a"}}`:                           "jwt.jwks_url",
		`{"jwt":{"jwks_url":"https://u:p@a/b"}}`:                   "jwt.jwks_url",
		`{"jwt":{"jwks":"[]"}}`:                                    "jwt.jwks",
		`{"jwt":{"jwks":"{\"keys\":[{\"kty\":\"oct\"}]}"}}`:        "jwt.jwks",
		`{"jwt":{"jwks":"{\"keys\":[{\"kty\":\"EC\",\"d\":1}]}"}}`: "jwt.jwks",
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
		`{"domains":{"d":{"templates":[["a"]]},"e":{"replaces":{"a":["a"]}}}}`: "domains.e.replaces",
		`{"domains":{"d":{"templates":[["` + strings.Repeat("x", 600) +
			`"]]}}}`: "domains.d.templates.0",
		`{"domains":{"d":{"templates":[["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"]]}}}`: "domains.d.templates.0",
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
	r := d.Compile().Check("d", []gateway.Entry{{Key: "descriptor", Value: "a"}}, nil)
	for _, a := range r.Attributes {
		if a.Name == gateway.DescriptorAttribute {
			t.Errorf("it is called %q", a.Value)
		}
	}
}
