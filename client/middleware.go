package sluice

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Middleware limits a handler, except for requests for which identify returns false. A denied request gets 429, or 503
// by FailureMode Closed, with Retry-After and a problem document (RFC 9457); an invalid check gets 400. Answers get the
// headers of Decision.SetHeaders. A concurrency slot is released when the handler returns.
func (c *Client) Middleware(identify func(*http.Request) (Check, bool)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			check, ask := identify(r)
			if !ask {
				next.ServeHTTP(w, r)
				return
			}
			// The answer contains the slot to release, so the check outlives its caller.
			decision, err := c.Check(context.WithoutCancel(r.Context()), check)
			if err != nil {
				c.config.Logger.WarnContext(r.Context(), "Sluice refused a check", "error", err)
				writeProblem(w, http.StatusBadRequest, "about:blank", "Bad Request",
					"The request cannot be identified.")
				return
			}
			// A panic must release the slot as well.
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

// The spelling of draft-ietf-httpapi-ratelimit-headers-11.
const (
	policyField, policyItem = "RateLimit-Policy", `"%s";q=%d;w=%d`
	limitField, limitItem   = "RateLimit", `"%s";r=%d;t=%d`
)

// SetHeaders sets RateLimit and RateLimit-Policy. If a limit applied, X-RateLimit-Limit, -Remaining and -Reset (in Unix
// seconds) follow. A denial that a wait ends gets Retry-After, in whole seconds with the caller's jitter.
func (d *Decision) SetHeaders(header http.Header, now time.Time) {
	var policies, limits []string
	for i := range d.Tiers {
		if t := &d.Tiers[i]; t.hasPolicy() {
			policies = append(policies, fmt.Sprintf(policyItem, t.policy(), t.Limit, max(1, wholeSeconds(t.Window))))
			limits = append(limits, fmt.Sprintf(limitItem, t.policy(), int64(max(0, t.Remaining)),
				wholeSeconds(t.MoreAfter)))
		}
	}
	if len(policies) > 0 {
		header.Del(policyField)
		header.Del(limitField)
		header[policyField] = []string{strings.Join(policies, ", ")}
		header[limitField] = []string{strings.Join(limits, ", ")}
	}
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
	return wholeSeconds(d.RetryWithJitter())
}

func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func (t *Tier) hasPolicy() bool { return t.Mode == "enforce" && t.Window > 0 }

func (t *Tier) policy() string { return t.Scope + "-" + strconv.FormatInt(t.RuleID, 10) }

func (d *Decision) writeDenial(w http.ResponseWriter) {
	kind, title := "https://iana.org/assignments/http-problem-types#quota-exceeded", "Too Many Requests"
	if d.Status == http.StatusServiceUnavailable {
		kind, title = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
			"Service Unavailable"
	}
	switch d.Reason {
	case "blocked", "cost_exceeds_limit": // the draft has no type for them
		kind = "urn:sluice:problem:" + strings.ReplaceAll(d.Reason, "_", "-")
	}
	detail := "Waiting does not help."
	if wait := d.retrySeconds(); wait > 0 {
		detail = fmt.Sprintf("Try again in %d s.", wait)
	}
	var violated []string
	for i := range d.Tiers {
		if t := &d.Tiers[i]; !t.Allowed && t.hasPolicy() {
			violated = append(violated, t.policy())
		}
	}
	writeProblem(w, d.Status, kind, title, detail, violated...)
}

// writeProblem escapes nothing.
func writeProblem(w http.ResponseWriter, status int, kind, title, detail string, violated ...string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	more := ""
	if len(violated) > 0 {
		more = `,"violated-policies":["` + strings.Join(violated, `","`) + `"]`
	}
	_, _ = fmt.Fprintf(w, `{"type":%q,"title":%q,"status":%d,"detail":%q%s}`+"\n", kind, title, status, detail, more)
}
