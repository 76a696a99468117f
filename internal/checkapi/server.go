package checkapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// The limits of a connection. They hold off callers that are slow on purpose; a caller that means
// well is far from all of them.
const (
	readTimeout  = 10 * time.Second // from a request's first byte to its last
	writeTimeout = 30 * time.Second
	// idleTimeout is above the 60 s after which common load balancers drop their side, so that
	// they never send into a connection that is closing here.
	idleTimeout = 2 * time.Minute
	// silentGrace is how long a shutdown waits for the first request of a connection.
	silentGrace = 250 * time.Millisecond
	// maxConnections are answered at once; whoever comes then is told 503. An idle one holds about 24 KiB, and what is kept.
	maxConnections = 16 << 10
	maxHeaderBytes = 16 << 10
	maxFields      = 100 // of headers
	// The memory of bodies of these sizes is kept for the next request of a connection: of batches of a hundred. Only who
	// has a key is given large answers.
	keptBody   = 16 << 10
	keptAnswer = 128 << 10
)

// Server answers the whole surface, by HTTP/1.1. It stands on fasthttp rather than net/http, which costs a check
// more than all that Sluice does for it: a goroutine that watches for callers who leave, a context, and maps of headers.
// What net/http is stricter or kinder in, and matters to somebody who asks for checks, is added here, in conn and in framing.
type Server struct {
	surface *surface
	http    *fasthttp.Server

	mu       sync.Mutex
	closing  atomic.Bool // set under mu
	listener *listener   // nil until Serve
	conns    map[*conn]struct{}
}

// NewServer returns a server that does not listen yet.
func NewServer(c Config) *Server {
	s := newSurface(c)
	// It is one setting for the process, which has no other fasthttp.
	fasthttp.SetBodySizePoolLimit(keptBody, keptAnswer)
	server := &Server{surface: s, conns: map[*conn]struct{}{}}
	server.http = &fasthttp.Server{
		Handler:                      server.Handle,
		ErrorHandler:                 s.refuseUnread,
		HeaderReceived:               s.limits,
		ExpectHandler:                allowBody,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		ReadBufferSize:               maxHeaderBytes,
		MaxRequestBodySize:           maxBody,
		Concurrency:                  maxConnections,
		Logger:                       driverLog{c.Log},
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
	}
	return server
}

// driverLog is fasthttp's log. It would quote what it cannot read, keys included, so one line alone is passed on.
type driverLog struct{ log *slog.Logger }

func (l driverLog) Printf(format string, _ ...any) {
	if strings.Contains(format, "concurrent connections are served") { // at most once a minute
		l.log.Warn("connections are refused", "most", maxConnections)
	}
}

// Handle answers one request, as for those that Serve reads. Benchmarks need no connection.
func (s *Server) Handle(c *fasthttp.RequestCtx) {
	s.surface.serve(c)
	if s.closing.Load() {
		c.SetConnectionClose()
	}
}

// Serve answers until Shutdown or Close, and returns http.ErrServerClosed then, as a server of net/http does.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closing.Load() {
		s.mu.Unlock()
		return errors.Join(http.ErrServerClosed, l.Close())
	}
	s.listener = &listener{Listener: l, server: s}
	s.mu.Unlock()
	if err := s.http.Serve(s.listener); err != nil {
		return fmt.Errorf("answer checks: %w", err)
	}
	return http.ErrServerClosed
}

// Shutdown takes no new connection and waits for the requests under way, or until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.closeListener()
	if silent := s.silent(); len(silent) > 0 { // fasthttp would wait for them; some may be about to speak
		select {
		case <-time.After(silentGrace):
		case <-ctx.Done():
		}
		for _, c := range silent {
			if !c.spoke.Load() {
				_ = c.Conn.Close()
			}
		}
	}
	if err = errors.Join(err, s.http.ShutdownWithContext(ctx)); err != nil {
		return fmt.Errorf("wait for the last checks: %w", err)
	}
	return nil
}

// Close cuts all connections.
func (s *Server) Close() error {
	err := s.closeListener()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Conn.Close()
	}
	return err
}

func (s *Server) closeListener() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing.Store(true)
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

// silent returns the connections that have sent nothing yet.
func (s *Server) silent() (silent []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if !c.spoke.Load() {
			silent = append(silent, c)
		}
	}
	return silent
}

// limits says how large a request's body may be, and leaves an Expect only where a body is to be waited for. Bodies are
// read before anything looks at them, so only somebody who may send batches may make us hold one.
func (s *surface) limits(h *fasthttp.RequestHeader) (c fasthttp.RequestConfig) {
	c.MaxRequestBodySize = maxBody
	defer s.survive(h)
	length := h.ContentLength() // negative for chunks, and where there is no body
	if (length < 0 || length > maxBody) && string(pathOf(h)) == batchPath {
		if _, err := s.authorize(h, rules.PermissionCheck); err == nil {
			c.MaxRequestBodySize = maxBatchBody
		}
	}
	if expect := h.Peek("Expect"); len(expect) > 0 {
		wanted := length == -1 || 0 < length && length <= c.MaxRequestBodySize
		if h.Del("Expect"); wanted && h.IsHTTP11() && bytes.EqualFold(expect, []byte("100-continue")) {
			h.Set("Expect", "100-continue") // fasthttp knows no other spelling
		}
	}
	return c
}

// allowBody lets a caller who waits for it send its body.
func allowBody(c *fasthttp.RequestCtx) int {
	allowWrite(c)
	return http.StatusContinue
}

// allowWrite gives an answer its time where fasthttp does not: it would have what is left of that of the
// connection's last.
func allowWrite(c *fasthttp.RequestCtx) {
	_ = c.Conn().SetWriteDeadline(time.Now().Add(writeTimeout))
}

// refuseUnread answers a request that could not be read. Its connection is closed after the answer.
func (s *surface) refuseUnread(c *fasthttp.RequestCtx, err error) {
	defer s.survive(&c.Request.Header)
	var network net.Error
	conn, _ := c.Conn().(*conn)
	if errors.As(err, &network) && (!network.Timeout() || conn != nil && !conn.spoke.Load()) {
		_ = c.Conn().Close() // nobody is there, or nobody has asked
		return
	}
	allowWrite(c)
	linger(c)
	c.Response.SkipBody = c.IsHead()
	name := unmatched
	if errors.Is(err, fasthttp.ErrBodyTooLarge) {
		name = s.routeOf(&c.Request.Header) // which fasthttp has forgotten of any body that was begun
	}
	s.surround(c, name, func(c *fasthttp.RequestCtx) error { return s.whyUnread(c, err) })
}

func (s *surface) whyUnread(c *fasthttp.RequestCtx, err error) error {
	var headers *fasthttp.ErrSmallBuffer
	var network net.Error
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		if string(pathOf(&c.Request.Header)) == batchPath {
			if _, err := s.authorize(&c.Request.Header, rules.PermissionCheck); err != nil {
				return err
			}
		}
		return httpapi.TooLarge.Problem(fmt.Sprintf("Send at most %d bytes, and to %s %d.", maxBody, batchPath, maxBatchBody))
	case errors.As(err, &headers):
		return headersTooLarge()
	case errors.As(err, &network): // it took too long
		return httpapi.TooSlow.Problem(fmt.Sprintf("Send a request within %v.", readTimeout))
	case errors.Is(err, io.ErrUnexpectedEOF):
		return httpapi.BrokenBody()
	}
	return badHTTP()
}

func headersTooLarge() error {
	return httpapi.HeaderTooLarge.Problem(fmt.Sprintf("Send at most %d headers, of %d bytes together.", maxFields, maxHeaderBytes))
}

func badHTTP() error {
	return httpapi.InvalidRequest.Problem("Send a request of HTTP/1.0 or 1.1, with a Host, headers as RFC 9110 has them, and one " +
		"Content-Length or Transfer-Encoding: chunked.")
}
