package checkapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/checkapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// patience is for what should happen at once on a busy machine.
const patience = time.Minute

// listen has a server answer on a real address.
func (h *harness) listen() (server *checkapi.Server, addr string, stop func()) {
	h.t.Helper()
	return h.listenWith(checkapi.NewServer(h.config))
}

func (h *harness) listenWith(server *checkapi.Server) (_ *checkapi.Server, addr string, stop func()) {
	h.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	return server, listener.Addr().String(), h.run(server, listener)
}

// caller is one connection to a server.
type caller struct {
	*testing.T
	net.Conn
	answers *bufio.Reader
}

func call(t *testing.T, addr string) *caller {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &caller{t, conn, bufio.NewReader(conn)}
}

func (c *caller) send(request string) {
	c.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		c.Fatal(err)
	}
}

// answer is an answer that was read to its end.
type answer struct {
	status int
	header http.Header
	body   string
	last   bool // the connection ends with it
}

func (c *caller) answer() answer {
	c.Helper()
	a, err := c.read()
	if err != nil {
		c.Fatal(err)
	}
	return a
}

func (c *caller) read() (answer, error) {
	r, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(r.Body)
	return answer{r.StatusCode, r.Header, string(body), r.Close}, errors.Join(err, r.Body.Close())
}

// wantEnd fails the test unless the server ends the connection, and does not reset it: where systems differ, that takes
// answers with it that were not yet read.
func (c *caller) wantEnd() {
	c.Helper()
	if b, err := c.answers.ReadByte(); !errors.Is(err, io.EOF) {
		c.Errorf("read %q, %v; want the connection to end", b, err)
	}
}

// asked is a whole request with a key.
func asked(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: sluice\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", path, fullKey, len(body), body)
}

func TestAConnectionIsUsedAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 1, 2))
	_, addr, _ := h.listen()
	c := call(t, addr)
	for i, want := range []int{200, 200, 429, 429} {
		c.send(asked("/v1/check", `{"user_id":"x"}`))
		if got := c.answer(); got.status != want {
			t.Errorf("request %d is answered %d %s, want %d", i, got.status, got.body, want)
		}
	}
	// Whoever sends on before it was answered is answered in order.
	c.send(asked("/v1/check", `{"user_id":"y"}`) + "GET /healthz HTTP/1.1\r\nHost: sluice\r\n\r\n" + asked("/v1/check", `{"user_id":"x"}`))
	for i, want := range []int{200, 200, 429} {
		if got := c.answer(); got.status != want {
			t.Errorf("request %d of three at once is answered %d %s, want %d", i, got.status, got.body, want)
		}
	}
}

func TestRequestsThatHTTPAllowsAreAnswered(t *testing.T) {
	t.Parallel()
	const rest = "Host: a\r\nContent-Length: 2\r\nAuthorization: Bearer " + fullKey + "\r\nContent-Type: application/json\r\n"
	for name, test := range map[string]struct {
		request string
		last    bool // the connection ends with the answer
	}{
		"with a query":             {"POST /v1/check?x=1 HTTP/1.1\r\n" + rest + "\r\n{}", false},
		"with an address in full":  {"POST HTTP://a/v1/check HTTP/1.1\r\n" + rest + "\r\n{}", false},
		"with names in lower case": {"POST /v1/check HTTP/1.1\r\n" + strings.ReplaceAll(strings.ToLower(rest), "bearer", "Bearer") + "\r\n{}", false},
		"in chunks": {
			"POST /v1/check HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n" + strings.Replace(rest, "Content-Length: 2\r\n", "", 1) + "\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", false,
		},
		"of HTTP/1.0":                {"POST /v1/check HTTP/1.0\r\n" + rest + "\r\n{}", true},
		"of HTTP/1.0 that stay":      {"POST /v1/check HTTP/1.0\r\nConnection: keep-alive\r\n" + rest + "\r\n{}", false},
		"with another charset":       {"POST /v1/check HTTP/1.1\r\n" + strings.Replace(rest, "/json", "/JSON; charset=utf-8", 1) + "\r\n{}", false},
		"encoded as they are":        {"POST /v1/check HTTP/1.1\r\nContent-Encoding: identity\r\n" + rest + "\r\n{}", false},
		"that end their connection":  {"POST /v1/check HTTP/1.1\r\nConnection: close\r\n" + rest + "\r\n{}", true},
		"that end it in other words": {"POST /v1/check HTTP/1.1\r\nConnection: TE, Close\r\n" + rest + "\r\n{}", true},
		"that end it and do not":     {"POST /v1/check HTTP/1.1\r\nConnection: close\r\nConnection: keep-alive\r\n" + rest + "\r\n{}", true},
		"with a large batch": {
			"POST http://a/v1/check/batch HTTP/1.1\r\n" + strings.Replace(rest, ": 2", fmt.Sprint(": ", 100_000), 1) +
				"\r\n" + `{"checks":[{}]}` + strings.Repeat(" ", 100_000-15), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, rules.DefaultSettings())
			_, addr, _ := h.listen()
			c := call(t, addr)
			c.send(test.request)
			if got := c.answer(); got.status != 200 || !strings.Contains(got.body, `"allowed":true`) || got.last != test.last {
				t.Errorf("answered %d %s, the last: %t", got.status, got.body, got.last)
			}
			if test.last {
				c.wantEnd()
				return
			}
			c.send(asked("/v1/check", `{}`))
			if got := c.answer(); got.status != 200 {
				t.Errorf("the next is answered %d %s", got.status, got.body)
			}
		})
	}
}

func TestWhoeverWaitsToSendABodyIsTold(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	_, addr, _ := h.listen()
	for _, expect := range []string{"100-continue", "100-Continue"} {
		c := call(t, addr)
		c.send("POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: " + expect + "\r\nAuthorization: Bearer " + fullKey +
			"\r\nContent-Type: application/json\r\n\r\n")
		if got := c.answer(); got.status != http.StatusContinue {
			t.Fatalf("%s is answered %d %s, want 100", expect, got.status, got.body)
		}
		c.send("{}")
		if got := c.answer(); got.status != 200 {
			t.Errorf("the body is answered %d %s", got.status, got.body)
		}
	}
}

// A request that cannot be read is answered like any other mistake, counted, and ends its connection.
func TestRequestsThatCannotBeReadAreProblems(t *testing.T) {
	t.Parallel()
	check := "POST /v1/check HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + fullKey + "\r\nContent-Type: application/json\r\n"
	batch := strings.Replace(check, "/v1/check", "/v1/check/batch", 1)
	large := func(size int) string {
		return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", size, strings.Repeat(" ", size))
	}
	for name, test := range map[string]struct {
		request string
		status  int
		kind    string
		route   string
	}{
		"no HTTP":                 {"hello\r\n\r\n", 400, "invalid-request", "unmatched"},
		"a space before a colon":  {check + "X-Y : 1\r\n\r\n", 400, "invalid-request", "unmatched"},
		"a space within a name":   {check + "Content-Length: 2\r\nX y: 1\r\n\r\n{}", 400, "invalid-request", "unmatched"},
		"no version":              {strings.Replace(check, " HTTP/1.1", "", 1) + "\r\n", 400, "invalid-request", "unmatched"},
		"no colon":                {strings.Replace(check, "Authorization:", "Authorization", 1) + "\r\n", 400, "invalid-request", "unmatched"},
		"a control character":     {strings.Replace(check, secret, secret+"\x01", 1) + "\r\n", 400, "invalid-request", "unmatched"},
		"a bracket in a name":     {strings.Replace(check, "Authorization", "Auth(orization", 1) + "\r\n", 400, "invalid-request", "unmatched"},
		"no slash":                {strings.Replace(check, "/v1/check", "v1/check?key="+fullKey, 1) + "\r\n", 400, "invalid-request", "unmatched"},
		"another encoding":        {check + "Transfer-Encoding: identity\r\n\r\nGET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 400, "invalid-request", "unmatched"},
		"a length hidden":         {check + "Content-Length: 2\r\nTransfer -Encoding: chunked\r\n\r\n{}", 400, "invalid-request", "unmatched"},
		"a version to come":       {strings.Replace(check, "/1.1", "/9.9", 1) + "Content-Length: 2\r\n\r\n{}", 400, "invalid-request", "unmatched"},
		"a length and chunks":     {check + "Content-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400, "invalid-request", "unmatched"},
		"too many headers":        {check + strings.Repeat("a:\r\n", 101) + "\r\n", 431, "headers-too-large", "unmatched"},
		"too many after chunks":   {check + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + strings.Repeat("a:\r\n", 101) + "\r\n", 431, "headers-too-large", "unmatched"},
		"a key for a method":      {fullKey + " / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 404, "not-found", "unmatched"},
		"waiting for too much":    {check + "Content-Length: 70000\r\nExpect: 100-continue\r\n\r\n", 413, "body-too-large", "/v1/check"},
		"HTTP/2":                  {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "invalid-request", "unmatched"},
		"two lengths":             {check + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400, "invalid-request", "unmatched"},
		"a negative length":       {check + "Content-Length: -2\r\n\r\n{}", 400, "invalid-request", "unmatched"},
		"a chunk without a size":  {check + "Transfer-Encoding: chunked\r\n\r\nx\r\n{}\r\n0\r\n\r\n", 400, "invalid-request", "unmatched"},
		"headers too large":       {check + "X-Filler: " + strings.Repeat("a", 32<<10) + "\r\n\r\n", 431, "headers-too-large", "unmatched"},
		"a check far too large":   {check + large(8<<20), 413, "body-too-large", "/v1/check"},
		"chunks far too large":    {check + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s", 4<<20, strings.Repeat(" ", 4<<20)), 413, "body-too-large", "unmatched"},
		"a batch far too large":   {batch + large(8<<20), 413, "body-too-large", "/v1/check/batch"},
		"a large batch, no key":   {strings.Replace(batch, secret, "x"+secret[1:], 1) + large(64<<10+1), 401, "unauthorized", "/v1/check/batch"},
		"a large body, no route":  {strings.Replace(check, "/check", "/chick", 1) + large(64<<10+1), 413, "body-too-large", "unmatched"},
		"a large body of a probe": {"GET /healthz HTTP/1.1\r\nHost: a\r\n" + large(64<<10+1), 413, "body-too-large", "/healthz"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, rules.DefaultSettings())
			h.logged.Set(slog.LevelDebug)
			_, addr, stop := h.listen()
			c := call(t, addr)
			sent := make(chan struct{})
			go func() { // as a caller that reads only when it has sent everything
				_, _ = io.WriteString(c.Conn, test.request)
				close(sent)
			}()
			<-sent
			got := c.answer()
			var problem struct {
				Type      string
				RequestID string `json:"request_id"`
			}
			if err := json.Unmarshal([]byte(got.body), &problem); err != nil {
				t.Fatalf("answered %d %q: %v", got.status, got.body, err)
			}
			contentType := got.header.Get("Content-Type")
			if got.status != test.status || problem.Type != "urn:sluice:problem:"+test.kind || contentType != "application/problem+json" {
				t.Errorf("answered %d %q %s, want %d %s", got.status, contentType, got.body, test.status, test.kind)
			}
			if id := got.header.Get("X-Request-Id"); id == "" || id != problem.RequestID {
				t.Errorf("the id is %q in the header and %q in the body", id, problem.RequestID)
			}
			c.wantEnd()
			stop()
			if want := (observed{test.route, test.status, 1}); h.observed != want {
				t.Errorf("observed %+v, want %+v", h.observed, want)
			}
			if text := h.logText(); !strings.Contains(text, "status=") || strings.Contains(text, secret) {
				t.Errorf("the log is %s", text)
			}
		})
	}
}

func TestEveryRequestHasAnID(t *testing.T) {
	t.Parallel()
	own := regexp.MustCompile(`^[0-9a-f]{16}$`)
	h := newHarness(t, rules.DefaultSettings())
	for _, test := range []struct {
		sent []string
		kept bool
	}{{sent: nil}, {sent: []string{"Trace-1.a_b"}, kept: true}, {sent: []string{"a", "b"}}, {sent: []string{`a"b`}}} {
		for _, path := range []string{"/v1/check", "/nowhere"} {
			w := h.ask("POST", path, http.Header{"X-Request-Id": test.sent}, "")
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
		h.ask(test.method, test.path, http.Header{"Authorization": {"Bearer " + fullKey}, "Content-Type": {jsonType}}, test.body)
		if h.observed != test.want {
			t.Errorf("request %d is observed as %+v, want %+v", i, h.observed, test.want)
		}
		line := h.logText()
		for _, want := range []string{"level=DEBUG", "method=" + test.method, "route=" + test.want.route, fmt.Sprint("status=", test.want.status)} {
			if !strings.Contains(line, want) {
				t.Errorf("the log lacks %q: %s", want, line)
			}
		}
		if strings.Count(line, "\n") != 1 || strings.Contains(line, "secret") || strings.Contains(line, secret) || strings.Contains(line, "someone") {
			t.Errorf("the log is %s", line)
		}
	}
}

func TestAPanicIsAnsweredAndEndsNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	h.ready = func() checkapi.Readiness { panic("nil map of secrets") }
	w := h.ask("GET", "/readyz", nil, "")
	if w.Code != 500 || !strings.Contains(w.Body.String(), "urn:sluice:problem:internal") || strings.Contains(w.Body.String(), "secrets") {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
	text := h.logText()
	for _, want := range []string{"level=ERROR", "nil map of secrets", "server_test.go", w.Header().Get("X-Request-Id")} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %q: %s", want, text)
		}
	}
	if h.observed != (observed{"/readyz", 500, 1}) {
		t.Errorf("observed %+v", h.observed)
	}
	h.want(h.ask("GET", "/healthz", nil, ""), 200, `{"status":"ok"}`)
}

// panics makes the harness's rules a bug.
type panics struct{}

func (panics) Snapshot() *rules.Snapshot { panic("a bug") }

func TestNoPanicEndsTheProcess(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	h.config.Snapshots = panics{}
	large := `{"checks":[` + strings.Repeat(" ", 70_000) + `]}`
	for _, path := range []string{"/v1/check", "/v1/check/batch"} {
		if w := h.ask("POST", path, nil, large[:20]); w.Code != 500 {
			t.Errorf("%s is answered %d %s", path, w.Code, w.Body)
		}
		if w := h.ask("POST", path, nil, large); w.Code != 413 && w.Code != 500 {
			t.Errorf("%s is answered %d %s", path, w.Code, w.Body)
		}
	}
	h.want(h.ask("GET", "/healthz", nil, ""), 200, `{"status":"ok"}`)
	if !strings.Contains(h.logText(), "a bug") {
		t.Error("the log does not tell of the panics")
	}
}

// hold has one question about readiness wait to be answered until leave is closed.
func (h *harness) hold() (entered, leave chan struct{}) {
	entered, leave = make(chan struct{}), make(chan struct{})
	h.ready = func() checkapi.Readiness {
		close(entered)
		<-leave
		return checkapi.Readiness{RulesLoaded: true}
	}
	return entered, leave
}

func TestShutdownAnswersWhatIsUnderWayAndNothingElse(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	entered, leave := h.hold()
	server, addr, _ := h.listen()
	busy := call(t, addr)
	busy.send("GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
	<-entered

	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if err := server.Shutdown(impatient); !errors.Is(err, context.Canceled) {
		t.Errorf("with a request under way and no time the shutdown ends with %v", err)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		_ = conn.Close()
		t.Error("a new connection was taken after the shutdown")
	}
	close(leave)
	if got := busy.answer(); got.status != 200 || !strings.Contains(got.body, `"status":"ready"`) {
		t.Errorf("the request under way is answered %d %s", got.status, got.body)
	}
}

// A shutdown that has time ends when the last answer is out, which says that the connection ends.
func TestShutdownWaits(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	entered, leave := h.hold()
	server, addr, _ := h.listen()
	c, idle := call(t, addr), call(t, addr)
	idle.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	idle.answer()
	c.send("GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
	<-entered
	ended := make(chan error, 1)
	go func() { ended <- server.Shutdown(context.Background()) }()
	// The listener closes first: once nobody can call, the shutdown has begun.
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	idle.wantEnd()
	select {
	case err := <-ended:
		t.Fatalf("the shutdown ended with %v before the answer was out", err)
	default:
	}
	close(leave)
	if got := c.answer(); got.status != 200 || !got.last {
		t.Errorf("answered %d, the last: %t; want 200 and the last", got.status, got.last)
	}
	c.wantEnd()
	if err := <-ended; err != nil {
		t.Errorf("the shutdown ended with %v", err)
	}
}

// A connection that has sent nothing has nothing to be answered.
func TestShutdownDoesNotWaitForTheSilent(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	server, addr, _ := h.listen()
	silent, other := call(t, addr), call(t, addr)
	other.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	other.answer() // connections are accepted in order
	ctx, cancel := context.WithTimeout(t.Context(), server.Timeouts()["ReadTimeout"]/2)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("the shutdown ended with %v", err)
	}
	silent.wantEnd()
}

// A body that stops is answered, and so is whatever stood before it in the same packet.
func TestASlowBodyIsAnswered(t *testing.T) {
	t.Parallel()
	const begun = "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n{"
	for name, test := range map[string]struct {
		request string
		want    []int
	}{
		"alone":          {begun, []int{408}},
		"behind another": {"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" + begun, []int{200, 408}},
		"of chunks":      {"POST /v1/check HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", []int{408}},
		"not even begun": {"POST /v1/check HT", []int{408}},
		"nothing at all": {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, rules.DefaultSettings())
			server := checkapi.NewServer(h.config)
			server.SetReadTimeout(20 * time.Millisecond)
			_, addr, _ := h.listenWith(server)
			c := call(t, addr)
			c.send(test.request)
			for _, want := range test.want {
				if got := c.answer(); got.status != want {
					t.Errorf("answered %d %s, want %d", got.status, got.body, want)
				}
			}
			c.wantEnd()
		})
	}
}

func TestAServerThatWasShutDownServesNobody(t *testing.T) {
	t.Parallel()
	server := checkapi.NewServer(newHarness(t, rules.DefaultSettings()).config)
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("serving ended with %v", err)
	}
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener was left open: %v", err)
	}
}

func TestCloseCutsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	entered, leave := h.hold()
	server, addr, _ := h.listen()
	c := call(t, addr)
	c.send("GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
	<-entered
	if err := server.Close(); err != nil {
		t.Errorf("closing ended with %v", err)
	}
	c.wantEnd()
	close(leave)
}

// fullListener has no room for a connection at first.
type fullListener struct {
	net.Listener
	refuse atomic.Int32
}

func (l *fullListener) Accept() (net.Conn, error) {
	if l.refuse.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

func TestTheServerOutlivesALackOfFileDescriptors(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	full := &fullListener{Listener: listener}
	full.refuse.Store(3)
	h.run(checkapi.NewServer(h.config), full)
	c := call(t, listener.Addr().String())
	c.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := c.answer(); got.status != 200 {
		t.Errorf("answered %d", got.status)
	}
	if text := h.logText(); strings.Count(text, "level=WARN") != 3 {
		t.Errorf("the log is %s, want three warnings", text)
	}
}

// Who connects and leaves, as probes of ports do, has asked nothing.
func TestConnectionsWithoutARequestAreNotCounted(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	h.logged.Set(slog.LevelDebug)
	_, addr, stop := h.listen()
	for _, linger := range []int{-1, 0} { // an end, and a reset
		c := call(t, addr)
		if err := errors.Join(c.Conn.(*net.TCPConn).SetLinger(linger), c.Close()); err != nil {
			t.Fatal(err)
		}
	}
	c := call(t, addr)
	c.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	c.answer()
	stop()
	if want := (observed{"/healthz", 200, 1}); h.observed != want {
		t.Errorf("observed %+v, want %+v", h.observed, want)
	}
}

func TestAnAnswerToHEADHasNoBody(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	for _, length := range []int{0, 70_000} {
		w := h.ask("HEAD", "/healthz", nil, strings.Repeat(" ", length))
		if want := map[int]int{0: 200, 70_000: 413}[length]; w.Code != want || w.Body.Len() > 0 {
			t.Errorf("with %d bytes answered %d %q, want %d", length, w.Code, w.Body, want)
		}
	}
}

// What fasthttp answers itself must not have what is left of the time of the answer before.
func TestLateMistakesAreAnswered(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	server := checkapi.NewServer(h.config)
	const short = 20 * time.Millisecond
	server.SetWriteTimeout(short)
	_, addr, _ := h.listenWith(server)
	for name, request := range map[string]string{
		"no HTTP": "hello\r\n\r\n", "a body to wait for": "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
	} {
		c := call(t, addr)
		c.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
		c.answer()
		<-time.After(2 * short) // the deadline must have passed, and only time does that
		c.send(request)
		if got, err := c.read(); err != nil {
			t.Errorf("%s: answered %+v, %v", name, got, err)
		}
	}
}

// Whoever once sent a large body keeps its connection, and must not keep the memory with it.
func TestIdleConnectionsHoldLittleMemory(t *testing.T) { //nolint:paralleltest // it looks at all memory of the process
	h := newHarness(t, rules.DefaultSettings())
	_, addr, _ := h.listen()
	const connections = 32
	body := `{"checks":[{}` + strings.Repeat(`,{}`, 999) + `]` + strings.Repeat(" ", 1_000_000) + `}`
	held := func() uint64 {
		runtime.GC()
		runtime.GC() // empties pools
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := held()
	for range connections {
		c := call(t, addr)
		c.send(asked("/v1/check/batch", body))
		if got := c.answer(); got.status != 200 {
			t.Fatalf("answered %d %s", got.status, got.body)
		}
		c.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
		c.answer()
	}
	if after := held(); after > before+connections*100_000 {
		t.Errorf("%d idle connections hold %d KiB", connections, (after-before)>>10)
	}
}

// Connections that stall are bounded by these alone, and a test that waits for them would take as
// long as they do.
func TestTheServerHasEveryTimeout(t *testing.T) {
	t.Parallel()
	for name, timeout := range checkapi.NewServer(newHarness(t, rules.DefaultSettings()).config).Timeouts() {
		if timeout <= 0 || timeout > 5*time.Minute {
			t.Errorf("%s is %v", name, timeout)
		}
	}
}

// Memory is used again from answer to answer; whoever asks beside others must be told of its own check alone.
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
					request := strings.Replace(asked("/v1/check", body), "\r\n", "\r\nX-Request-Id: "+id+"\r\n", 1)
					if _, err := io.WriteString(c.Conn, request); err != nil {
						return err
					}
					got, err := c.read()
					left := strconv.FormatFloat(float64(1000-(i+1)*(n+1))/10, 'f', -1, 64)
					if !strings.Contains(got.body, `"remaining":`+left+`,"retry_after_ms":0,`) || got.header.Get("X-Request-Id") != id {
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
