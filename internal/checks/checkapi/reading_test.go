package checkapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
)

func TestRequestsThatHTTPAllowsAreAnswered(t *testing.T) {
	t.Parallel()
	const rest = "Host: a\r\nContent-Length: 2\r\nAuthorization: Bearer " + fullKey +
		"\r\nContent-Type: application/json\r\n"
	for name, test := range map[string]struct {
		request string
		last    bool // the connection ends with the answer
	}{
		"with a query":            {"POST /v1/check?x=1 HTTP/1.1\r\n" + rest + "\r\n{}", false},
		"with an address in full": {"POST HTTP://a/v1/check HTTP/1.1\r\n" + rest + "\r\n{}", false},
		"with names in lower case": {"POST /v1/check HTTP/1.1\r\n" + strings.ReplaceAll(strings.ToLower(rest), "bearer",
			"Bearer") + "\r\n{}", false},
		"in chunks": {
			"POST /v1/check HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n" + strings.Replace(rest, "Content-Length: 2\r\n",
				"", 1) + "\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", false,
		},
		"of HTTP/1.0": {"POST /v1/check HTTP/1.0\r\n" + rest + "\r\n{}", true},
		"of HTTP/1.0 that stay": {
			"POST /v1/check HTTP/1.0\r\nConnection: keep-alive\r\n" + rest + "\r\n{}",
			false,
		},
		"with another charset": {"POST /v1/check HTTP/1.1\r\n" +
			strings.Replace(rest, "/json", "/JSON; charset=utf-8", 1) + "\r\n{}", false},
		"encoded as they are": {
			"POST /v1/check HTTP/1.1\r\nContent-Encoding: identity\r\n" + rest + "\r\n{}",
			false,
		},
		"that end their connection":  {"POST /v1/check HTTP/1.1\r\nConnection: close\r\n" + rest + "\r\n{}", true},
		"that end it in other words": {"POST /v1/check HTTP/1.1\r\nConnection: TE, Close\r\n" + rest + "\r\n{}", true},
		"that end it and do not": {"POST /v1/check HTTP/1.1\r\nConnection: close\r\nConnection: keep-alive\r\n" +
			rest + "\r\n{}", true},
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
			if got := c.answer(); got.status != 200 || !strings.Contains(got.body, `"allowed":true`) ||
				got.last != test.last {
				t.Errorf("answered %d %s, the last: %t", got.status, got.body, got.last)
			}
			if test.last {
				c.wantEnd()
				return
			}
			c.send(requestTo("/v1/check", `{}`))
			c.answer().want(t, 200)
		})
	}
}

func TestWhoeverWaitsToSendABodyIsTold(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	_, addr, _ := h.listen()
	for _, expect := range []string{"100-continue", "100-Continue"} {
		c := call(t, addr)
		c.send("POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: " + expect +
			"\r\nAuthorization: Bearer " + fullKey +
			"\r\nContent-Type: application/json\r\n\r\n")
		if got := c.answer(); got.status != http.StatusContinue {
			t.Fatalf("%s is answered %d %s, want 100", expect, got.status, got.body)
		}
		c.send("{}")
		c.answer().want(t, 200)
	}
}

func TestRequestsThatCannotBeReadAreProblems(t *testing.T) {
	t.Parallel()
	check := "POST /v1/check HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + fullKey +
		"\r\nContent-Type: application/json\r\n"
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
		"no HTTP":                {"hello\r\n\r\n", 400, "invalid-request", "unmatched"},
		"a space before a colon": {check + "X-Y : 1\r\n\r\n", 400, "invalid-request", "unmatched"},
		"a space within a name": {
			check + "Content-Length: 2\r\nX y: 1\r\n\r\n{}", 400, "invalid-request",
			"unmatched",
		},
		"no version": {
			strings.Replace(check, " HTTP/1.1", "", 1) + "\r\n", 400, "invalid-request",
			"unmatched",
		},
		"no colon": {
			strings.Replace(check, "Authorization:", "Authorization", 1) + "\r\n", 400,
			"invalid-request", "unmatched",
		},
		"a control character": {
			strings.Replace(check, secret, secret+"\x01", 1) + "\r\n", 400, "invalid-request",
			"unmatched",
		},
		"a bracket in a name": {
			strings.Replace(check, "Authorization", "Auth(orization", 1) + "\r\n", 400,
			"invalid-request", "unmatched",
		},
		"no slash": {
			strings.Replace(check, "/v1/check", "v1/check?key="+fullKey, 1) + "\r\n", 400,
			"invalid-request", "unmatched",
		},
		"another encoding": {
			check +
				"Transfer-Encoding: identity\r\n\r\nGET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 400, "invalid-request",
			"unmatched",
		},
		"a length hidden": {
			check + "Content-Length: 2\r\nTransfer -Encoding: chunked\r\n\r\n{}", 400,
			"invalid-request", "unmatched",
		},
		"a version to come": {
			strings.Replace(check, "/1.1", "/9.9", 1) + "Content-Length: 2\r\n\r\n{}", 400,
			"invalid-request", "unmatched",
		},
		"a length and chunks": {
			check +
				"Content-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400, "invalid-request",
			"unmatched",
		},
		"too many headers": {
			check + strings.Repeat("a:\r\n", 101) + "\r\n", 431, "headers-too-large",
			"unmatched",
		},
		"too many after chunks": {check + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" +
			strings.Repeat("a:\r\n", 101) + "\r\n", 431, "headers-too-large", "/v1/check"},
		"a key for a method": {
			fullKey + " / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 404, "not-found",
			"unmatched",
		},
		"waiting for too much": {
			check + "Content-Length: 70000\r\nExpect: 100-continue\r\n\r\n", 413,
			"body-too-large", "/v1/check",
		},
		"HTTP/2": {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "invalid-request", "unmatched"},
		"two lengths": {
			check + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400, "invalid-request",
			"unmatched",
		},
		"a negative length": {check + "Content-Length: -2\r\n\r\n{}", 400, "invalid-request", "unmatched"},
		"a chunk without a size": {
			check + "Transfer-Encoding: chunked\r\n\r\nx\r\n{}\r\n0\r\n\r\n", 400,
			"invalid-request", "/v1/check",
		},
		"headers too large": {
			check + "X-Filler: " + strings.Repeat("a", 32<<10) + "\r\n\r\n", 431,
			"headers-too-large", "unmatched",
		},
		"a check far too large": {check + large(8<<20), 413, "body-too-large", "/v1/check"},
		"chunks far too large": {check + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s", 4<<20,
			strings.Repeat(" ", 4<<20)), 413, "body-too-large", "/v1/check"},
		"a batch far too large": {batch + large(8<<20), 413, "body-too-large", "/v1/check/batch"},
		"a large batch, no key": {
			strings.Replace(batch, secret, "x"+secret[1:], 1) + large(64<<10+1), 401,
			"unauthorized", "/v1/check/batch",
		},
		"HTTP/1.0, no key": {strings.Replace(strings.Replace(check, "/1.1", "/1.0", 1), secret, "x", 1) +
			large(60_000), 401, "unauthorized", "/v1/check"},
		"a large body, no route": {
			strings.Replace(check, "/check", "/chick", 1) + large(64<<10+1), 404, "not-found",
			"unmatched",
		},
		"a large body of a probe": {
			"GET /healthz HTTP/1.1\r\nHost: a\r\n" + large(64<<10+1), 413, "body-too-large",
			"/healthz",
		},
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
			if got.status != test.status || problem.Type != "urn:sluice:problem:"+test.kind ||
				contentType != "application/problem+json" {
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

func TestAnAnswerToHEADHasNoBody(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	for _, length := range []int{0, 70_000} {
		w := h.send("HEAD", "/healthz", nil, strings.Repeat(" ", length))
		if want := map[int]int{0: 200, 70_000: 413}[length]; w.Code != want || w.Body.Len() > 0 {
			t.Errorf("with %d bytes answered %d %q, want %d", length, w.Code, w.Body, want)
		}
	}
}

var hundred = "Host: a\r\nContent-Length: 2\r\n" + withKey + strings.Repeat("A:\r\n", 96)

func TestTheNumberOfHeadersIsAsDocumented(t *testing.T) {
	t.Parallel()
	inChunks := strings.Replace(hundred, "Content-Length: 2", "Transfer-Encoding: chunked", 1)
	for name, test := range map[string]struct {
		request string
		want    int
	}{
		"a hundred":               {hundred + "\r\n{}", 200},
		"one more":                {hundred + "A:\r\n\r\n{}", 431},
		"a hundred before chunks": {inChunks + "\r\n2\r\n{}\r\n0\r\n\r\n", 200},
		"one more after chunks":   {inChunks + "\r\n2\r\n{}\r\n0\r\nA:\r\n\r\n", 431},
		"a hundred, one of them after it": {strings.Replace(inChunks, "A:\r\n", "", 1) +
			"\r\n2\r\n{}\r\n0\r\nA:\r\n\r\n", 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, addr, _ := newHarness(t, rules.DefaultSettings()).listen()
			c := call(t, addr)
			c.send("POST /v1/check HTTP/1.1\r\n" + test.request)
			c.answer().want(t, test.want)
		})
	}
}

func TestABodyIsNotWaitedForWithoutAKey(t *testing.T) {
	t.Parallel()
	const post = "POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
	const small = "Content-Length: 20\r\n"
	withOther := func(authorization string) string { return post + "Authorization: Bearer " + authorization + "\r\n" }
	asText := strings.Replace(withOther(fullKey), "application/json", "text/plain", 1)
	for name, test := range map[string]struct {
		headers string
		status  int
	}{
		"no key, a small body":            {post + small, 401},
		"a wrong secret":                  {withOther("slk_full_1"+secret[1:]) + small, 401},
		"a key that may not":              {withOther("slk_manage_"+secret) + small, 403},
		"a suspended tenant":              {withOther("slk_suspended_"+secret) + small, 403},
		"no key, a body that is too much": {post + "Content-Length: 65537\r\n", 401},
		"no key, chunks":                  {post + "Transfer-Encoding: chunked\r\n", 401},
		"no key, asking first":            {post + "Expect: 100-continue\r\nContent-Length: 2\r\n", 401},
		"no JSON":                         {asText + small, 415},
		"no such path":                    {"POST / HTTP/1.1\r\nHost: a\r\n" + small, 404},
		"a probe":                         {"GET /healthz HTTP/1.1\r\nHost: a\r\n" + small, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, addr, _ := newHarness(t, rules.DefaultSettings()).listen()
			c := call(t, addr)
			c.send(test.headers + "\r\n")
			if got := c.answer(); got.status != test.status || !got.last {
				t.Errorf("answered %d %s, the last: %t; want %d", got.status, got.body, got.last, test.status)
			}
			c.wantEnd()
			if !strings.HasSuffix(test.headers, small) {
				return
			}
			c = call(t, addr)
			c.send(test.headers + "\r\n" + strings.Repeat("x", 20) + requestTo("/v1/check", `{}`))
			for _, want := range []int{test.status, 200} {
				if got := c.answer(); got.status != want || got.last {
					t.Errorf("with its body: answered %d %s, the last: %t; want %d", got.status, got.body, got.last,
						want)
				}
			}
		})
	}
}

func TestAnAnswerDoesNotWaitForTheNextRequest(t *testing.T) {
	t.Parallel()
	whole := requestTo("/v1/check", `{"user_id":"x"}`)
	half := strings.Index(whole, "\r\n\r\n")
	inChunks := "POST /v1/check HTTP/1.1\r\nHost: a\r\n" + withKey +
		"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
	for name, next := range map[string][2]string{
		"half of the headers": {whole[:half], whole[half:]},
		"half of the body":    {whole[:half+8], whole[half+8:]},
		"no body":             {whole[:half+4], whole[half+4:]},
		"half of the chunks":  {inChunks[:len(inChunks)-8], inChunks[len(inChunks)-8:]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, addr, _ := newHarness(t, rules.DefaultSettings()).listen()
			c := call(t, addr)
			c.send(whole + whole + next[0])
			for range 2 {
				c.answer().want(t, 200)
			}
			c.send(next[1])
			c.answer().want(t, 200)
		})
	}
}
