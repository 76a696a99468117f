package sluice

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Middleware limits a handler. identify returns the check of a request; if it returns false, the request is not
// limited. A denied request gets 429, or 503 by FailureMode Closed, with Retry-After and a problem document (RFC 9457);
// an invalid check, such as an id of a megabyte, gets 400. Answers contain X-RateLimit-Limit, -Remaining and -Reset. A
// concurrency slot is released when the handler returns.
func (c *Client) Middleware(identify func(*http.Request) (Check, bool)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			check, ask := identify(r)
			if !ask {
				next.ServeHTTP(w, r)
				return
			}
			// The check outlives its caller, because its answer contains the slot to release.
			decision, err := c.Check(context.WithoutCancel(r.Context()), check)
			if err != nil {
				c.config.Logger.WarnContext(r.Context(), "Sluice refused a check", "error", err)
				writeProblem(w, http.StatusBadRequest, "about:blank", "Bad Request",
					"The request cannot be identified.")
				return
			}
			// Deferred, so that a panic also releases the slot.
			defer c.ReleaseLater(r.Context(), decision.Reservation)
			if r.Context().Err() != nil {
				return
			}
			decision.SetHeaders(w.Header(), time.Now())
			if !decision.Allowed {
				decision.writeDenial(w)
				return
			}
			if decision.Pause(r.Context()) != nil {
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// SetHeaders sets X-RateLimit-Limit, -Remaining and -Reset (in Unix seconds) if a limit applied, and Retry-After, in
// whole seconds, if the check is denied and a wait helps.
func (d *Decision) SetHeaders(header http.Header, now time.Time) {
	if d.Limit > 0 {
		header.Set("X-RateLimit-Limit", strconv.FormatInt(d.Limit, 10))
		header.Set("X-RateLimit-Remaining", strconv.FormatInt(d.Remaining, 10))
		full := now.Add(d.ResetAfter + time.Second - 1)
		header.Set("X-RateLimit-Reset", strconv.FormatInt(full.Unix(), 10))
	}
	if wait := d.retrySeconds(); wait > 0 {
		header.Set("Retry-After", strconv.FormatInt(wait, 10))
	}
}

// retrySeconds rounds up; 0 means that no wait helps.
func (d *Decision) retrySeconds() int64 {
	if d.Allowed || d.RetryAfter <= 0 {
		return 0
	}
	return int64((d.RetryAfter + time.Second - 1) / time.Second)
}

func (d *Decision) writeDenial(w http.ResponseWriter) {
	kind, title := "https://iana.org/assignments/http-problem-types#quota-exceeded", "Too Many Requests"
	if d.Status == http.StatusServiceUnavailable {
		kind, title = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
			"Service Unavailable"
	}
	detail := "Waiting does not help."
	if wait := d.retrySeconds(); wait > 0 {
		detail = fmt.Sprintf("Try again in %d s.", wait)
	}
	writeProblem(w, d.Status, kind, title, detail)
}

// writeProblem needs texts without characters to escape.
func writeProblem(w http.ResponseWriter, status int, kind, title, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	// the caller may have left
	_, _ = fmt.Fprintf(w, `{"type":%q,"title":%q,"status":%d,"detail":%q}`+"\n", kind, title, status, detail)
}
