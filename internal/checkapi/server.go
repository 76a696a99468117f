package checkapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
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
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10 // each connection holds as much memory
)

// Server answers the whole surface, by HTTP/1.1. It stands on fasthttp rather than net/http, which costs a check
// more than all that Sluice does for it: a goroutine that watches for callers who leave, a context, and maps of headers.
type Server struct {
	surface *surface
	http    *fasthttp.Server
}

// NewServer returns a server that does not listen yet.
func NewServer(c Config) *Server {
	s := newSurface(c)
	return &Server{s, &fasthttp.Server{
		Handler:            s.serve,
		ErrorHandler:       s.refuseUnread,
		HeaderReceived:     s.limits,
		ReadTimeout:        readTimeout,
		WriteTimeout:       writeTimeout,
		IdleTimeout:        idleTimeout,
		ReadBufferSize:     maxHeaderBytes,
		MaxRequestBodySize: maxBody,
		CloseOnShutdown:    true,
		// fasthttp reports broken connections and the like; none of it needs an operator.
		Logger:                       slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
		SecureErrorLogMessage:        true, // headers hold keys
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
	}}
}

// Handle answers one request. Serve calls it.
func (s *Server) Handle(c *fasthttp.RequestCtx) { s.surface.serve(c) }

// Serve answers until Shutdown.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(lingerer{l}); err != nil {
		return fmt.Errorf("answer checks: %w", err)
	}
	return nil
}

// Shutdown takes no new connection and waits for the requests under way, or until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.ShutdownWithContext(ctx); err != nil {
		return fmt.Errorf("wait for the last checks: %w", err)
	}
	return nil
}

// limits says how large a request's body may be. Bodies are read before anything looks at them, so only
// somebody who may send batches may make us hold one.
func (s *surface) limits(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if path, _, _ := bytes.Cut(h.RequestURI(), []byte("?")); string(path) == batchPath {
		if _, err := s.authorize(h, rules.PermissionCheck); err == nil {
			return fasthttp.RequestConfig{MaxRequestBodySize: maxBatchBody}
		}
	}
	return fasthttp.RequestConfig{MaxRequestBodySize: maxBody}
}

// refuseUnread answers a request that could not be read. Its connection is closed after the answer.
func (s *surface) refuseUnread(c *fasthttp.RequestCtx, err error) {
	if conn, ok := c.Conn().(*lingering); ok {
		conn.unread.Store(true)
	}
	name := unmatched
	if errors.Is(err, fasthttp.ErrBodyTooLarge) {
		name, _ = s.find(c) // fasthttp has forgotten it of a body in chunks
	}
	s.surround(c, name, func(c *fasthttp.RequestCtx) error { return s.whyUnread(c, err) })
}

func (s *surface) whyUnread(c *fasthttp.RequestCtx, err error) error {
	var headers *fasthttp.ErrSmallBuffer
	var network net.Error
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		if string(c.URI().PathOriginal()) == batchPath {
			if _, err := s.authorize(&c.Request.Header, rules.PermissionCheck); err != nil {
				return err
			}
		}
		return httpapi.TooLarge.Problem(fmt.Sprintf("Send at most %d bytes, and to %s %d.", maxBody, batchPath, maxBatchBody))
	case errors.As(err, &headers):
		return httpapi.HeaderTooLarge.Problem(fmt.Sprintf("Send at most %d bytes of headers.", maxHeaderBytes))
	case errors.As(err, &network) && network.Timeout():
		return httpapi.TooSlow.Problem(fmt.Sprintf("Send a request within %v.", readTimeout))
	case errors.Is(err, io.ErrUnexpectedEOF):
		return httpapi.BrokenBody()
	}
	return httpapi.InvalidRequest.Problem("Send a request of HTTP/1.1, with a Host, names and values of headers that RFC 9110 " +
		"allows, and one Content-Length or chunks.")
}

// lingerer accepts connections that close as lingering does.
type lingerer struct{ net.Listener }

func (l lingerer) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
		return &lingering{TCPConn: tcp}, nil
	}
	return conn, err //nolint:wrapcheck // the server must see the listener's own errors
}

// lingering is a connection. If it closes with a request unread, its caller gets a moment to see why: a connection that
// closes with bytes to read is reset, which can take the answer with it (RFC 9112 section 9.6).
type lingering struct {
	*net.TCPConn
	unread atomic.Bool
}

const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 16 << 20
)

func (l *lingering) Close() error {
	if l.unread.Load() {
		_ = l.CloseWrite()
		_ = l.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, l.TCPConn, lingerBytes)
	}
	return l.TCPConn.Close() //nolint:wrapcheck // the server must see the connection's own errors
}
