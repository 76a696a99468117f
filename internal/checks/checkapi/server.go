package checkapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/shares"
)

const (
	reserveTimeout = time.Second
	// lastRequests is for requests that are on their way during a shutdown, whose answer then announces the end.
	lastRequests = 250 * time.Millisecond
	maxFields    = 100 // of headers
	// Pools keep answers to batches of a hundred.
	keptBody   = 16 << 10
	keptAnswer = 128 << 10
	// keptHeaders: fasthttp keeps the longest header of each position, so an anonymous caller could pin 100 of 16 KiB.
	keptHeaders  = 32 << 10
	spentHeaders = keptHeaders + 1
)

// Server uses fasthttp's reader and writer, because net/http costs more than the rest of a check. Server manages
// connections itself, because fasthttp's server reads a body before the key can be checked, and cannot evict
// connections.
type Server struct {
	surface                                *surface
	readTimeout, writeTimeout, idleTimeout time.Duration
	began                                  time.Time
	open                                   connections
	bodies                                 *shares.Budget // of large requests and answers

	mu       sync.Mutex
	closing  atomic.Bool // set under mu
	closed   bool
	listener net.Listener
	serving  sync.WaitGroup // connections; added to under mu
	warned   time.Time      // when the log was last warned; only Serve's goroutine uses it
}

// NewServer returns a server that does not listen yet.
func NewServer(c Config) *Server {
	// The setting is global; the process uses fasthttp only here.
	fasthttp.SetBodySizePoolLimit(keptBody, keptAnswer)
	s := newSurface(c)
	return &Server{
		surface: s, began: time.Now(),
		readTimeout: httpapi.ReadTimeout, writeTimeout: httpapi.WriteTimeout, idleTimeout: httpapi.IdleTimeout,
		open:   connections{limit: s.MaxConnections, all: map[*conn]struct{}{}, reserveOf: map[netip.Prefix]int{}},
		bodies: shares.NewBudget(shares.BudgetLimits{Bytes: maxHeld, PerTenant: maxHeldShare}),
	}
}

// Handle answers one request without a connection, for benchmarks.
func (s *Server) Handle(c *fasthttp.RequestCtx) {
	s.surface.identify(c)
	a := s.surface.admit(c)
	s.surface.finish(c, &a)
}

// Connections are counts of a server's connections.
type Connections struct {
	Open             int
	Refused, Evicted int64 // since the start: refused over the limit, and closed to make room
}

// Connections returns the present counts.
func (s *Server) Connections() Connections {
	return Connections{s.open.open(), s.open.refused.Load(), s.open.evicted.Load()}
}

// Serve returns http.ErrServerClosed after Shutdown or Close.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	if s.closing.Load() {
		s.mu.Unlock()
		return errors.Join(http.ErrServerClosed, l.Close())
	}
	s.listener = l
	s.serving.Add(1) // Shutdown must wait for the last accepted connection
	s.mu.Unlock()
	defer s.serving.Done()
	for {
		accepted, err := s.accept(l)
		switch {
		case err == nil:
			start := func() error { s.start(accepted); return nil }
			if panics.Do(s.surface.Log, "a new connection", start) != nil {
				_ = accepted.Close()
			}
		case s.closing.Load():
			return http.ErrServerClosed
		default:
			return fmt.Errorf("accept connections for checks: %w", err)
		}
	}
}

// accept backs off while the process is out of file descriptors.
func (s *Server) accept(l net.Listener) (net.Conn, error) {
	const longest = time.Second
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, longest) {
		accepted, err := l.Accept()
		var network net.Error
		if err == nil || !errors.As(err, &network) ||
			!network.Temporary() { //nolint:staticcheck // net/http uses it too
			return accepted, err //nolint:wrapcheck // Serve wraps it
		}
		s.surface.Log.Warn("connections cannot be accepted; retrying", "error", err, "wait", wait)
		s.open.makeRoom(time.Now())
		<-time.After(wait)
	}
}

func (s *Server) start(accepted net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = accepted.Close()
		return
	}
	now := time.Now()
	c := s.newConn(accepted, now)
	before := s.open.evicted.Load()
	standing := s.open.add(c, now)
	if standing != admitted || s.open.evicted.Load() > before {
		s.warn(now)
	}
	switch standing {
	case rejected:
		c.reject()
		return
	case reserved:
		c.readTimeout = reserveTimeout
	case admitted:
	}
	s.serving.Add(1)
	panics.Go(s.surface.Log, "a connection", func() {
		defer s.serving.Done()
		err := panics.Do(s.surface.Log, "a connection", func() error { c.serve(); return nil })
		if err != nil {
			_ = c.raw.Close()
			s.open.remove(c)
		}
	})
}

func (s *Server) warn(now time.Time) {
	if now.Sub(s.warned) < warnEvery {
		return
	}
	s.warned = now
	count := s.Connections()
	s.surface.Log.Warn("the limit of connections is reached: the longest idle are closed for new ones; "+
		"if these are your callers, raise SLUICE_CHECK_MAX_CONNECTIONS",
		"limit", s.open.limit, "evicted_total", count.Evicted, "refused_total", count.Refused)
}

// Shutdown waits until the requests in flight are answered or ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.closeListener()
	served := make(chan struct{})
	panics.Go(s.surface.Log, "the end of checks", func() {
		defer close(served)
		s.serving.Wait()
	})
	late := time.NewTicker(lastRequests)
	defer late.Stop()
	for waits := true; waits; {
		select {
		case <-served:
			waits = false
		case <-late.C:
			end, isBounded := ctx.Deadline()
			s.open.closeLate(time.Now(), isBounded && time.Until(end) < slowCaller)
		case <-ctx.Done():
			err, waits = errors.Join(err, ctx.Err()), false
		}
	}
	if err != nil {
		return fmt.Errorf("wait for the last checks: %w", err)
	}
	return nil
}

// Close closes the listener and all connections.
func (s *Server) Close() error {
	err := s.closeListener()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.open.closeAll()
	return err
}

func (s *Server) closeListener() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing.Store(true)
	if s.listener == nil {
		return nil
	}
	l := s.listener
	s.listener = nil
	return l.Close() //nolint:wrapcheck // its text names the listener
}

func unreadProblem(err error, timedOut bool) error {
	var headers *fasthttp.ErrSmallBuffer
	switch {
	case timedOut:
		return httpapi.TooSlow.Problem(fmt.Sprintf("Send a request within %v.", httpapi.ReadTimeout))
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		return bodyTooLarge()
	case errors.As(err, &headers):
		return headersTooLarge()
	case errors.Is(err, io.ErrUnexpectedEOF):
		return httpapi.BrokenBody()
	}
	return badHTTP()
}

func bodyTooLarge() error {
	return httpapi.TooLarge.Problem(fmt.Sprintf("Send at most %d bytes, and to %s and %s %d.", checkjson.MaxBody,
		batchPath, leasesPath, checkjson.MaxBatchBody))
}

func headersTooLarge() error {
	return httpapi.HeaderTooLarge.Problem(fmt.Sprintf("Send at most %d headers, of %d bytes together.", maxFields,
		httpapi.MaxHeaderBytes))
}

func badHTTP() error {
	return httpapi.InvalidRequest.Problem(
		"Send a request of HTTP/1.0 or 1.1, with a Host, headers as RFC 9110 has them, and one " +
			"Content-Length or Transfer-Encoding: chunked.")
}
