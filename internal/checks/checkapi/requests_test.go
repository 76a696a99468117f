package checkapi_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func TestEveryRequestHasAnID(t *testing.T) {
	t.Parallel()
	own := regexp.MustCompile(`^[0-9a-f]{16}$`)
	h := newHarness(t, rules.DefaultSettings())
	for _, test := range []struct {
		sent []string
		kept bool
	}{{sent: nil}, {sent: []string{"Trace-1.a_b"}, kept: true}, {sent: []string{"a", "b"}}, {sent: []string{`a"b`}}} {
		for _, path := range []string{"/v1/check", "/nowhere"} {
			w := h.send("POST", path, http.Header{"X-Request-Id": test.sent}, "")
			id := w.Header().Get("X-Request-Id")
			if test.kept && id != test.sent[0] || !test.kept && !own.MatchString(id) {
				t.Errorf("sent %q, answered %q", test.sent, id)
			}
			if !strings.Contains(w.Body.String(), `"request_id":"`+id+`"`) {
				t.Errorf("problem %s does not tell the id %s", w.Body, id)
			}
		}
	}
}

func TestEveryRequestIsObservedAndLoggedWithoutSecrets(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "global", 1, 1))
	h.logged.Set(slog.LevelDebug)
	for i, test := range []struct {
		method, path, body string
		want               observed
	}{
		{"POST", "/v1/check?token=secret1", `{}`, observed{"/v1/check", 200, 1}},
		{"POST", "/v1/check", `{}`, observed{"/v1/check", 429, 2}},
		{"POST", "/v1/check", `{"user_id":"someone"`, observed{"/v1/check", 400, 3}},
		{"GET", "/v1/check/batch", ``, observed{"unmatched", 405, 4}},
		{"GET", "/secret2", ``, observed{"unmatched", 404, 5}},
		{"HEAD", "/readyz", ``, observed{"/readyz", 200, 6}},
	} {
		h.logText()
		h.send(test.method, test.path, http.Header{"Authorization": {"Bearer " + fullKey}, "Content-Type": {jsonType}},
			test.body)
		if h.observed != test.want {
			t.Errorf("request %d is observed as %+v, want %+v", i, h.observed, test.want)
		}
		line := h.logText()
		for _, want := range []string{
			"level=DEBUG", "method=" + test.method, "route=" + test.want.route,
			fmt.Sprint("status=", test.want.status),
		} {
			if !strings.Contains(line, want) {
				t.Errorf("the log lacks %q: %s", want, line)
			}
		}
		if strings.Count(line, "\n") != 1 || strings.Contains(line, "secret") || strings.Contains(line, secret) ||
			strings.Contains(line, "someone") {
			t.Errorf("the log is %s", line)
		}
	}
}

func TestAPanicIsAnsweredAndEndsNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	h.ready = func() httpapi.Readiness { panic("nil map of secrets") }
	w := h.send("GET", "/readyz", nil, "")
	if w.Code != 500 || !strings.Contains(w.Body.String(), "urn:sluice:problem:internal") ||
		strings.Contains(w.Body.String(), "secrets") {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
	text := h.logText()
	for _, want := range []string{
		"level=ERROR", "nil map of secrets", "requests_test.go",
		w.Header().Get("X-Request-Id"),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q: %s", want, text)
		}
	}
	if h.observed != (observed{"/readyz", 500, 1}) {
		t.Errorf("observed %+v", h.observed)
	}
	h.want(h.send("GET", "/healthz", nil, ""), 200, `{"status":"ok","version":"v1.2.3"}`)
}

type panics struct{}

func (panics) Snapshot() *snapshot.Snapshot { panic("a bug") }

func TestNoPanicEndsTheProcess(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	h.config.Snapshots = panics{}
	large := `{"checks":[` + strings.Repeat(" ", 70_000) + `]}`
	for _, path := range []string{"/v1/check", "/v1/check/batch"} {
		h.wantStatus(h.send("POST", path, nil, large[:20]), 500)
		if w := h.send("POST", path, nil, large); w.Code != 413 && w.Code != 500 {
			t.Errorf("%s is answered %d %s", path, w.Code, w.Body)
		}
	}
	h.want(h.send("GET", "/healthz", nil, ""), 200, `{"status":"ok","version":"v1.2.3"}`)
	if !strings.Contains(h.logText(), "a bug") {
		t.Error("the log does not tell of the panics")
	}
}

func TestCallersAtOnceAreEachAnsweredTheirOwn(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 1, 100))
	_, addr, _ := h.listen()
	const callers, questions = 8, 50
	answered := make(chan error, callers)
	for n := range callers {
		c := call(t, addr)
		go func() {
			answered <- func() error {
				for i := range questions {
					id := fmt.Sprintf("%d.%d", n, i)
					body := fmt.Sprintf(`{"user_id":%d,"cost":0.%d}`, n, n+1)
					request := strings.Replace(requestTo("/v1/check", body), "\r\n", "\r\nX-Request-Id: "+id+"\r\n", 1)
					if _, err := io.WriteString(c.Conn, request); err != nil {
						return err
					}
					got, err := c.read()
					left := strconv.FormatFloat(float64(1000-(i+1)*(n+1))/10, 'f', -1, 64)
					if !strings.Contains(got.body, `"remaining":`+left+`,"retry_after_ms":0,`) ||
						got.header.Get("X-Request-Id") != id {
						return fmt.Errorf("request %s is answered %v, want %s remaining (%w)", id, got, left, err)
					}
				}
				return nil
			}()
		}()
	}
	for range callers {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
}
