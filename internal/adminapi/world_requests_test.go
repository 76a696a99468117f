package adminapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

type request struct {
	method, path, body string
	header             map[string]string
}

func (w *world) do(by caller, q request) answer {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.ctx(), q.method, loopback+q.path, strings.NewReader(q.body))
	if q.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range q.header {
		r.Header.Set(name, value)
	}
	if by.session != "" {
		r.AddCookie(&http.Cookie{Name: "sluice_session", Value: by.session})
	}
	if by.key != "" {
		r.Header.Set("Authorization", "Bearer "+by.key)
	}
	recorder := httptest.NewRecorder()
	ctx, hangUp := context.WithCancel(r.Context())
	defer hangUp()
	isWhole := w.serve(&impatient{recorder, hangUp}, r.WithContext(ctx))
	got := answer{header: recorder.Header(), body: recorder.Body.String()}
	if isWhole {
		got.status = recorder.Code
	}
	if operation := w.operation(q.method, r.URL.EscapedPath()); operation != nil {
		got.operation = operation.OperationID
		if isWhole {
			w.holds(operation, got)
		}
	}
	w.answering.Lock()
	defer w.answering.Unlock()
	w.answers = append(w.answers, got)
	return got
}

// serve reports whether a request was answered. A handler that panics breaks the connection off, as in a real server;
// the status is then 0.
func (w *world) serve(to http.ResponseWriter, r *http.Request) (isWhole bool) {
	defer func() {
		switch cause := recover(); cause {
		case nil, http.ErrAbortHandler:
		default:
			panic(cause)
		}
	}()
	w.handler.ServeHTTP(to, r)
	return true
}

// impatient hangs up at the first sign of a stream, which would not end by itself.
type impatient struct {
	*httptest.ResponseRecorder
	hangUp func()
}

func (i *impatient) Flush() { i.hangUp() }

func (w *world) send(by caller, method, path string, body any, header ...string) answer {
	w.t.Helper()
	q := request{method: method, path: path, header: map[string]string{}}
	if body != nil {
		q.body = string(must(json.Marshal(body))(w.t))
	}
	for i := 0; i+1 < len(header); i += 2 {
		q.header[header[i]] = header[i+1]
	}
	return w.do(by, q)
}

var templates = sync.OnceValue(func() (all [][]string) {
	known, err := description()
	if err != nil {
		return nil // which fails in newWorld
	}
	for _, path := range known.Paths.InMatchingOrder() {
		all = append(all, strings.Split(path, "/"))
	}
	return all
})

func (w *world) get(by caller, path string) answer {
	w.t.Helper()
	return w.want(w.send(by, "GET", path, nil), http.StatusOK)
}

func (w *world) operation(method, path string) *openapi3.Operation {
	got := strings.Split(path, "/")
	for _, template := range templates() {
		if slices.EqualFunc(template, got, func(a, b string) bool { return a == b || strings.HasPrefix(a, "{") }) {
			return w.description.Paths.Value(strings.Join(template, "/")).GetOperation(method)
		}
	}
	return nil
}

func (w *world) holds(operation *openapi3.Operation, got answer) {
	w.t.Helper()
	described := operation.Responses.Status(got.status)
	if described == nil {
		w.t.Errorf("%s answered %d, which openapi.yaml does not have: %s", operation.OperationID, got.status, got.body)
		return
	}
	for name, header := range described.Value.Headers {
		if header.Value.Required && got.header.Get(name) == "" {
			w.t.Errorf("%s answered %d without the header %s", operation.OperationID, got.status, name)
		}
	}
	mediaType, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
	content := described.Value.Content.Get(mediaType)
	if content == nil {
		if len(described.Value.Content) > 0 || got.body != "" {
			w.t.Errorf("%s answered %d as %q, which openapi.yaml does not have", operation.OperationID, got.status,
				mediaType)
		}
		return
	}
	if !strings.HasSuffix(mediaType, "json") {
		return
	}
	var value any
	if err := json.Unmarshal([]byte(got.body), &value); err != nil {
		w.t.Errorf("%s answered %d with no JSON: %v\n%s", operation.OperationID, got.status, err, got.body)
		return
	}
	if err := content.Schema.Value.VisitJSON(value, openapi3.MultiErrors(),
		openapi3.EnableFormatValidation()); err != nil {
		w.t.Errorf("%s answered %d not as openapi.yaml says: %v\n%s", operation.OperationID, got.status, err, got.body)
	}
}

func (w *world) want(got answer, status int) answer {
	w.t.Helper()
	if got.status != status {
		w.t.Fatalf("%s answered %d, want %d: %s", got.operation, got.status, status, got.body)
	}
	return got
}

func read[T any](t testing.TB, got answer) T {
	t.Helper()
	var value T
	if err := json.NewDecoder(strings.NewReader(got.body)).Decode(&value); err != nil && err != io.EOF {
		t.Fatalf("%v: %s", err, got.body)
	}
	return value
}

type problem struct {
	Type   string `json:"type"`
	Detail string `json:"detail"`
	Errors []struct {
		Pointer string `json:"pointer"`
		Detail  string `json:"detail"`
	} `json:"errors"`
}

func pointersOf(t testing.TB, got answer) (pointers []string) {
	t.Helper()
	for _, e := range read[problem](t, got).Errors {
		pointers = append(pointers, e.Pointer)
	}
	return pointers
}

func (w *world) json(method, path string, body any) request {
	w.t.Helper()
	return request{
		method: method, path: path, body: string(must(json.Marshal(body))(w.t)),
		header: map[string]string{"If-Match": "*"},
	}
}

func formatID[T ~int64](id T) string { return strconv.FormatInt(int64(id), 10) }
