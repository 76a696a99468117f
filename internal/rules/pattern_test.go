package rules

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func TestPatternSaysWhatMatchesAndWhatSharesABucket(t *testing.T) {
	t.Parallel()
	network := netip.MustParsePrefix
	anyUser := Segment{Field: FieldUser, Placeholder: true}
	tests := map[string]struct {
		text  string
		scope Scope
		want  []Segment
	}{
		"each user has a bucket":      {"user:{user_id}", ScopeUser, []Segment{anyUser}},
		"one user":                    {"user:42", ScopeUser, []Segment{{Field: FieldUser, Value: "42"}}},
		"a user whose name is quoted": {`user:"a:""b"""`, ScopeUser, []Segment{{Field: FieldUser, Value: `a:"b"`}}},
		"a user named like a placeholder": {
			`user:"{user_id}"`, ScopeUser,
			[]Segment{{Field: FieldUser, Value: "{user_id}"}},
		},
		"braces inside a value are text": {
			"user:a{user_id}", ScopeUser,
			[]Segment{{Field: FieldUser, Value: "a{user_id}"}},
		},
		"two braced words are text": {"user:{a}{b}", ScopeUser, []Segment{{Field: FieldUser, Value: "{a}{b}"}}},
		"each user on one endpoint": {
			"user:{user_id}:endpoint:/api/search", ScopeUser,
			[]Segment{anyUser, {Field: FieldEndpoint, Value: "/api/search"}},
		},
		"each endpoint has a bucket": {
			"endpoint:{endpoint}", ScopeEndpoint,
			[]Segment{{Field: FieldEndpoint, Placeholder: true}},
		},
		"all below a path": {
			"endpoint:/api/*", ScopeEndpoint,
			[]Segment{{Field: FieldEndpoint, Value: "/api/", Below: true}},
		},
		"all below the root": {
			"endpoint:/*", ScopeEndpoint,
			[]Segment{{Field: FieldEndpoint, Value: "/", Below: true}},
		},
		"one method below a quoted path": {
			`endpoint:GET "/users/:id/"*`, ScopeEndpoint,
			[]Segment{{Field: FieldEndpoint, Method: "GET", Value: "/users/:id/", Below: true}},
		},
		"one method of an endpoint": {
			"endpoint:POST /v1/charges", ScopeEndpoint,
			[]Segment{{Field: FieldEndpoint, Method: "POST", Value: "/v1/charges"}},
		},
		"a method with a hyphen": {
			"endpoint:VERSION-CONTROL /x", ScopeEndpoint,
			[]Segment{{Field: FieldEndpoint, Method: "VERSION-CONTROL", Value: "/x"}},
		},
		"quotes take a method as text": {
			`endpoint:"POST /v1/charges"`, ScopeEndpoint,
			[]Segment{{Field: FieldEndpoint, Value: "POST /v1/charges"}},
		},
		"quotes take a star as text": {
			`endpoint:"/files/*"`, ScopeEndpoint,
			[]Segment{{Field: FieldEndpoint, Value: "/files/*"}},
		},
		"a route template": {
			"endpoint:/users/{id}", ScopeEndpoint,
			[]Segment{{Field: FieldEndpoint, Value: "/users/{id}"}},
		},
		"a capital word is an endpoint": {
			"endpoint:GET", ScopeEndpoint,
			[]Segment{{Field: FieldEndpoint, Value: "GET"}},
		},
		"everything":                {"global", ScopeGlobal, []Segment{{Field: FieldGlobal}}},
		"each address has a bucket": {"ip:{ip}", ScopeIP, []Segment{{Field: FieldIP, Placeholder: true}}},
		"an IPv4 network": {
			"ip:203.0.113.0/24", ScopeIP,
			[]Segment{{Field: FieldIP, Prefix: network("203.0.113.0/24")}},
		},
		"an IPv4 address": {
			"ip:203.0.113.7", ScopeIP,
			[]Segment{{Field: FieldIP, Prefix: network("203.0.113.7/32")}},
		},
		"an IPv6 network": {
			`ip:"2001:db8::/32"`, ScopeIP,
			[]Segment{{Field: FieldIP, Prefix: network("2001:db8::/32")}},
		},
		"each organisation has a bucket": {
			"attr.org:{attr.org}", ScopeUser,
			[]Segment{{Field: FieldAttribute, Attribute: "org", Placeholder: true}},
		},
		"each user of a model": {
			"user:{user_id}:attr.model:gpt-x", ScopeUser,
			[]Segment{anyUser, {Field: FieldAttribute, Attribute: "model", Value: "gpt-x"}},
		},
		"attributes of two different names": {"attr.a:1:attr.b.c:2", ScopeUser, []Segment{
			{Field: FieldAttribute, Attribute: "a", Value: "1"}, {Field: FieldAttribute, Attribute: "b.c", Value: "2"},
		}},
		"an address on one endpoint": {
			"ip:{ip}:endpoint:/login", ScopeIP,
			[]Segment{{Field: FieldIP, Placeholder: true}, {Field: FieldEndpoint, Value: "/login"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := parsePattern(t, test.text)
			if !reflect.DeepEqual(p.Segments(), test.want) {
				t.Errorf("segments of %s:\n got %+v\nwant %+v", test.text, p.Segments(), test.want)
			}
			if p.Scope() != test.scope {
				t.Errorf("scope of %s is %q, want %q", test.text, p.Scope(), test.scope)
			}
			if p.String() != test.text {
				t.Errorf("%s prints as %s", test.text, p)
			}
		})
	}
}

func TestPatternErrorsSayWhereAndWhatIsExpected(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"bytes that are not UTF-8": {"user:a\xffb", "at byte 6: expected UTF-8, found the byte 0xff"},
		"a user id that is too long": {
			"user:" + strings.Repeat("x", 257),
			"at byte 5: expected a user id of at most 256 bytes, found 257",
		},
		"a value that is too long": {
			"attr.a:" + strings.Repeat("x", 257),
			"at byte 7: expected an attribute's value of at most 256 bytes, found 257",
		},
		"an attribute name too long": {
			"attr." + strings.Repeat("x", 65) + ":1",
			"at byte 5: expected an attribute's name",
		},
		"a pattern that is too long": {
			"endpoint:/" + strings.Repeat("x", 510),
			"at byte 512: expected the end: a pattern has at most 512 bytes, this one has 520",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := ParsePattern(test.text)
			if err == nil {
				t.Fatalf("%q was read as %s, want an error", test.text, p)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error for %q:\n got %s\nwant %s", test.text, err, test.want)
			}
		})
	}
}

func FuzzParserAndPrinterAgree(f *testing.F) {
	for _, seed := range []string{
		"global", "user:{user_id}", "user:42", `user:"{user_id}"`, "user:{user_id}:endpoint:/api/search",
		"endpoint:/api/*", "endpoint:{endpoint}", "endpoint:POST /v1/charges", `endpoint:"POST /v1"`,
		`endpoint:GET "/users/:id/"*`, `endpoint:"/files/*name"`, `endpoint:POST "{id}"`, "ip:{ip}",
		"ip:203.0.113.0/24", `ip:"2001:DB8::/32"`, `ip:"::ffff:1.2.3.4"`, `ip:"::ffff:0:0/95"`,
		"user:{user_id}:attr.model:gpt-x", "attr.org:{attr.org}", `attr.a:" x":user:"""":ip:0.0.0.0/0`,
		`user:"` + "\u00a0" + `"`, "user:{a}{b}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePattern(text)
		if err != nil {
			if !reflect.DeepEqual(p, Pattern{}) {
				t.Fatalf("%q is refused but gives %+v", text, p)
			}
			return
		}
		again, err := ParsePattern(p.String())
		if err != nil {
			t.Fatalf("%q prints as %q, which is refused: %v", text, p, err)
		}
		if !reflect.DeepEqual(again, p) {
			t.Fatalf("%q prints as %q and is read back as\n %+v, was\n %+v", text, p, again, p)
		}
	})
}

func parsePattern(t *testing.T, text string) Pattern {
	t.Helper()
	p, err := ParsePattern(text)
	if err != nil {
		t.Fatalf("pattern %s: %v", text, err)
	}
	return p
}
