package httpapi

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"
)

// Handler answers a request, or returns an error for WriteError.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Requests wraps every route of a surface.
type Requests struct {
	Log      *slog.Logger
	Observer Observer
	Deadline time.Duration // of each request's context; 0 for none
}

// RequestIDHeader is in net/http's canonical spelling.
const RequestIDHeader = "X-Request-Id"

// RequestID returns the id of the request that w answers.
func RequestID(w http.ResponseWriter) string {
	if values := w.Header()[RequestIDHeader]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Route wraps a handler under a name for logs and the Observer.
func (q *Requests) Route(name string, handler Handler) http.Handler {
	telemetry := Telemetry{Log: q.Log, Observer: q.Observer}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()[RequestIDHeader] = []string{ChooseRequestID(r.Header[RequestIDHeader]...)}
		answer := &response{ResponseWriter: w, request: r}
		inFlight := telemetry.Begin(name, answer)
		defer func() { inFlight.End(r.Context(), answer.statusCode()) }()
		if q.Deadline > 0 {
			ctx, cancel := context.WithTimeout(r.Context(), q.Deadline)
			defer cancel()
			r = r.WithContext(ctx)
		}
		answer.run(telemetry, name, r, handler) //nolint:contextcheck // r has it
	})
}

func (w *response) run(telemetry Telemetry, route string, r *http.Request, handler Handler) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if cause == http.ErrAbortHandler {
			panic(cause)
		}
		telemetry.LogPanic(r.Context(), route, w, cause)
		if w.status != 0 {
			// Part of an answer is sent; only a broken connection shows that it is incomplete.
			panic(http.ErrAbortHandler)
		}
		Failure().write(w)
	}()
	if err := handler(w, r); err != nil {
		WriteError(w, r, telemetry.Log, err)
	}
}

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

func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) statusCode() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

// ChooseRequestID returns the id that the caller sent, if it is a single one of 1 to 64 letters, digits, dots,
// dashes and underscores, else a random one.
func ChooseRequestID(sent ...string) string {
	if len(sent) == 1 && isRequestID(sent[0]) {
		return sent[0]
	}
	const digits = "0123456789abcdef" // no secret, so a weak random number is enough
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
