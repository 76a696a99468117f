package checkapi

import (
	"context"
	"errors"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/httpapi"
)

// admission is decided by the headers of a request, before its body is read.
type admission struct {
	name  string // of the route in logs and metrics
	route *route // nil if none was found
	caller
	as403  bool // send refusals as 403; see sendAs403
	last   bool // the caller asked to close the connection
	broken bool // the connection must be closed, because of the request's framing or too many headers
	err    error
}

func (s *surface) identify(c *fasthttp.RequestCtx) {
	c.Response.Header.Set(httpapi.RequestIDHeader, requestID(&c.Request.Header))
}

func (s *surface) admit(c *fasthttp.RequestCtx) (a admission) {
	h := &c.Request.Header
	a.name = unmatched
	a.as403 = asksFor403(h.RequestURI())
	defer func() {
		if cause := recover(); cause != nil {
			s.logPanic(c, cause)
			a.err = httpapi.Failure()
		}
	}()
	if a.last, a.err = checkFraming(h); a.err != nil {
		a.broken = true
		return a
	}
	if a.route, a.err = s.find(c); a.err != nil {
		a.last = a.last || errors.Is(a.err, errTarget)
		return a
	}
	a.name = a.route.path
	if a.route.permission != "" {
		if a.caller, a.err = s.authorize(c, a.route); a.err != nil || a.route.asksForVisitor {
			return a
		}
	}
	if a.route.readsBody() {
		a.err = requireJSON(h)
	}
	if h.ContentLength() > a.route.maxBody {
		a.err = bodyTooLarge()
	}
	return a
}

func requireJSON(h *fasthttp.RequestHeader) error {
	contentType, encoding := h.ContentType(), h.ContentEncoding()
	if string(contentType) == jsonType && len(encoding) == 0 {
		return nil // parsing allocates, and few callers need it
	}
	return httpapi.RequireJSON(string(contentType), string(encoding))
}

func (s *surface) finish(c *fasthttp.RequestCtx, a *admission) {
	s.answerObserved(c, a, func() error {
		if a.err != nil {
			return a.err
		}
		return a.route.handler(c, a.caller)
	})
}

func (s *surface) recoverPanic(m *memory) {
	if cause := recover(); cause != nil {
		s.logPanic(m.ctx, cause)
	}
}

func (s *surface) logPanic(c *fasthttp.RequestCtx, cause any) {
	defer func() { _ = recover() }() // the request may be invalid
	s.telemetry.LogPanic(context.Background(), s.routeOf(&c.Request.Header), details{c}, cause)
}

func (s *surface) routeOf(h *fasthttp.RequestHeader) string {
	if r := s.routeAt(pathOf(h)); r != nil {
		return r.path
	}
	return unmatched
}

func (s *surface) answerObserved(c *fasthttp.RequestCtx, a *admission, answer func() error) {
	inFlight := s.telemetry.Begin(a.name, details{c})
	defer func() { inFlight.End(c, c.Response.StatusCode()) }()
	s.answer(c, answer)
	if a.as403 {
		sendAs403(c)
	}
}

type details struct{ c *fasthttp.RequestCtx }

func (d details) Method() string                   { return methodOf(&d.c.Request.Header) }
func (d details) RequestHeader(name string) string { return string(d.c.Request.Header.Peek(name)) }
func (d details) RequestID() string                { return requestIDOf(d.c) }

func (s *surface) answer(c *fasthttp.RequestCtx, handler func() error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.logPanic(c, cause)
			writeProblem(c, httpapi.Failure())
		}
	}()
	if err := handler(); err != nil {
		s.refuse(c, err)
	}
}

func (s *surface) refuse(c *fasthttp.RequestCtx, err error) {
	var p *httpapi.Problem
	if !errors.As(err, &p) {
		s.Log.ErrorContext(c, "request failed", "request_id", requestIDOf(c), "method", methodOf(&c.Request.Header),
			"route", s.routeOf(&c.Request.Header), "error", err)
		p = httpapi.Failure()
	}
	writeProblem(c, p)
}

func writeProblem(c *fasthttp.RequestCtx, p *httpapi.Problem) {
	h := &c.Response.Header
	h.Set("Cache-Control", "no-store")
	switch p.Kind {
	case httpapi.Unauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="sluice"`)
	case httpapi.Unavailable:
		h.Set("Retry-After", "1")
	}
	write(c, p.Status, httpapi.ProblemType, p.Append(nil, requestIDOf(c)))
}

// write sets the answer, which must not change until it is written. fasthttp's pool would drop large bodies, and
// answers of mixed sizes would allocate.
func write(c *fasthttp.RequestCtx, status int, contentType string, body []byte) {
	c.Response.SetStatusCode(status)
	c.Response.Header.SetContentType(contentType)
	c.Response.SetBodyRaw(body)
}

func requestID(h *fasthttp.RequestHeader) string {
	sent := h.PeekAll(httpapi.RequestIDHeader)
	if len(sent) != 1 {
		return httpapi.ChooseRequestID()
	}
	return httpapi.ChooseRequestID(string(sent[0]))
}

func requestIDOf(c *fasthttp.RequestCtx) string {
	return string(c.Response.Header.Peek(httpapi.RequestIDHeader))
}
