package httpapi_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/mux"

	"github.com/sluicegate/sluice/internal/httpapi"
)

type answered struct {
	route  string
	status int
	took   time.Duration
	count  int
}

func (a *answered) RequestAnswered(route string, status int, took time.Duration, _ string) {
	a.route, a.status, a.took = route, status, took
	a.count++
}

func serve(q *httpapi.Requests, r *http.Request, handler httpapi.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	q.Route("/thing/{id}", handler).ServeHTTP(w, r)
	return w
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestEveryRequestHasAnID(t *testing.T) {
	t.Parallel()
	own := regexp.MustCompile(`^[0-9a-f]{16}$`)
	tests := map[string]struct {
		sent []string
		kept bool
	}{
		"none sent":      {},
		"a good one":     {sent: []string{"Trace-1.a_b"}, kept: true},
		"the longest":    {sent: []string{strings.Repeat("a", 64)}, kept: true},
		"one too long":   {sent: []string{strings.Repeat("a", 65)}},
		"an empty one":   {sent: []string{""}},
		"a line break":   {sent: []string{"a\nlevel=ERROR"}},
		"quotes":         {sent: []string{`a"b`}},
		"more than one":  {sent: []string{"a", "b"}},
		"not even ASCII": {sent: []string{"é"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest("GET", "/", nil)
			r.Header["X-Request-Id"] = test.sent
			w := serve(&httpapi.Requests{Log: quiet()}, r, func(http.ResponseWriter, *http.Request) error {
				return httpapi.NotFound.Problem("No.")
			})
			id := w.Header().Get("X-Request-Id")
			if test.kept && id != test.sent[0] || !test.kept && !own.MatchString(id) {
				t.Errorf("sent %q, answered %q", test.sent, id)
			}
			if !strings.Contains(w.Body.String(), `"request_id":"`+id+`"`) {
				t.Errorf("problem %s does not tell the id %s", w.Body, id)
			}
		})
	}
}

func TestTheObserverIsToldOfEveryOutcome(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		handler httpapi.Handler
		status  int
	}{
		"an answer": {func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(429)
			return nil
		}, 429},
		"an answer without a status": {func(w http.ResponseWriter, _ *http.Request) error {
			_, err := w.Write([]byte("hello"))
			return err
		}, 200},
		"no answer at all": {func(http.ResponseWriter, *http.Request) error { return nil }, 200},
		"a problem": {
			func(http.ResponseWriter, *http.Request) error { return httpapi.Forbidden.Problem("No.") },
			403,
		},
		"an error": {func(http.ResponseWriter, *http.Request) error { return errors.New("broken") }, 500},
		"a panic":  {func(http.ResponseWriter, *http.Request) error { panic("broken") }, 500},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var observed answered
			w := serve(&httpapi.Requests{Log: quiet(), Observer: &observed},
				httptest.NewRequest("GET", "/thing/7", nil), test.handler)
			if w.Code != test.status || observed.status != test.status || observed.route != "/thing/{id}" ||
				observed.count != 1 {
				t.Errorf("answered %d and observed %+v, want %d", w.Code, observed, test.status)
			}
		})
	}
}

func TestAPanicIsLoggedAndItsTextIsNotTold(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	q := &httpapi.Requests{Log: slog.New(slog.NewTextHandler(&logged, nil))}
	w := serve(q, httptest.NewRequest("GET", "/thing/7", nil), func(http.ResponseWriter, *http.Request) error {
		panic("nil map of secrets")
	})
	if w.Code != 500 || strings.Contains(w.Body.String(), "secrets") {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
	for _, want := range []string{"nil map of secrets", "requests_test.go", w.Header().Get("X-Request-Id")} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("log lacks %q: %s", want, logged.String())
		}
	}
}

func TestAPanicWithinAnAnswerBreaksTheConnection(t *testing.T) {
	t.Parallel()
	q := &httpapi.Requests{Log: quiet()}
	server := httptest.NewServer(q.Route("/", func(w http.ResponseWriter, _ *http.Request) error {
		_, _ = w.Write([]byte(`{"half":`))
		_ = http.NewResponseController(w).Flush()
		panic("broken")
	}))
	defer server.Close()
	answer, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err == nil {
		t.Errorf("half an answer looked whole: %s", body)
	}
}

func TestEachRequestHasADeadline(t *testing.T) {
	t.Parallel()
	q := &httpapi.Requests{Log: quiet(), Deadline: time.Minute}
	serve(q, httptest.NewRequest("GET", "/", nil), func(_ http.ResponseWriter, r *http.Request) error {
		deadline, ok := r.Context().Deadline()
		if left := time.Until(deadline); !ok || left > time.Minute || left < 50*time.Second {
			t.Errorf("%v are left, want a minute", left)
		}
		return nil
	})
}

func TestRequestsAreLoggedAtDebugWithoutHeadersOrQuery(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	q := &httpapi.Requests{Log: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	r := httptest.NewRequest("GET", "/thing/7?token=secret1", nil)
	r.Header.Set("Authorization", "Bearer secret2")
	w := serve(q, r, func(http.ResponseWriter, *http.Request) error { return nil })
	line := logged.String()
	for _, want := range []string{"level=DEBUG", "route=/thing/{id}", "status=200", w.Header().Get("X-Request-Id")} {
		if !strings.Contains(line, want) {
			t.Errorf("log lacks %q: %s", want, line)
		}
	}
	if strings.Count(line, "\n") != 1 || strings.Contains(line, "secret") {
		t.Errorf("log is %s", line)
	}
}

func TestUnmatchedRequestsAreProblems(t *testing.T) {
	t.Parallel()
	var observed answered
	q := &httpapi.Requests{Log: quiet(), Observer: &observed}
	router := mux.NewRouter()
	param := q.Route("/things/{id}", func(w http.ResponseWriter, r *http.Request) error {
		_, err := io.WriteString(w, httpapi.PathParam(r, "id")+httpapi.PathParam(r, "other"))
		return err
	})
	router.Handle("/things/{id}", param).Methods("GET", "HEAD")
	router.Handle("/things/{id}", param).Methods("DELETE")
	httpapi.AnswerUnmatched(router, q)

	tests := []struct {
		name, method, path string
		status             int
		allow, body, route string
	}{
		{"a path parameter is read", "GET", "/things/42", 200, "", "42", "/things/{id}"},
		{"an unknown path is 404", "GET", "/things/42/parts", 404, "", "urn:sluice:problem:not-found", "unmatched"},
		{
			"a wrong method is 405 and all right ones are told", "PUT", "/things/42", 405, "GET, HEAD, DELETE",
			"urn:sluice:problem:method-not-allowed", "unmatched",
		},
		{
			"a made-up method is 405 too", "BREW", "/things/42", 405, "GET, HEAD, DELETE",
			"Use one of: GET, HEAD, DELETE.", "unmatched",
		},
	}
	for _, test := range tests {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest(test.method, test.path, nil))
		if w.Code != test.status || w.Header().Get("Allow") != test.allow ||
			!strings.Contains(w.Body.String(), test.body) {
			t.Errorf("%s: answered %d, Allow %q, %s", test.name, w.Code, w.Header().Get("Allow"), w.Body)
		}
		if observed.route != test.route || observed.status != test.status {
			t.Errorf("%s: observed %+v", test.name, observed)
		}
	}
}
