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
		"each user has a bucket":          {"user:{user_id}", ScopeUser, []Segment{anyUser}},
		"one user":                        {"user:42", ScopeUser, []Segment{{Field: FieldUser, Value: "42"}}},
		"a user whose name is quoted":     {`user:"a:""b"""`, ScopeUser, []Segment{{Field: FieldUser, Value: `a:"b"`}}},
		"a user named like a placeholder": {`user:"{user_id}"`, ScopeUser, []Segment{{Field: FieldUser, Value: "{user_id}"}}},
		"braces inside a value are text":  {"user:a{user_id}", ScopeUser, []Segment{{Field: FieldUser, Value: "a{user_id}"}}},
		"two braced words are text":       {"user:{a}{b}", ScopeUser, []Segment{{Field: FieldUser, Value: "{a}{b}"}}},
		"each user on one endpoint":       {"user:{user_id}:endpoint:/api/search", ScopeUser, []Segment{anyUser, {Field: FieldEndpoint, Value: "/api/search"}}},
		"each endpoint has a bucket":      {"endpoint:{endpoint}", ScopeEndpoint, []Segment{{Field: FieldEndpoint, Placeholder: true}}},
		"all below a path":                {"endpoint:/api/*", ScopeEndpoint, []Segment{{Field: FieldEndpoint, Value: "/api/", Below: true}}},
		"all below the root":              {"endpoint:/*", ScopeEndpoint, []Segment{{Field: FieldEndpoint, Value: "/", Below: true}}},
		"one method below a quoted path":  {`endpoint:GET "/users/:id/"*`, ScopeEndpoint, []Segment{{Field: FieldEndpoint, Method: "GET", Value: "/users/:id/", Below: true}}},
		"one method of an endpoint":       {"endpoint:POST /v1/charges", ScopeEndpoint, []Segment{{Field: FieldEndpoint, Method: "POST", Value: "/v1/charges"}}},
		"a method with a hyphen":          {"endpoint:VERSION-CONTROL /x", ScopeEndpoint, []Segment{{Field: FieldEndpoint, Method: "VERSION-CONTROL", Value: "/x"}}},
		"quotes take a method as text":    {`endpoint:"POST /v1/charges"`, ScopeEndpoint, []Segment{{Field: FieldEndpoint, Value: "POST /v1/charges"}}},
		"quotes take a star as text":      {`endpoint:"/files/*"`, ScopeEndpoint, []Segment{{Field: FieldEndpoint, Value: "/files/*"}}},
		"a route template":                {"endpoint:/users/{id}", ScopeEndpoint, []Segment{{Field: FieldEndpoint, Value: "/users/{id}"}}},
		"a capital word is an endpoint":   {"endpoint:GET", ScopeEndpoint, []Segment{{Field: FieldEndpoint, Value: "GET"}}},
		"everything":                      {"global", ScopeGlobal, []Segment{{Field: FieldGlobal}}},
		"each address has a bucket":       {"ip:{ip}", ScopeIP, []Segment{{Field: FieldIP, Placeholder: true}}},
		"an IPv4 network":                 {"ip:203.0.113.0/24", ScopeIP, []Segment{{Field: FieldIP, Prefix: network("203.0.113.0/24")}}},
		"an IPv4 address":                 {"ip:203.0.113.7", ScopeIP, []Segment{{Field: FieldIP, Prefix: network("203.0.113.7/32")}}},
		"an IPv6 network":                 {`ip:"2001:db8::/32"`, ScopeIP, []Segment{{Field: FieldIP, Prefix: network("2001:db8::/32")}}},
		"each organisation has a bucket":  {"attr.org:{attr.org}", ScopeUser, []Segment{{Field: FieldAttribute, Attribute: "org", Placeholder: true}}},
		"each user of a model":            {"user:{user_id}:attr.model:gpt-x", ScopeUser, []Segment{anyUser, {Field: FieldAttribute, Attribute: "model", Value: "gpt-x"}}},
		"attributes of two different names": {"attr.a:1:attr.b.c:2", ScopeUser, []Segment{
			{Field: FieldAttribute, Attribute: "a", Value: "1"}, {Field: FieldAttribute, Attribute: "b.c", Value: "2"},
		}},
		"an address on one endpoint": {"ip:{ip}:endpoint:/login", ScopeIP, []Segment{{Field: FieldIP, Placeholder: true}, {Field: FieldEndpoint, Value: "/login"}}},
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

func TestOneMeaningHasOneText(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"unneeded quotes go":                   {`user:"42"`, "user:42"},
		"unneeded quotes before a star go":     {`endpoint:GET "/api/"*`, "endpoint:GET /api/*"},
		"a space needs quotes at the end only": {`user:"a b":attr.x:" "`, `user:a b:attr.x:" "`},
		"a single IPv4 address has no length":  {"ip:203.0.113.7/32", "ip:203.0.113.7"},
		"a single IPv6 address has no length":  {`ip:"2001:DB8:0:0::1/128"`, `ip:"2001:db8::1"`},
		"a mapped address is IPv4":             {`ip:"::ffff:203.0.113.7"`, "ip:203.0.113.7"},
		"a mapped network is IPv4":             {`ip:"::ffff:cb00:7100/120"`, "ip:203.0.113.0/24"},
		"all mapped addresses are all of IPv4": {`ip:"::ffff:0.0.0.0/96"`, "ip:0.0.0.0/0"},
		"the scope's fields come first":        {"endpoint:/x:ip:{ip}:attr.b:1:attr.a:2:user:7", "endpoint:/x:user:7:attr.a:2:attr.b:1:ip:{ip}"},
		"a user comes before attributes":       {"attr.a:1:endpoint:/x:user:{user_id}", "user:{user_id}:attr.a:1:endpoint:/x"},
		"an ip's own field comes first":        {"ip:{ip}:endpoint:/x:user:{user_id}", "ip:{ip}:user:{user_id}:endpoint:/x"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := parsePattern(t, test.text).String(); got != test.want {
				t.Errorf("%s prints as %s, want %s", test.text, got, test.want)
			}
		})
	}
}

func TestPatternErrorsSayWhereAndWhatIsExpected(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"nothing":                          {"", "at byte 0: expected global, or a segment such as user:{user_id}"},
		"an unknown field":                 {"user:1:plan:pro", `at byte 7: expected user, endpoint, ip or attr.NAME, found "plan"`},
		"an endpoint with a bare colon":    {"endpoint:/v1/things:batch", `at byte 20: expected user, endpoint, ip or attr.NAME, found "batch"; a value that contains ':' is written in double quotes`},
		"an IPv6 network without quotes":   {"ip:2001:db8::/32", `at byte 3: expected {ip}, an address such as 203.0.113.7 or "2001:db8::1" in quotes`},
		"a field without a value":          {"user", "at byte 4: expected ':' and a value after user"},
		"an empty value":                   {"user::ip:{ip}", "at byte 5: expected a value, found nothing"},
		"an empty quoted value":            {`user:""`, "at byte 5: expected a value, found nothing between the quotes"},
		"a trailing colon":                 {"user:1:", `at byte 7: expected user, endpoint, ip or attr.NAME, found ""`},
		"global with more":                 {"global:user:1", "at byte 0: global stands alone"},
		"more with global":                 {"user:1:global", "at byte 7: global stands alone"},
		"a field given twice":              {"user:1:ip:{ip}:user:2", "at byte 15: user stands here a second time"},
		"an attribute given twice":         {"attr.a:1:attr.a:2", "at byte 9: attr.a stands here a second time"},
		"a placeholder of another field":   {"user:{ip}", "at byte 5: unknown placeholder {ip}: user takes {user_id}"},
		"a misspelt placeholder":           {"endpoint:{path}", "at byte 9: unknown placeholder {path}: endpoint takes {endpoint}"},
		"an empty placeholder":             {"user:{}", "at byte 5: unknown placeholder {}: user takes {user_id}"},
		"another attribute's placeholder":  {"attr.org:{attr.model}", "at byte 9: unknown placeholder {attr.model}: attr.org takes {attr.org}"},
		"a method before a placeholder":    {"endpoint:GET {endpoint}", "at byte 13: expected an endpoint after the method GET"},
		"an attribute without a name":      {"attr.:1", `at byte 5: expected an attribute's name of 1 to 64 letters`},
		"an attribute with an odd name":    {"attr.a b:1", `at byte 5: expected an attribute's name of 1 to 64 letters`},
		"a quote inside a bare value":      {`user:a"b"`, "at byte 6: expected no quote inside a bare value"},
		"a quote that does not close":      {`user:"a""`, "at byte 9: expected the closing quote of the value that begins at byte 5"},
		"text behind a quoted value":       {`user:"a"b`, `at byte 8: expected ':' or the end, found "b"`},
		"a star behind a quoted user":      {`user:"a/"*`, `at byte 9: expected ':' or the end, found "*"`},
		"space around a value":             {"user: 42", "at byte 5: expected a value without space around it"},
		"a star inside an endpoint":        {"endpoint:/files/*name", `at byte 9: expected '*' only at the end, after '/', as in /api/*; if the star belongs to a route template, write it in double quotes: "/files/*name"`},
		"a star without a slash":           {"endpoint:/api*", "at byte 9: expected '*' only at the end, after '/'"},
		"a star alone":                     {"endpoint:*", "at byte 9: expected '*' only at the end, after '/'"},
		"a quoted star without a slash":    {`endpoint:"/a:b"*`, `at byte 9: expected '/' before the star`},
		"a method in small letters":        {"endpoint:post /x", "at byte 9: expected no space except after a method in capital letters"},
		"two spaces after a method":        {"endpoint:GET  /x", "at byte 13: expected a value without space around it"},
		"something that is not an address": {"ip:localhost", `at byte 3: expected {ip}, an address such as 203.0.113.7`},
		"an address with a zone":           {`ip:"fe80::1%eth0"`, "at byte 3: expected {ip}, an address"},
		"a quoted placeholder for an ip":   {`ip:"{ip}"`, "at byte 3: expected {ip}, an address"},
		"an IPv4 network with host bits":   {"ip:203.0.113.7/24", "at byte 3: expected a network without host bits: 203.0.113.7 lies in 203.0.113.0/24"},
		"an IPv6 network with host bits":   {`ip:"2001:db8::1/32"`, "at byte 3: expected a network without host bits: 2001:db8::1 lies in 2001:db8::/32"},
		"a mapped network with host bits":  {`ip:"::ffff:10.0.0.1/104"`, "at byte 3: expected a network without host bits: 10.0.0.1 lies in 10.0.0.0/8"},
		"a NUL byte":                       {"user:a\x00b", "at byte 6: expected text, found a NUL byte"},
		"bytes that are not UTF-8":         {"user:a\xffb", "at byte 6: expected UTF-8, found the byte 0xff"},
		"a user id that is too long":       {"user:" + strings.Repeat("x", 257), "at byte 5: expected a user id of at most 256 bytes, found 257"},
		"a value that is too long":         {"attr.a:" + strings.Repeat("x", 257), "at byte 7: expected an attribute's value of at most 256 bytes, found 257"},
		"an attribute name too long":       {"attr." + strings.Repeat("x", 65) + ":1", "at byte 5: expected an attribute's name"},
		"a pattern that is too long":       {"endpoint:/" + strings.Repeat("x", 510), "at byte 512: expected the end: a pattern has at most 512 bytes, this one has 520"},
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

func TestOnlyAPlaceholderSplitsByUser(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"user:{user_id}":                 true,
		"endpoint:/login:user:{user_id}": true,
		"user:42":                        false,
		`user:"{user_id}"`:               false,
		"ip:{ip}":                        false,
		"global":                         false,
	} {
		if got := parsePattern(t, text).SplitsByUser(); got != want {
			t.Errorf("%s splits by user: %v, want %v", text, got, want)
		}
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

// parsePattern reads a pattern that must be valid.
func parsePattern(t *testing.T, text string) Pattern {
	t.Helper()
	p, err := ParsePattern(text)
	if err != nil {
		t.Fatalf("pattern %s: %v", text, err)
	}
	return p
}
