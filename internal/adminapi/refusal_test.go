package adminapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestWhatIsNotAsDescribedIsRefusedWithWhatToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	const acme = "/api/v1/tenants/acme"
	rule := `{"key_pattern":"global","rate_per_second":1,"burst_capacity":1%s}`
	csvType := map[string]string{"Content-Type": "text/csv"}
	yamlType := map[string]string{"Content-Type": "application/yaml"}
	tests := map[string]struct {
		request
		status  int
		pointer string // that errors must have; "-" for none
	}{
		"a body of 10 MB": {request{
			"POST", acme + "/rules",
			`{"description":"` + strings.Repeat("x", 10<<20) + `"}`, nil,
		}, 413, "-"},
		"CSV of 10 MB": {request{
			"POST", acme + "/users/import",
			"user_id,plan\n" + strings.Repeat("1234567890,free\n", 700_000), csvType,
		}, 413, "-"},
		"YAML of 10 MB": {request{
			"POST", acme + "/import", strings.Repeat("# comment\n", 1_000_000),
			yamlType,
		}, 413, "-"},
		"JSON that is very deep": {
			request{"POST", acme + "/rules", strings.Repeat(`[`, 100_000), nil},
			400,
			"-",
		},
		"JSON that is deep and whole": {request{
			"POST", acme + "/rules",
			strings.Repeat(`[`, 5_000) + strings.Repeat(`]`, 5_000), nil,
		}, 400, ""},
		"text for JSON": {request{
			"POST", acme + "/rules", "x",
			map[string]string{"Content-Type": "text/plain"},
		}, 415, "-"},
		"a form, as from another site": {request{
			"POST", acme + "/rules", "x=1",
			map[string]string{"Content-Type": "application/x-www-form-urlencoded"},
		}, 415, "-"},
		"JSON for CSV": {request{
			"POST", acme + "/users/import", "{}",
			map[string]string{"Content-Type": "application/json"},
		}, 415, "-"},
		"compressed CSV": {request{
			"POST", acme + "/users/import", "x",
			map[string]string{"Content-Type": "text/csv", "Content-Encoding": "gzip"},
		}, 415, "-"},
		"no body": {request{
			"POST", acme + "/rules", "",
			map[string]string{"Content-Type": "application/json"},
		}, 400, ""},
		"null":     {request{"POST", acme + "/rules", "null", nil}, 400, ""},
		"an array": {request{"POST", acme + "/rules", "[]", nil}, 400, ""},
		"trailing data": {
			request{"POST", acme + "/rules", fmt.Sprintf(rule, "") + "{}", nil},
			400,
			"-",
		},
		"an unknown field": {
			request{"POST", acme + "/rules", fmt.Sprintf(rule, `,"burst":3`), nil},
			400,
			"/burst",
		},
		"a field in another case": {
			request{"POST", acme + "/rules", fmt.Sprintf(rule, `,"Name":"x"`), nil},
			400,
			"/Name",
		},
		"a field twice": {request{
			"POST", acme + "/rules", fmt.Sprintf(rule, `,"key_pattern":"global"`),
			nil,
		}, 400, "/key_pattern"},
		"a wrong type": {request{
			"POST", acme + "/rules", fmt.Sprintf(rule, `,"is_active":"yes"`),
			nil,
		}, 400, "/is_active"},
		"null where none is": {
			request{"POST", acme + "/rules", fmt.Sprintf(rule, `,"name":null`), nil},
			400,
			"/name",
		},
		"a fraction for a whole number": {request{
			"POST", acme + "/rules",
			strings.Replace(fmt.Sprintf(rule, ""), `capacity":1`, `capacity":1.5`, 1), nil,
		}, 400, "/burst_capacity"},
		"a choice that is none": {
			request{"POST", acme + "/rules", fmt.Sprintf(rule, `,"mode":"on"`), nil},
			400,
			"/mode",
		},
		"NUL": {
			request{"POST", acme + "/rules", fmt.Sprintf(rule, `,"name":"a\u0000"`), nil},
			400, "/name",
		},
		"half a surrogate": {
			request{"POST", acme + "/rules", fmt.Sprintf(rule, `,"name":"\ud800"`), nil},
			400, "/name",
		},
		"a missing field": {
			request{"POST", acme + "/rules", `{"rate_per_second":1}`, nil},
			400,
			"/key_pattern",
		},
		"a pattern that is none": {request{
			"POST", acme + "/rules",
			strings.Replace(fmt.Sprintf(rule, ""), "global", "user:{id}", 1), nil,
		}, 400, "/key_pattern"},
		"an unknown query parameter": {request{"GET", acme + "/rules?plann=free", "", nil}, 400, "/query/plann"},
		"a parameter twice": {
			request{"GET", acme + "/rules?mode=shadow&mode=shadow", "", nil},
			400,
			"/query/mode",
		},
		"a limit that is too high":  {request{"GET", acme + "/rules?limit=501", "", nil}, 400, "/query/limit"},
		"a limit that is no number": {request{"GET", acme + "/rules?limit=1e2", "", nil}, 400, "/query/limit"},
		"a time that is none":       {request{"GET", acme + "/audit?from=yesterday", "", nil}, 400, "/query/from"},
		"an object without its kind": {
			request{"GET", acme + "/audit?object_id=12", "", nil},
			400,
			"/query/object_kind",
		},
		"a damaged cursor":            {request{"GET", acme + "/rules?cursor=AAAA", "", nil}, 400, "/query/cursor"},
		"a cursor that is no base64":  {request{"GET", acme + "/rules?cursor=%21", "", nil}, 400, "/query/cursor"},
		"a query that cannot be read": {request{"GET", acme + "/rules?q=%zz", "", nil}, 400, "-"},
		"a user id with NUL":          {request{"GET", acme + "/users/a%00b", "", nil}, 400, "/path/user_id"},
		"a user id that is not UTF-8": {request{"GET", acme + "/users/%ff", "", nil}, 400, "/path/user_id"},
		"a user id that is too long": {
			request{"GET", acme + "/users/" + strings.Repeat("x", 257), "", nil},
			400,
			"/path/user_id",
		},
		"an id that is no number": {request{"GET", acme + "/rules/abc", "", nil}, 404, "-"},
		"a weak ETag": {request{
			"DELETE", acme + "/rules/1", "",
			map[string]string{"If-Match": `W/"1"`},
		}, 400, "-"},
		"CSV without its header": {
			request{"POST", acme + "/users/import", "42,free\n", csvType},
			400,
			"/lines/1",
		},
		"CSV with three values": {
			request{"POST", acme + "/users/import", "user_id,plan\n42,free,x\n", csvType},
			400, "/lines/2",
		},
		"CSV with a plan not there": {request{
			"POST", acme + "/users/import", "user_id,plan\n42,free\n43,nope\n",
			csvType,
		}, 400, "/lines/3/plan"},
		"CSV with a user twice": {request{
			"POST", acme + "/users/import", "user_id,plan\n42,free\n42,free\n",
			csvType,
		}, 400, "/lines/3/user_id"},
		"YAML with a mistake": {request{
			"POST", acme + "/import", "plans:\n  - name: free\nrulez: []\n",
			yamlType,
		}, 400, "/lines/3"},
		"YAML that drops a needed plan": {
			request{"POST", acme + "/import?prune=true", "rules: []\n", yamlType},
			400,
			"",
		},
		"a body of 9 KB by nobody": {request{"POST", "/api/v1/session", `{"email":"` + strings.Repeat("x", 9<<10) +
			`"}`, nil}, 413, "-"},
		"CSV with CR LF inside a value": {request{
			"POST", acme + "/users/import", "user_id,plan\n\"a\r\nb\",free\n",
			csvType,
		}, 400, "/lines/2"},
		"an export of an unkind object": {
			request{"GET", acme + "/audit/export?object_id=12", "", nil},
			400,
			"/query/object_kind",
		},
		"a key that ends in year 10000": {request{
			"POST", acme + "/api-keys",
			`{"name":"k","permissions":["check"],"expires_at":"9999-12-31T23:59:59-05:00"}`, nil,
		}, 400, "/expires_at"},
		"a key that ends in year 1": {request{
			"POST", acme + "/api-keys",
			`{"name":"k","permissions":["check"],"expires_at":"0001-01-01T00:00:00Z"}`, nil,
		}, 400, "/expires_at"},
		"an override of a bad user id": {
			request{
				"PUT",
				fmt.Sprintf("%s/rules/%d/overrides/%s", acme, w.rule(w.acme).ID, strings.Repeat("x", 257)),
				`{"rate_per_second":1,"burst_capacity":1,"reason":"x"}`,
				map[string]string{"If-None-Match": "*"},
			},
			400,
			"/path/user_id",
		},
		"an override of a block": {
			request{
				"PUT", fmt.Sprintf("%s/rules/%d/overrides/42", acme, w.block().ID),
				`{"rate_per_second":1,"burst_capacity":1,"reason":"x"}`,
				map[string]string{"If-None-Match": "*"},
			},
			400,
			"/rule",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := w.do(by, test.request)
			if got.status != test.status {
				t.Fatalf("answered %d, want %d: %.500s", got.status, test.status, got.body)
			}
			told := read[problem](t, got)
			if told.Detail == "" || len(got.body) > 8000 || !strings.HasPrefix(told.Type, "urn:sluice:problem:") {
				t.Errorf("the problem says little: %.500s", got.body)
			}
			if test.pointer == "-" {
				return
			}
			for _, e := range told.Errors {
				if e.Pointer == test.pointer && e.Detail != "" {
					return
				}
			}
			t.Errorf("nothing points at %q: %s", test.pointer, got.body)
		})
	}
}

func (w *world) block() rules.Rule {
	return w.rule(w.acme, func(r *rules.Rule) {
		r.Action, r.Mode, r.RatePerSecond, r.Burst = rules.ActionBlock, rules.ModeEnforce, 0, 0
	})
}

func TestACursorGoesWithItsFilterOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	for range 3 {
		w.rule(w.acme)
	}
	type list struct {
		Items      []shownRule `json:"items"`
		NextCursor *string     `json:"next_cursor"`
	}
	const path = "/api/v1/tenants/acme/rules"
	first := read[list](t, w.get(by, path+"?limit=2&mode=shadow"))
	if len(first.Items) != 2 || first.NextCursor == nil {
		t.Fatalf("the first page is %+v", first)
	}
	rest := read[list](t, w.get(by, path+"?mode=shadow&limit=500&cursor="+*first.NextCursor))
	if len(rest.Items) != 1 || rest.NextCursor != nil || rest.Items[0].RuleID <= first.Items[1].RuleID {
		t.Errorf("the rest is %+v", rest)
	}
	for name, query := range map[string]string{
		"of another filter": "?limit=2&mode=enforce&cursor=" + *first.NextCursor,
		"cut off":           "?limit=2&mode=shadow&cursor=" + (*first.NextCursor)[:len(*first.NextCursor)-2],
		"without a filter":  "?cursor=" + *first.NextCursor,
	} {
		if got := w.send(by, "GET", path+query, nil); got.status != http.StatusBadRequest ||
			!strings.Contains(got.body, "start over") {
			t.Errorf("a cursor %s is answered %d: %s", name, got.status, got.body)
		}
	}
}

func TestABrowserOnAnotherSiteChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	body := `{"name":"x"}`
	for name, header := range map[string]map[string]string{
		"by its fetch metadata": {"Sec-Fetch-Site": "cross-site"},
		"by its origin":         {"Origin": "https://evil.example"},
	} {
		if got := w.do(by, request{
			"POST", "/api/v1/tenants/acme/plans", body,
			header,
		}); got.status != http.StatusForbidden {
			t.Errorf("%s: answered %d", name, got.status)
		}
	}
	w.want(w.do(by, request{
		"POST", "/api/v1/tenants/acme/plans", body,
		map[string]string{"Origin": loopback, "Sec-Fetch-Site": "same-origin"},
	}), http.StatusCreated)
}

func TestCookiesAreOfThisHostOnlyAndSafeFromScripts(t *testing.T) {
	t.Parallel()
	for isPlain, name := range map[bool]string{false: "__Host-sluice_session", true: "sluice_session"} {
		w := newWorld(t, func(c *adminapi.Config) { c.PlainCookies = isPlain })
		account := w.account(false)
		// A proxy may name any Host, even a loopback address.
		for _, base := range []string{
			"https://sluice.example.com", "http://sluice.example.com",
			"http://127.0.0.1:8081", "https://localhost",
		} {
			r := httptest.NewRequestWithContext(t.Context(), "POST", base+"/api/v1/session",
				strings.NewReader(fmt.Sprintf(`{"email":%q,"password":%q}`, account.Email, password)))
			r.Header.Set("Content-Type", "application/json")
			recorder := httptest.NewRecorder()
			w.handler.ServeHTTP(recorder, r)
			cookies := recorder.Result().Cookies()
			if recorder.Code != http.StatusOK || len(cookies) != 2 {
				t.Fatalf("%s: answered %d with %v", base, recorder.Code, cookies)
			}
			c := cookies[0]
			if c.Name != name || c.Secure == isPlain || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode ||
				c.Path != "/" || c.Domain != "" || c.MaxAge != 0 {
				t.Errorf("%s: the cookie is %s", base, c)
			}
			if hasHSTS := recorder.Header().Get("Strict-Transport-Security") != ""; hasHSTS == isPlain {
				t.Errorf("%s: says to use TLS only: %v", base, hasHSTS)
			}
		}
	}
}

func TestGuessesAreSlowedAndTheAnswerSaysHowLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	guess := map[string]any{"email": w.account(false).Email, "password": "not the password at all"}
	slowed := false
	for range 10 {
		got := w.send(caller{}, "POST", "/api/v1/session", guess)
		switch got.status {
		case http.StatusUnauthorized:
		case http.StatusTooManyRequests:
			slowed = true
			if got.header.Get("Retry-After") == "" {
				t.Errorf("the answer does not say how long: %v", got.header)
			}
		default:
			t.Fatalf("answered %d: %s", got.status, got.body)
		}
	}
	if !slowed {
		t.Error("ten guesses were not slowed")
	}
}

func TestWithoutSharedBucketsTheAnswerSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *adminapi.Config) { c.Buckets = nil })
	by := w.person(w.acme, auth.Editor)
	const path = "/api/v1/tenants/acme/users/42/buckets"
	for _, got := range []answer{
		w.send(by, "GET", path, nil),
		w.send(by, "POST", path+"/reset", map[string]any{"bucket_key": "1:42"}),
		w.send(by, "POST", path+"/credit", map[string]any{"bucket_key": "1:42", "tokens": 1}),
	} {
		if got.status != http.StatusConflict || read[problem](t, got).Type != "urn:sluice:problem:no-shared-store" {
			t.Errorf("%s: answered %d: %s", got.operation, got.status, got.body)
		}
	}
}

func TestTheBucketsOfViolationsAreShownToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	own := w.rule(w.acme)
	perEndpoint := w.rule(w.acme, func(r *rules.Rule) {
		r.Pattern = must(rules.ParsePattern("user:{user_id}:endpoint:{endpoint}"))(t)
	})
	w.refresh()
	bucket := func(rule rules.RuleID, subject string) violations.Violation {
		return denied(w.acme, time.Now(), func(v *violations.Violation) { v.Rule, v.Subject = rule, subject })
	}
	w.violate(bucket(own.ID, "42"), bucket(perEndpoint.ID, "2:42,2:/a"), bucket(999999, "42"),
		bucket(perEndpoint.ID, "garbage"))
	want := fmt.Sprintf("%d:2:42,2:/a", perEndpoint.ID)
	type list struct {
		Items []struct {
			BucketKey string `json:"bucket_key"`
			Source    string `json:"source"`
		} `json:"items"`
	}
	got := read[list](t, w.get(by, "/api/v1/tenants/acme/users/42/buckets")).Items
	if len(got) != 2 || got[0].Source != "user" || got[1].BucketKey != want || got[1].Source != "violation" {
		t.Errorf("the buckets are %+v", got)
	}
}

func TestExportedUsersAreInertAndImportAsTheyWere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	ids := []string{
		"=cmd|'/c calc'!A1", "+1", "-1", "@x", "\tx", "'=1", "\nx", "a\nb", "a\rb", "x\r", "＝1", "a,b\"c",
		"a;=HYPERLINK(A1);b", "a\t+1", "a;'=b", "42",
	}
	var assignments []rules.Assignment
	for _, id := range ids {
		assignments = append(assignments, rules.Assignment{TenantID: w.acme.ID, UserID: id, Plan: "free"})
	}
	must(w.system().AssignAll(w.ctx(), w.acme.ID, assignments))(t)
	w.refresh()
	got := w.get(by, "/api/v1/tenants/acme/users/export")
	for line := range strings.Lines(got.body) {
		for _, cell := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(";,\"", r) }) {
			if strings.ContainsAny(cell[:1], "=+-@") {
				t.Errorf("a spreadsheet computes %s", line)
			}
		}
	}
	back := w.do(by, request{
		"POST", "/api/v1/tenants/acme/users/import?dry_run=true", got.body,
		map[string]string{"Content-Type": "text/csv"},
	})
	if w.want(back, http.StatusOK); !strings.Contains(back.body, fmt.Sprintf(`"lines":%d`, len(ids))) ||
		!strings.Contains(back.body, `"changed":0`) {
		t.Errorf("what was exported is imported as %s", back.body)
	}
}

func TestEveryAcceptedUserIDHasAPath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	for id, escaped := range map[string]string{
		"a/b": "a%2Fb", "..": "%2E%2E", ".": ".", "%": "%25", "%2F": "%252F", "é": "%C3%A9", " ": "%20", "+": "+",
		"a?b#c": "a%3Fb%23c",
		"\t\n":  "%09%0A", "//": "%2F%2F", "export": "%65xport", "import": "%69mport", "plan": "plan",
		strings.Repeat("x", 256): strings.Repeat("x", 256),
	} {
		path := "/api/v1/tenants/acme/users/" + escaped
		w.want(w.send(by, "PUT", path+"/plan", map[string]any{"plan": "free"}, "If-Match", `"0"`), http.StatusOK)
		got := read[struct {
			UserID string `json:"user_id"`
			Source string `json:"plan_source"`
		}](t, w.get(by, path))
		if got.UserID != id || got.Source != "user" {
			t.Errorf("%s is user %q by %s, want %q", path, got.UserID, got.Source, id)
		}
		if _, err := w.store.Assignment(t.Context(), w.acme.ID, id); err != nil {
			t.Errorf("user %q: %v", id, err)
		}
	}
}

func TestTheReferenceIsAPageOfTheUI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *adminapi.Config) {
		c.UI = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write([]byte("page " + r.URL.Path))
		})
	})
	if got := w.get(caller{}, "/api/v1/docs"); got.body != "page /reference.html" {
		t.Errorf("it is %q", got.body)
	}
}

func TestReadinessHasTheStatusThatItTellsOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *adminapi.Config) {
		c.Readiness = func() httpapi.Readiness { return httpapi.Readiness{Database: "down", Redis: "memory"} }
	})
	w.want(w.send(caller{}, "GET", "/readyz", nil), http.StatusServiceUnavailable)
	w.get(caller{}, "/healthz")
}

func TestTheUIAnswersWhatIsNotTheAPIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *adminapi.Config) {
		c.UI = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusTeapot) })
	})
	for path, status := range map[string]int{
		"/": http.StatusTeapot, "/rules/12": http.StatusTeapot, "/apix": http.StatusTeapot, "/healthz": http.StatusOK,
		"/api/v1/session": http.StatusUnauthorized, "/api/": http.StatusNotFound, "/api/v1/../../": http.StatusNotFound,
	} {
		if got := w.send(caller{}, "GET", path, nil); got.status != status {
			t.Errorf("%s is answered %d, want %d", path, got.status, status)
		}
	}
}

func TestBehindAProxyOneClientsGuessesDoNotSlowAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *adminapi.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")} // httptest's peer
	})
	email := w.account(false).Email
	signIn := func(from, password string) answer {
		return w.send(caller{}, "POST", "/api/v1/session", map[string]any{"email": email, "password": password},
			"X-Forwarded-For", from)
	}
	guesses := 0
	for signIn("203.0.113.9", "not the password at all").status != http.StatusTooManyRequests {
		if guesses++; guesses == 20 {
			t.Fatal("twenty guesses were not slowed")
		}
	}
	w.want(signIn("203.0.113.9, 198.51.100.7", password), http.StatusOK)
}
