package httpapi

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Kind is a kind of problem, which callers know by the unchanging Type.
type Kind struct {
	Type   string
	Title  string
	Status int
}

const typePrefix = "urn:sluice:problem:" // absolute, as RFC 9457 section 3.1.1 recommends

const draftPrefix = "https://iana.org/assignments/http-problem-types#" // draft-ietf-httpapi-ratelimit-headers

// The kinds of problem.
var (
	InvalidRequest = Kind{typePrefix + "invalid-request", "The request is not valid", http.StatusBadRequest}
	Unauthorized   = Kind{typePrefix + "unauthorized", "The request is not authenticated", http.StatusUnauthorized}
	Forbidden      = Kind{typePrefix + "forbidden", "The caller may not do this", http.StatusForbidden}
	Suspended      = Kind{typePrefix + "tenant-suspended", "The tenant is suspended", http.StatusForbidden}
	NeedsFactor    = Kind{typePrefix + "second-factor-required", "A second factor is required", http.StatusForbidden}
	NotFresh       = Kind{typePrefix + "fresh-proof-required", "Sign in again to do this", http.StatusForbidden}
	NotFound       = Kind{typePrefix + "not-found", "There is nothing here", http.StatusNotFound}
	WrongMethod    = Kind{
		typePrefix + "method-not-allowed", "The method is not allowed here",
		http.StatusMethodNotAllowed,
	}
	Conflict      = Kind{typePrefix + "conflict", "What is stored does not allow this", http.StatusConflict}
	OverCapacity  = Kind{typePrefix + "capacity-exceeded", "The tenant holds as much as it may", http.StatusConflict}
	InUse         = Kind{typePrefix + "in-use", "Something still needs this", http.StatusConflict}
	NoSharedStore = Kind{typePrefix + "no-shared-store", "Buckets are not shared", http.StatusConflict}
	KeyReused     = Kind{
		typePrefix + "idempotency-key-reused", "The Idempotency-Key was used before",
		http.StatusUnprocessableEntity,
	}
	InProgress = Kind{typePrefix + "request-in-progress", "The request is still running", http.StatusConflict}
	AnswerLost = Kind{typePrefix + "answer-lost", "The answer is no longer known", http.StatusConflict}
	Changed    = Kind{
		typePrefix + "precondition-failed", "Somebody else changed this",
		http.StatusPreconditionFailed,
	}
	Unconditional = Kind{
		typePrefix + "precondition-required", "The change names no version",
		http.StatusPreconditionRequired,
	}
	TooSlow        = Kind{typePrefix + "request-timeout", "The request came too slowly", http.StatusRequestTimeout}
	HeaderTooLarge = Kind{
		typePrefix + "headers-too-large", "The headers are too large",
		http.StatusRequestHeaderFieldsTooLarge,
	}
	LimitExceeded    = Kind{draftPrefix + "quota-exceeded", "Too many requests", http.StatusTooManyRequests}
	Blocked          = Kind{typePrefix + "blocked", "The request is blocked", http.StatusTooManyRequests}
	CostExceedsLimit = Kind{
		typePrefix + "cost-exceeds-limit", "The request costs too much", http.StatusTooManyRequests,
	}
	RecordIDsExhausted = Kind{
		typePrefix + "record-ids-exhausted", "Too many records have ids",
		http.StatusTooManyRequests,
	}
	StoreUnavailable = Kind{
		draftPrefix + "temporary-reduced-capacity", "The limits cannot be checked",
		http.StatusServiceUnavailable,
	}
	TooSoon        = Kind{typePrefix + "too-many-requests", "Too many attempts", http.StatusTooManyRequests}
	TooLarge       = Kind{typePrefix + "body-too-large", "The body is too large", http.StatusRequestEntityTooLarge}
	WrongMediaType = Kind{
		typePrefix + "unsupported-media-type", "The body is of the wrong media type",
		http.StatusUnsupportedMediaType,
	}
	Internal    = Kind{typePrefix + "internal", "Something went wrong on our side", http.StatusInternalServerError}
	Unavailable = Kind{typePrefix + "unavailable", "The service cannot answer yet", http.StatusServiceUnavailable}
)

// FieldError is a mistake in a value of a body, and describes a right value.
type FieldError struct {
	Pointer string // JSON pointer (RFC 6901); "" is the whole body
	Detail  string
}

// Problem is an error that is shown to the caller.
type Problem struct {
	Kind
	Detail   string
	Fields   []FieldError
	Violated []string // the limits that deny the request, by their names in RateLimit-Policy
}

// Problem returns a problem of the kind, whose detail says what to do.
func (k Kind) Problem(detail string, fields ...FieldError) *Problem {
	return &Problem{Kind: k, Detail: detail, Fields: fields}
}

func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// WriteError answers a *Problem and a *http.MaxBytesError as they are; it logs any other error and answers an
// internal error.
func WriteError(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	var p *Problem
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &p):
	case errors.As(err, &tooLarge):
		p = bodyTooLarge(tooLarge.Limit)
	default:
		log.ErrorContext(r.Context(), "request failed",
			"request_id", RequestID(w), "method", r.Method, "path", r.URL.Path, "error", err)
		p = Failure()
	}
	p.write(w)
}

// Failure is the answer to an internal error.
func Failure() *Problem {
	return Internal.Problem("Try again; if it fails again, give the operators the request_id.")
}

// ProblemType is the media type of a problem.
const ProblemType = "application/problem+json"

func (p *Problem) write(w http.ResponseWriter) {
	b := p.Append(make([]byte, 0, 512), RequestID(w))
	h := w.Header()
	h.Set("Content-Type", ProblemType)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(b)
}

// Append appends the problem document, with the request id unless it is "".
func (p *Problem) Append(b []byte, requestID string) []byte {
	b = AppendString(append(b, `{"type":`...), p.Type)
	b = AppendString(append(b, `,"title":`...), p.Title)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(p.Status), 10)
	b = AppendString(append(b, `,"detail":`...), p.Detail)
	if requestID != "" {
		b = AppendString(append(b, `,"request_id":`...), requestID)
	}
	if len(p.Violated) > 0 {
		b = append(b, `,"violated-policies":[`...)
		for i, name := range p.Violated {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendString(b, name)
		}
		b = append(b, ']')
	}
	if len(p.Fields) > 0 {
		b = append(b, `,"errors":[`...)
		for i, f := range p.Fields {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendString(append(b, `{"pointer":`...), f.Pointer)
			b = append(AppendString(append(b, `,"detail":`...), f.Detail), '}')
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// AppendString appends a JSON string, with U+FFFD for invalid UTF-8.
func AppendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

// AppendText appends a string, or null for "".
func AppendText(b []byte, s string) []byte {
	if s == "" {
		return append(b, `null`...)
	}
	return AppendString(b, s)
}

// AppendMillis appends milliseconds, rounded up, so that waiting that long is enough.
func AppendMillis(b []byte, d time.Duration) []byte {
	return strconv.AppendInt(b, int64((d+time.Millisecond-1)/time.Millisecond), 10)
}
