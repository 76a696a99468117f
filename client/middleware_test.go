package sluice

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"
)

func byUser(r *http.Request) (Check, bool) {
	user := r.Header.Get("X-User")
	return Check{UserID: user, Endpoint: r.URL.Path}, user != ""
}

func TestMiddleware(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer          scripted
		user            string
		mode            FailureMode
		status          int
		headers         map[string]string
		body            string
		asked, released bool
	}{
		"passes what is allowed, and says what is left": {
			answer: scripted{Status: 200, Body: map[string]any{
				"allowed": true, "limit": 50, "remaining": 49,
				"reset_after_ms": 100,
			}},
			user: "42", status: http.StatusNoContent, asked: true,
			headers: map[string]string{"X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "49", "Retry-After": ""},
		},
		"answers 429 with a wait in whole seconds, rounded up": {
			answer: scripted{Status: 429, Body: map[string]any{
				"allowed": false, "reason": "limit_exceeded", "limit": 3, "remaining": 0, "retry_after_ms": 9001,
				"reset_after_ms": 29959, "tiers": []any{
					map[string]any{
						"rule_id": 12, "scope": "user", "mode": "enforce", "allowed": false, "limit": 3,
						"remaining": 0.5, "window_ms": 30000, "more_after_ms": 9001,
					},
					map[string]any{
						"rule_id": 13, "scope": "ip", "mode": "enforce", "allowed": true, "limit": 50, "remaining": 7.5,
						"window_ms": 100, "more_after_ms": 0,
					},
					map[string]any{"rule_id": 14, "scope": "global", "mode": "shadow", "window_ms": 1000},
				},
			}},
			user: "42", status: http.StatusTooManyRequests, asked: true,
			body: `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
				`"title":"Too Many Requests","status":429,"detail":"Try again in 10 s.",` +
				`"violated-policies":["user-12"]}`,
			headers: map[string]string{
				policyField: `"user-12";q=3;w=30, "ip-13";q=50;w=1`, limitField: `"user-12";r=0;t=10, "ip-13";r=7;t=0`,
				"Cache-Control":     "no-store",
				"X-RateLimit-Limit": "3", "Retry-After": "10",
				"Content-Type": "application/problem+json",
			},
		},
		"promises no wait where none helps": {
			answer: scripted{Status: 429, Body: map[string]any{
				"allowed": false, "reason": "blocked",
				"retry_after_ms": nil,
			}},
			user: "42", status: http.StatusTooManyRequests, asked: true,
			body: `{"type":"urn:sluice:problem:blocked","title":"Too Many Requests","status":429,` +
				`"detail":"Waiting does not help."}`,
			headers: map[string]string{"Retry-After": ""},
		},
		"passes unasked what identify leaves out": {status: http.StatusNoContent},
		"passes when nobody decides": {
			answer: scripted{Fault: "reset"}, user: "42", status: http.StatusNoContent, asked: true,
		},
		"answers 503 when nobody decides and it fails closed": {
			answer: scripted{Fault: "reset"}, user: "42", mode: Closed, status: http.StatusServiceUnavailable,
			asked:   true,
			headers: map[string]string{"Retry-After": "1"},
		},
		"answers 400 to what cannot be asked": {
			answer: scripted{Status: 400, Body: map[string]any{"type": "urn:sluice:problem:invalid-request"}},
			user:   "42", status: http.StatusBadRequest, asked: true,
		},
		"waits for its turn, and releases its place": {
			answer: scripted{Status: 200, Body: map[string]any{"allowed": true, "delay_ms": 30, "reservation": "r1"}},
			user:   "42", status: http.StatusNoContent, asked: true, released: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newScriptedServer(t)
			server.next = []scripted{c.answer, {Status: 200, Body: map[string]any{"settled": true}}}
			client := newTestClient(t, Config{URL: server.URL, FailureMode: c.mode, Timeout: testTimeout})
			began := time.Now()
			var served time.Duration
			handler := client.Middleware(byUser)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				served = time.Since(began)
				w.WriteHeader(http.StatusNoContent)
			}))
			request := httptest.NewRequest(http.MethodGet, "/api/reports", nil)
			request.Header.Set("X-User", c.user)
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, request)
			if answer.Code != c.status {
				t.Errorf("status %d, want %d: %s", answer.Code, c.status, answer.Body)
			}
			for header, want := range c.headers {
				got := answer.Header().Get(header)
				if spelt := answer.Header()[header]; len(spelt) > 0 { // as the draft spells it
					got = spelt[0]
				}
				if got != want {
					t.Errorf("%s is %q, want %q", header, got, want)
				}
			}
			if got := answer.Body.String(); c.body != "" && got != c.body+"\n" {
				t.Errorf("the body is %s, want %s", got, c.body)
			}
			if body, ok := c.answer.Body.(map[string]any); ok && body["delay_ms"] != nil &&
				served < 30*time.Millisecond {
				t.Errorf("the handler ran after %v, want it to wait for 30ms", served)
			}
			client.Close() // waits for the release
			want := 0
			if c.asked {
				want++
			}
			if c.released {
				want++
			}
			if got := server.take(); len(got) != want {
				t.Errorf("%d requests were sent, want %d: %+v", len(got), want, got)
			} else if c.released && (got[1].path != "/v1/settle" || got[1].body != `{"reservation":"r1"}`) {
				t.Errorf("the release was %s %s", got[1].path, got[1].body)
			}
		})
	}
}

func TestResetHeaderIsATimeRoundedUp(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	now := time.Unix(1000, 1)
	(&Decision{Limit: 1, ResetAfter: time.Second}).SetHeaders(header, now)
	if got := header.Get("X-RateLimit-Reset"); got != strconv.Itoa(1002) {
		t.Errorf("the bucket is full at 1001.000000001, and the header says %s", got)
	}
}

func TestMiddlewareStopsWaitingForACallerThatLeft(t *testing.T) {
	t.Parallel()
	server := newScriptedServer(t)
	server.next = []scripted{{Status: 200, Body: map[string]any{"allowed": true, "delay_ms": 3_600_000}}}
	asked := make(chan struct{})
	client := newTestClient(t, Config{
		URL: server.URL, Timeout: testTimeout,
		OnDecision: func(context.Context, Observation) { close(asked) },
	})
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-asked; leave() }()
	handler := client.Middleware(byUser)(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request,
	) {
		t.Error("the handler ran")
	}))
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	request.Header.Set("X-User", "42")
	handler.ServeHTTP(httptest.NewRecorder(), request)
}

func TestObserverSeesEveryDecision(t *testing.T) {
	t.Parallel()
	server := newScriptedServer(t)
	server.next = []scripted{{
		Status: 429,
		Body:   map[string]any{"allowed": false, "reason": "limit_exceeded", "retry_after_ms": 60_000},
	}}
	var seen []Source
	client := newTestClient(t, Config{
		URL: server.URL, Timeout: testTimeout,
		OnDecision: func(_ context.Context, o Observation) {
			if o.Check.UserID != "42" || o.Took < 0 || o.Err != nil {
				t.Errorf("it is told %+v", o)
			}
			seen = append(seen, o.Decision.Source)
		},
	})
	for range 2 {
		if _, err := client.Check(t.Context(), Check{UserID: "42"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 2 || seen[0] != FromServer || seen[1] != FromMemory {
		t.Errorf("it saw %v", seen)
	}
}

func TestARememberedDenialHasItsJitter(t *testing.T) {
	t.Parallel()
	server := newScriptedServer(t)
	server.next = []scripted{{Status: 429, Body: map[string]any{
		"allowed": false, "reason": "limit_exceeded", "retry_after_ms": 100_000, "retry_jitter_percent": 50,
	}}}
	client := newTestClient(t, Config{URL: server.URL, Timeout: testTimeout})
	handler := client.Middleware(byUser)(http.NotFoundHandler())
	for _, source := range []string{"the server", "the memory"} {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.Header.Set("X-User", "42")
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if wait, err := strconv.Atoi(answer.Header().Get("Retry-After")); err != nil || wait <= 101 || wait > 150 {
			t.Errorf("by %s a caller waits %q, want 150", source, answer.Header().Get("Retry-After"))
		}
	}
	if got := len(server.take()); got != 1 {
		t.Errorf("%d requests, want 1", got)
	}
}
