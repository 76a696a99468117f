package checkapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
)

func limitsOfEverything(t *testing.T) []rules.Rule {
	return []rules.Rule{limit(t, 1, "global", 1, 1000), limit(t, 2, "user:{user_id}", 1, 1000)}
}

func (h *harness) wantRefused(w *httptest.ResponseRecorder, pointers ...string) {
	h.t.Helper()
	var problem struct {
		Type   string
		Status int
		Errors []struct{ Pointer, Detail string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
		h.t.Fatalf("answered %d %s: %v", w.Code, w.Body, err)
	}
	var got []string
	for _, e := range problem.Errors {
		got = append(got, e.Pointer)
	}
	if w.Code != 400 || problem.Status != 400 || problem.Type != "urn:sluice:problem:invalid-request" ||
		!slices.Equal(got, pointers) {
		h.t.Errorf("answered %d %s\nwant 400 with errors at %q", w.Code, w.Body, pointers)
	}
	if h.decided != 0 || h.store.Len() != 0 {
		h.t.Errorf("a refused request decided %d checks and made %d buckets", h.decided, h.store.Len())
	}
}

func TestBadChecksAreRefusedAndNothingIsTaken(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("a", n) }
	attributes := func(n int) string {
		var members []string
		for i := range n {
			members = append(members, fmt.Sprintf(`"a%d":"v"`, i))
		}
		return `{"user_id":"x","attributes":{` + strings.Join(members, ",") + `}}`
	}
	tests := map[string]struct {
		body     string
		pointers []string // of the errors; none: the check is accepted
	}{
		"a body that is null":     {`null`, []string{""}},
		"a body that is a list":   {`[{"user_id":"x"}]`, []string{""}},
		"no body":                 {``, []string{""}},
		"two bodies":              {`{"user_id":"x"}{"user_id":"y"}`, []string{""}},
		"an unknown field":        {`{"user_id":"x","user":"y"}`, []string{"/user"}},
		"a field in another case": {`{"User_id":"x"}`, []string{"/User_id"}},
		"a field with a slash, escaped in its pointer": {`{"a/b~c":1}`, []string{"/a~1b~0c"}},
		"the same field twice":                         {`{"user_id":"x","user_id":"x"}`, []string{"/user_id"}},
		"the same attribute twice":                     {`{"attributes":{"a":"1","a":"1"}}`, []string{"/attributes/a"}},
		"every field of a wrong type": {
			`{"user_id":true,"plan":1,"endpoint":[],"method":{},"ip":7,"cost":"1","attributes":[]}`,
			[]string{"/user_id", "/plan", "/endpoint", "/method", "/ip", "/cost", "/attributes"},
		},
		"every field null": {
			`{"user_id":null,"plan":null,"endpoint":null,"method":null,"ip":null,"cost":null,"attributes":null}`,
			[]string{"/user_id", "/plan", "/endpoint", "/method", "/ip", "/cost", "/attributes"},
		},
		"every field an empty " +
			"string": {`{"user_id":"","plan":"","endpoint":"","method":"","ip":"","attributes":{"a":""}}`, nil},
		"NUL in a user":                 {`{"user_id":"x\u0000"}`, []string{"/user_id"}},
		"NUL in an attribute":           {`{"attributes":{"a":"\u0000"}}`, []string{"/attributes/a"}},
		"NUL in an attribute's name":    {`{"attributes":{"a\u0000":"b"}}`, []string{"/attributes/a\x00"}},
		"a lone surrogate":              {`{"user_id":"\ud83d"}`, []string{"/user_id"}},
		"invalid UTF-8":                 {"{\"endpoint\":\"/\xe9\"}", []string{"/endpoint"}},
		"the longest user":              {`{"user_id":"` + long(256) + `"}`, nil},
		"a user too long":               {`{"user_id":"` + long(257) + `"}`, []string{"/user_id"}},
		"a user too long in bytes":      {`{"user_id":"` + strings.Repeat("é", 129) + `"}`, []string{"/user_id"}},
		"an integer far beyond 64 bits": {`{"user_id":-123456789012345678901234567890}`, nil},
		"an integer too long":           {`{"user_id":` + strings.Repeat("1", 257) + `}`, []string{"/user_id"}},
		"a user with a fraction":        {`{"user_id":1.0}`, []string{"/user_id"}},
		"a user with an exponent":       {`{"user_id":1e3}`, []string{"/user_id"}},
		"a user of minus zero":          {`{"user_id":-0}`, []string{"/user_id"}},
		"a plan that does not exist":    {`{"user_id":"x","plan":"gold"}`, []string{"/plan"}},
		"a plan in another case":        {`{"user_id":"x","plan":"Pro"}`, []string{"/plan"}},
		"the longest endpoint":          {`{"endpoint":"` + long(1024) + `"}`, nil},
		"an endpoint too long":          {`{"endpoint":"` + long(1025) + `"}`, []string{"/endpoint"}},
		"the longest method":            {`{"method":"` + long(32) + `"}`, nil},
		"a method too long":             {`{"method":"` + long(33) + `"}`, []string{"/method"}},
		"a method with every character": {"{\"method\":\"!#$%&'*+-.^_`|~09azAZ\"}", nil},
		"a method with a space":         {`{"method":"GET "}`, []string{"/method"}},
		"a method with an umlaut":       {`{"method":"GÄT"}`, []string{"/method"}},
		"an IPv6 address":               {`{"ip":"2001:db8::1"}`, nil},
		"no address at all":             {`{"ip":"localhost"}`, []string{"/ip"}},
		"an address with a port":        {`{"ip":"203.0.113.9:80"}`, []string{"/ip"}},
		"an address with a zone":        {`{"ip":"fe80::1%eth0"}`, []string{"/ip"}},
		"an address with a prefix":      {`{"ip":"203.0.113.0/24"}`, []string{"/ip"}},
		"an address with leading zeros": {`{"ip":"203.0.113.09"}`, []string{"/ip"}},
		"a negative cost":               {`{"cost":-0.000001}`, []string{"/cost"}},
		"a cost of seven decimals":      {`{"cost":0.0000001}`, []string{"/cost"}},
		"the largest cost":              {`{"cost":1000000000}`, nil},
		"a cost too large":              {`{"cost":1000000000.000001}`, []string{"/cost"}},
		"a cost with a huge exponent":   {`{"cost":1e99999999999999999999}`, []string{"/cost"}},
		"sixteen attributes":            {attributes(16), nil},
		"seventeen attributes":          {attributes(17), []string{"/attributes"}},
		"an attribute without a name":   {`{"attributes":{"":"v"}}`, []string{"/attributes/"}},
		"an attribute with a colon":     {`{"attributes":{"a:b":"v"}}`, []string{"/attributes/a:b"}},
		"the longest attribute":         {`{"attributes":{"` + long(64) + `":"` + long(256) + `"}}`, nil},
		"an attribute's name too long": {
			`{"attributes":{"` + long(65) + `":"v"}}`,
			[]string{"/attributes/" + long(65)},
		},
		"an attribute too long":         {`{"attributes":{"a":"` + long(257) + `"}}`, []string{"/attributes/a"}},
		"an attribute that is a number": {`{"attributes":{"a":1}}`, []string{"/attributes/a"}},
		"several mistakes at once": {
			`{"cost":-1,"attributes":{"a":2,"b":"fine"},"ip":"x","odd":{"deep":[1,{"er":null}]}}`,
			[]string{"/cost", "/attributes/a", "/ip", "/odd"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, rules.DefaultSettings(), limitsOfEverything(t)...)
			check, explain := h.post("/v1/check", test.body), (*httptest.ResponseRecorder)(nil)
			if test.pointers == nil {
				if check.Code != 200 && check.Code != 429 || h.decided != 1 {
					t.Errorf("answered %d %s", check.Code, check.Body)
				}
				return
			}
			h.wantRefused(check, test.pointers...)
			explain = h.post("/v1/explain", test.body)
			h.wantRefused(explain, test.pointers...)
		})
	}
}

func TestOneBadElementFailsItsBatchAndNothingIsTaken(t *testing.T) {
	t.Parallel()
	many := func(n int, element string) string {
		return `{"checks":[` + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + `]}`
	}
	tests := map[string]struct {
		body     string
		pointers []string
	}{
		"a bad cost": {
			`{"checks":[` + strings.Repeat(`{"user_id":"x"},`, 7) + `{"cost":-1}]}`,
			[]string{"/checks/7/cost"},
		},
		"an unknown plan": {
			`{"checks":[{"user_id":"x"},{"plan":"gold"},{"plan":"Free"}]}`,
			[]string{"/checks/1/plan", "/checks/2/plan"},
		},
		"a null element":     {`{"checks":[{},null]}`, []string{"/checks/1"}},
		"broken at the end":  {`{"checks":[{"user_id":"x"},{"user_id":"y"}`, []string{""}},
		"trailing data":      {`{"checks":[{"user_id":"x"}]} {}`, []string{""}},
		"no checks":          {`{}`, []string{"/checks"}},
		"null checks":        {`{"checks":null}`, []string{"/checks"}},
		"checks twice":       {`{"checks":[{}],"checks":[{}]}`, []string{"/checks"}},
		"one check instead":  {`{"user_id":"x"}`, []string{"/user_id", "/checks"}},
		"a list instead":     {`[{"user_id":"x"}]`, []string{""}},
		"a thousand and one": {many(1001, `{}`), []string{"/checks"}},
		"mistakes in fields": {
			`{"checks":[{"ip":"x"},{"attributes":{"a":1}}]}`,
			[]string{"/checks/0/ip", "/checks/1/attributes/a"},
		},
		"more than it can say": {many(50, `{"plan":"gold"}`), slices.Repeat([]string{""}, 20)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, rules.DefaultSettings(), limitsOfEverything(t)...)
			if name == "more than it can say" {
				for i := range test.pointers {
					test.pointers[i] = fmt.Sprintf("/checks/%d/plan", i)
				}
			}
			h.wantRefused(h.post("/v1/check/batch", test.body), test.pointers...)
		})
	}
}

func TestRequestsOfTheWrongShapeAreProblems(t *testing.T) {
	t.Parallel()
	padded := func(size int, body string) string { return body + strings.Repeat(" ", size-len(body)) }
	tests := map[string]struct {
		method, path, contentType, body string
		status                          int
		kind, allow                     string
	}{
		"the largest check": {"POST", "/v1/check", jsonType, padded(64<<10, `{}`), 200, "", ""},
		"a check too large": {"POST", "/v1/check", jsonType, padded(64<<10+1, `{}`), 413, "body-too-large", ""},
		"an explanation too large": {
			"POST", "/v1/explain", jsonType, padded(64<<10+1, `{}`), 413, "body-too-large",
			"",
		},
		"the largest batch": {"POST", "/v1/check/batch", jsonType, padded(1<<20, `{"checks":[]}`), 200, "", ""},
		"a batch too large": {
			"POST", "/v1/check/batch", jsonType, padded(1<<20+1, `{"checks":[]}`), 413,
			"body-too-large", "",
		},
		"a form": {
			"POST", "/v1/check", "application/x-www-form-urlencoded", `{}`, 415,
			"unsupported-media-type", "",
		},
		"no media type":             {"POST", "/v1/check", "", `{}`, 415, "unsupported-media-type", ""},
		"an unknown path":           {"POST", "/v1/checks", jsonType, `{}`, 404, "not-found", ""},
		"a path that is not clean":  {"POST", "//v1/check", jsonType, `{}`, 404, "not-found", ""},
		"a path with a slash after": {"POST", "/v1/check/", jsonType, `{}`, 404, "not-found", ""},
		"one that begins twice":     {"POST", "//x/v1/check?a=://", jsonType, `{}`, 404, "not-found", ""},
		"a path with a fragment":    {"POST", "/v1/check#x", jsonType, `{}`, 404, "not-found", ""},
		"a path that is encoded":    {"POST", "/v1/%63heck", jsonType, `{}`, 404, "not-found", ""},
		"a path with dots":          {"POST", "/v1/x/../check", jsonType, `{}`, 404, "not-found", ""},
		"a path in the query":       {"POST", "http://a?x=/v1/check", jsonType, `{}`, 404, "not-found", ""},
		"no path but a URL":         {"POST", "ftp://a/v1/check", jsonType, `{}`, 404, "not-found", ""},
		"a check by GET":            {"GET", "/v1/check", "", "", 405, "method-not-allowed", "POST"},
		"health by POST":            {"POST", "/healthz", jsonType, `{}`, 405, "method-not-allowed", "GET, HEAD"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, rules.DefaultSettings())
			w := h.send(test.method, test.path, http.Header{
				"Authorization": {"Bearer " + fullKey}, "Content-Type": {test.contentType},
			}, test.body)
			if w.Code != test.status || w.Header().Get("Allow") != test.allow {
				t.Errorf("answered %d, Allow %q, %s; want %d, %q", w.Code, w.Header().Get("Allow"), w.Body, test.status,
					test.allow)
			}
			if test.kind != "" && (!strings.Contains(w.Body.String(), `"urn:sluice:problem:`+test.kind+`"`) ||
				w.Header().Get("Content-Type") != "application/problem+json") {
				t.Errorf("answered %q %s, want the problem %s", w.Header().Get("Content-Type"), w.Body, test.kind)
			}
		})
	}
}
