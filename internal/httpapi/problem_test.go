package httpapi_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/httpapi"
)

func TestErrorsBecomeAnswersInOnePlace(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err    error
		status int
		body   string
		logged string // "" for nothing
	}{
		"a problem is told as it is, with a pointer for each field": {
			err: httpapi.InvalidRequest.Problem("Correct it.",
				httpapi.FieldError{Pointer: "/checks/7/cost", Detail: `must not be "negative"`},
				httpapi.FieldError{Pointer: "", Detail: "is odd"}),
			status: 400,
			body: `{"type":"urn:sluice:problem:invalid-request","title":"The request is not valid","status":400,` +
				`"detail":"Correct it.","errors":[{"pointer":"/checks/7/cost","detail":"must not be \"negative\""},` +
				`{"pointer":"","detail":"is odd"}]}`,
		},
		"a wrapped problem is told too": {
			err:    fmt.Errorf("reading: %w", httpapi.NotFound.Problem("Look elsewhere.")),
			status: 404,
			body:   `{"type":"urn:sluice:problem:not-found","title":"There is nothing here","status":404,"detail":"Look elsewhere."}`,
		},
		"a body that outgrew its reader is 413 wherever that was noticed": {
			err:    fmt.Errorf("decoding: %w", &http.MaxBytesError{Limit: 10}),
			status: 413,
			body: `{"type":"urn:sluice:problem:body-too-large","title":"The body is too large","status":413,` +
				`"detail":"Send at most 10 bytes."}`,
		},
		"any other error is logged and never told": {
			err:    errors.New("dial tcp 10.0.0.7: password is hunter2"),
			status: 500,
			body: `{"type":"urn:sluice:problem:internal","title":"Something went wrong on our side","status":500,` +
				`"detail":"Try again; if it fails again, give the operators the request_id."}`,
			logged: "hunter2",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var logged bytes.Buffer
			w := httptest.NewRecorder()
			httpapi.WriteError(w, httptest.NewRequest("GET", "/", nil), slog.New(slog.NewTextHandler(&logged, nil)),
				test.err)
			if w.Code != test.status || w.Body.String() != test.body {
				t.Errorf("answer is %d %s\nwant %d %s", w.Code, w.Body, test.status, test.body)
			}
			if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("Content-Type is %q", got)
			}
			if test.logged == "" && logged.Len() > 0 || !strings.Contains(logged.String(), test.logged) {
				t.Errorf("log is %q, want %q in it", logged.String(), test.logged)
			}
		})
	}
}

// TestEachKindOfProblemIsInTheContractAndExplained reads the kinds from their source, because Go cannot list them.
func TestEachKindOfProblemIsInTheContractAndExplained(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	prefixes := map[string]string{
		"typePrefix": "urn:sluice:problem:", "draftPrefix": "https://iana.org/assignments/http-problem-types#",
	}
	_, listed, _ := strings.Cut(read("../../api/openapi.yaml"), "    ProblemType:")
	listed, _, _ = strings.Cut(listed, "    FieldError:")
	pages := read("../../docs/admin-api.md") + read("../../docs/check-api.md")
	kinds := regexp.MustCompile(`(typePrefix|draftPrefix) \+ "([a-z-]+)"`).FindAllStringSubmatch(read("problem.go"), -1)
	if got := strings.Count(listed, `- "`); len(kinds) < 20 || got != len(kinds) {
		t.Errorf("the contract has %d types, and problem.go %d kinds", got, len(kinds))
	}
	for _, kind := range kinds {
		if name := prefixes[kind[1]] + kind[2]; !strings.Contains(listed, `"`+name+`"`) {
			t.Errorf("%s is not in the contract", name)
		}
		if !strings.Contains(pages, "`"+kind[2]+"`") {
			t.Errorf("no page says what to do about %s", kind[2])
		}
	}
}
