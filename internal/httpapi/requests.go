package httpapi

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"
)

// Handler answers a request, or returns the error to answer it with; see WriteError.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Requests is what surrounds every route of a surface.
type Requests struct {
	Log *slog.Logger
	// Observer may be nil.
	Observer Observer
	// Deadline bounds the context of each request; 0 leaves it unbounded.
	Deadline time.Duration
}

// RequestIDHeader tells a caller the id of its request. It is spelled as net/http keeps it.
const RequestIDHeader = "X-Request-Id"

// RequestID returns the id of the request that w answers. It lives in the answer's header.
func RequestID(w http.ResponseWriter) string {
	if values := w.Header()[RequestIDHeader]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Route surrounds a handler. The name is what logs and the Observer call the route.
func (q *Requests) Route(name string, handler Handler) http.Handler {
	told := Telemetry{Log: q.Log, Observer: q.Observer}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()[RequestIDHeader] = []string{ChooseRequestID(r.Header[RequestIDHeader]...)}
		answer := &response{ResponseWriter: w, request: r}
		inFlight := told.Begin(name, answer)
		defer func() { inFlight.End(r.Context(), answer.statusCode()) }()
		if q.Deadline > 0 {
			ctx, cancel := context.WithTimeout(r.Context(), q.Deadline)
			defer cancel()
			r = r.WithContext(ctx)
		}
		answer.run(told, name, r, handler) //nolint:contextcheck // r has it
	})
}

// run runs the handler and answers with its error, or with its panic.
func (w *response) run(told Telemetry, route string, r *http.Request, handler Handler) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if cause == http.ErrAbortHandler {
			panic(cause)
		}
		told.LogPanic(r.Context(), route, w, cause)
		if w.status != 0 {
			// Half an answer is on its way; only a broken connection says that it is not whole.
			panic(http.ErrAbortHandler)
		}
		Failure().write(w)
	}()
	if err := handler(w, r); err != nil {
		WriteError(w, r, told.Log, err)
	}
}

// response remembers the status of an answer. It is the Details of its request.
type response struct {
	http.ResponseWriter
	request *http.Request
	status  int // 0 until the header is written
}

func (w *response) Method() string                   { return w.request.Method }
func (w *response) RequestHeader(name string) string { return w.request.Header.Get(name) }
func (w *response) RequestID() string                { return RequestID(w) }

func (w *response) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach what net/http provides.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) statusCode() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

// ChooseRequestID returns the id of a request that was sent with these: the caller's own if there is one alone
// that is 1 to 64 letters, digits, dots, dashes and underscores, else a random one.
func ChooseRequestID(sent ...string) string {
	if len(sent) == 1 && isRequestID(sent[0]) {
		return sent[0]
	}
	// It tells requests apart and guards nothing, so it need not be unpredictable.
	const digits = "0123456789abcdef"
	var id [16]byte
	for i, n := 0, rand.Uint64(); i < len(id); i, n = i+1, n>>4 {
		id[i] = digits[n&15]
	}
	return string(id[:])
}

func isRequestID(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}
