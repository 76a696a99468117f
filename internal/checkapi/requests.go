package checkapi

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/httpapi"
)

// serve answers a request that was read.
func (s *surface) serve(c *fasthttp.RequestCtx) {
	h := &c.Request.Header
	defer s.survive(h)
	name, handler := s.find(c)
	last, err := framing(h)
	if last {
		c.SetConnectionClose()
	}
	if err != nil {
		linger(c)
		name, handler = unmatched, func(*fasthttp.RequestCtx) error { return err }
	}
	s.surround(c, name, handler)
}

// survive keeps a panic from ending the process; fasthttp recovers from none. Those of handlers are answered before.
func (s *surface) survive(h *fasthttp.RequestHeader) {
	if cause := recover(); cause != nil {
		s.logPanic(h, "", cause)
	}
}

func (s *surface) logPanic(h *fasthttp.RequestHeader, requestID string, cause any) {
	defer func() { _ = recover() }() // the log's own
	s.Log.Error("panic", "request_id", requestID, "method", methodOf(h), "route", s.routeOf(h),
		"cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
}

// routeOf is what may be logged of a path.
func (s *surface) routeOf(h *fasthttp.RequestHeader) string {
	if r, found := s.routes[string(pathOf(h))]; found {
		return r.path
	}
	return unmatched
}

// surround has a request answered, and tells the log and the Observer of it. It does for this surface what
// httpapi.Requests does for those of net/http.
func (s *surface) surround(c *fasthttp.RequestCtx, route string, handler handler) {
	start := time.Now()
	c.Response.Header.Set(httpapi.RequestIDHeader, requestID(&c.Request.Header))
	defer func() {
		took, status := time.Since(start), c.Response.StatusCode()
		if s.Observer != nil {
			s.Observer.RequestAnswered(route, status, took)
		}
		if s.Log.Enabled(c, slog.LevelDebug) {
			s.Log.DebugContext(c, "request", "request_id", requestIDOf(c), "method", methodOf(&c.Request.Header),
				"route", route, "status", status, "took", took)
		}
	}()
	s.answer(c, handler)
}

// answer runs the handler and answers with its error, or with its panic.
func (s *surface) answer(c *fasthttp.RequestCtx, handler handler) {
	defer func() {
		if cause := recover(); cause != nil {
			s.logPanic(&c.Request.Header, requestIDOf(c), cause)
			writeProblem(c, httpapi.Failure())
		}
	}()
	if err := handler(c); err != nil {
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

// write sends an answer. It copies the body.
func write(c *fasthttp.RequestCtx, status int, contentType string, body []byte) {
	c.Response.SetStatusCode(status)
	c.Response.Header.SetContentType(contentType)
	c.Response.SetBody(body)
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
