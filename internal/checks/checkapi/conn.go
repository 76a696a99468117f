package checkapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/checks/door"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/shares"
)

// conn is served by one goroutine; others change its state and close it.
type conn struct {
	net.Conn          // perhaps a *tls.Conn
	raw      net.Conn // closes at once: a *tls.Conn waits to say that it closes, up to 5 s
	server   *Server
	network  netip.Prefix // see connections.evict
	reserved bool         // over the limit: one answer, 503 except for health probes

	state  atomic.Int64 // a connState
	tenant atomic.Int64 // the rules.TenantID whose key it showed last, or 0

	*memory
	readTimeout time.Duration
	// timed: the deadline of a begun request was set, at the first read that waits, because most come in one packet.
	begun, timed                bool
	readErr                     error // the last error of the connection itself, which fasthttp does not always wrap
	unread                      bool  // the connection ends with bytes left to read
	held                        int
	holder                      shares.Caller
	readDeadline, writeDeadline time.Time
}

type memory struct {
	ctx     *fasthttp.RequestCtx
	headers int           // bytes of headers that ctx has read; see keptHeaders
	in      *bufio.Reader // a request's headers must fit into it
	out     *bufio.Writer
}

var memories = sync.Pool{New: func() any {
	return &memory{ctx: newCtx(), in: bufio.NewReaderSize(nil, httpapi.MaxHeaderBytes), out: bufio.NewWriter(nil)}
}}

func newCtx() *fasthttp.RequestCtx {
	ctx := new(fasthttp.RequestCtx)
	ctx.Init2(nil, nil, true) // an idle connection holds no body
	return ctx
}

func (m *memory) reset() {
	if m.headers > keptHeaders {
		peer := m.ctx.RemoteAddr()
		m.ctx, m.headers = newCtx(), 0
		m.ctx.SetRemoteAddr(peer)
		return
	}
	m.ctx.Request.Reset()
	m.ctx.Response.Reset()
}

func (s *Server) newConn(accepted net.Conn, now time.Time) *conn {
	c := &conn{
		Conn: accepted, raw: rawConn(accepted), server: s, network: door.NetworkOf(accepted.RemoteAddr()),
		readTimeout: s.readTimeout,
	}
	c.state.Store(int64(stateOf(silent, now.Sub(s.began))))
	return c
}

func rawConn(c net.Conn) net.Conn {
	if secured, ok := c.(*tls.Conn); ok {
		return secured.NetConn()
	}
	return c
}

// A connection can be evicted during its handshake like a silent one.
func (c *conn) handshake() error {
	secured, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.readTimeout)
	defer cancel()
	return secured.HandshakeContext(ctx) //nolint:wrapcheck // serve logs it
}

func (c *conn) serve() {
	if err := c.handshake(); err != nil {
		c.server.surface.Log.Debug("TLS handshake failed", "remote", c.RemoteAddr().String(), "error", err)
		_ = c.raw.Close()
		c.server.open.remove(c)
		return
	}
	c.memory = memories.Get().(*memory)
	c.ctx.SetRemoteAddr(c.RemoteAddr())
	c.in.Reset(c)
	c.out.Reset(c)
	defer c.end()
	defer c.server.surface.recoverPanic(c.memory)
	for c.awaitRequest() && c.serveRequest() {
		c.memory.reset()
		c.releaseBody()
	}
	_ = c.out.Flush()
}

// awaitRequest first flushes earlier answers, unless a request is already buffered.
func (c *conn) awaitRequest() bool {
	c.begun, c.timed = false, false
	if c.in.Buffered() > 0 {
		return true
	}
	if c.out.Flush() != nil {
		return false
	}
	now, timeout := time.Now(), c.readTimeout
	if connState(c.state.Load()).phase() != silent {
		timeout = c.server.idleTimeout
		if !c.enterAt(idle, now) {
			return false
		}
	}
	if c.server.closing.Load() { // without notice in the last answer
		timeout = lastRequests
	}
	if c.renew(&c.readDeadline, c.Conn.SetReadDeadline, now, timeout) != nil {
		return false
	}
	_, err := c.in.Peek(1)
	return err == nil && c.enter(busy)
}

func (c *conn) serveRequest() bool {
	ctx, s := c.ctx, c.server.surface
	h := &ctx.Request.Header
	c.begun = true
	ctx.Response.Header.SetNoDefaultContentType(true)
	switch err := h.Read(c.in); {
	case err == io.EOF: //nolint:errorlint // a wrapped one is half a request
		return false
	case err != nil:
		return c.refuseUnread(&admission{name: unmatched, as403: asksFor403(c.target())}, err)
	}
	c.headers += len(h.RequestURI()) + len(h.RawHeaders())
	s.identify(ctx)
	a := c.admit()
	length := h.ContentLength() // negative for chunks, and where there is no body
	rest := length == chunked || length > 0
	if a.err == nil && c.reserveBody(&a, length) && rest && a.route.readsBody() {
		if err := c.readBody(&a, length); err != nil {
			return c.refuseUnread(&a, err)
		}
		rest = false
	}
	// A small body that has come is discarded, so that a caller whose key has expired keeps its connection. An
	// announced body may never come: a proxy that drops it without its Content-Length would lose its next request.
	drain := rest && !a.last && 0 < length && length <= min(checkjson.MaxBody, c.in.Buffered())
	c.unread = rest && !drain || a.broken
	if !c.enter(busy) {
		return false
	}
	s.finish(ctx, &a)
	c.countAnswer()
	if !c.respond(a.last || c.unread) {
		c.unread = c.unread || drain
		return false
	}
	if drain {
		_, _ = c.in.Discard(length)
	}
	return true
}

// target is for a request whose headers could not be read.
func (c *conn) target() []byte {
	read, _ := c.in.Peek(c.in.Buffered())
	line, _, whole := bytes.Cut(read, []byte("\n"))
	if parts := bytes.Split(line, []byte(" ")); whole && len(parts) > 1 {
		return parts[1]
	}
	return nil
}

const chunked = -1 // fasthttp's length of a body in chunks

// admit refuses all but health probes over the limit of connections.
func (c *conn) admit() admission {
	a := c.server.surface.admit(c.ctx)
	switch {
	case c.reserved:
		a.last = true
		if a.err == nil && a.route.permission != "" {
			a.err = tooManyConnections()
			if a.route.asksForVisitor {
				a.err = forVisitor(a.err)
			}
		}
	case a.tenant != nil:
		if id := int64(a.tenant.Tenant.ID); c.tenant.Load() != id {
			c.tenant.Store(id)
		}
	}
	return a
}

func (c *conn) readBody(a *admission, length int) error {
	h := &c.ctx.Request.Header
	if expect := h.Peek("Expect"); len(expect) > 0 && h.IsHTTP11() && c.in.Buffered() == 0 &&
		bytes.EqualFold(expect, []byte("100-continue")) {
		if !c.enterAt(writing, c.allowWrite()) {
			return net.ErrClosed
		}
		if _, err := c.out.WriteString("HTTP/1.1 100 Continue\r\n\r\n"); err != nil { // Read flushes it
			return err //nolint:wrapcheck // refuseUnread judges it
		}
	}
	if err := c.ctx.Request.ContinueReadBody(c.in, a.route.maxBody, false); err != nil {
		return err //nolint:wrapcheck // refuseUnread judges it
	}
	if length == chunked {
		c.headers = spentHeaders // the size of the trailers is unknown
		if h.Len() > maxFields {
			a.err, a.broken = headersTooLarge(), true
			return nil
		}
	}
	if c.timed { // the key may have been revoked, and the rules changed, while the body came
		a.caller, a.err = c.server.surface.authorize(c.ctx, a.route)
	}
	return nil
}

func (c *conn) respond(last bool) bool {
	ctx := c.ctx
	ctx.Response.SkipBody = ctx.IsHead()
	last = last || ctx.Request.Header.ConnectionClose() || c.server.closing.Load()
	switch {
	case last:
		ctx.Response.Header.SetConnectionClose()
	case !ctx.Request.Header.IsHTTP11():
		ctx.Response.Header.Set("Connection", "keep-alive")
	}
	c.unread = c.unread || last && c.in.Buffered() > 0 // of later requests
	now := c.allowWrite()
	return c.enterAt(writing, now) && c.write() == nil && !last
}

// write sends an answer beyond the buffer in one call with its headers, because the caller would wake up for the first
// part only to wait again.
func (c *conn) write() error {
	answer := &c.ctx.Response
	body := answer.Body()
	if len(body) < c.out.Available() || answer.SkipBody || c.raw != c.Conn {
		return answer.Write(c.out) //nolint:wrapcheck // the connection's own
	}
	if err := c.out.Flush(); err != nil {
		return err //nolint:wrapcheck // likewise
	}
	answer.Header.SetContentLength(len(body))
	parts := net.Buffers{answer.Header.AppendBytes(c.out.AvailableBuffer()), body}
	_, err := parts.WriteTo(c.Conn)
	return err //nolint:wrapcheck // likewise
}

func (c *conn) refuseUnread(a *admission, err error) bool {
	var network net.Error
	timedOut := errors.As(c.readErr, &network) && network.Timeout()
	if c.readErr != nil && !timedOut && !errors.Is(c.readErr, io.EOF) {
		return false
	}
	ctx, s := c.ctx, c.server.surface
	c.unread = true
	if ctx.Response.Header.Peek(httpapi.RequestIDHeader) == nil {
		s.identify(ctx)
	}
	if errors.Is(c.readErr, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if a.err = unreadProblem(err, timedOut); !c.enter(busy) {
		return false
	}
	s.finish(ctx, a)
	return c.respond(true)
}

func (c *conn) Read(b []byte) (n int, err error) {
	if c.begun {
		err = c.prepareWait()
	}
	if err == nil {
		n, err = c.Conn.Read(b)
	}
	if err != nil {
		c.readErr = err
	}
	return n, err //nolint:wrapcheck // the connection's own
}

// prepareWait comes before a read that waits for the rest of a request.
func (c *conn) prepareWait() error {
	if err := c.out.Flush(); err != nil {
		return err //nolint:wrapcheck // the connection's own
	}
	if c.timed {
		return nil
	}
	c.timed = true
	now := time.Now()
	if !c.enterAt(waiting, now) {
		return net.ErrClosed
	}
	return c.renew(&c.readDeadline, c.Conn.SetReadDeadline, now, c.readTimeout)
}

func (c *conn) allowWrite() time.Time {
	now := time.Now()
	_ = c.renew(&c.writeDeadline, c.Conn.SetWriteDeadline, now, c.server.writeTimeout) // on error the write fails
	return now
}

// renew leaves a deadline within a sixteenth of timeout, because setting one costs as much as reading the headers.
func (c *conn) renew(current *time.Time, set func(time.Time) error, now time.Time, timeout time.Duration) error {
	at := now.Add(timeout)
	if early := at.Sub(*current); 0 <= early && early <= timeout/16 {
		return nil
	}
	*current = at
	return set(at)
}

const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 16 << 20
)

// end waits a moment if bytes are unread, because closing then resets the connection and the caller may lose the answer
// (RFC 9112 section 9.6).
func (c *conn) end() {
	c.release()
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.unread && c.enterAt(waiting, time.Now()) {
		_ = half.CloseWrite()
		_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
	}
	_ = c.Conn.Close()
	c.server.open.remove(c)
}

// A refused request may have had thousands of headers.
func (c *conn) release() {
	c.releaseBody()
	m := c.memory
	c.memory = nil
	if c.unread {
		m.headers = spentHeaders
	}
	m.reset()
	m.in.Reset(nil)
	m.out.Reset(nil)
	memories.Put(m)
}

// reject answers 502, which proxies take for an outage, while a 503 is a rule's.
func (c *conn) reject() {
	problem := tooManyConnections()
	problem.Status = http.StatusBadGateway
	var answer fasthttp.Response
	answer.Header.SetContentType(httpapi.ProblemType)
	answer.Header.Set("Cache-Control", "no-store")
	answer.Header.Set("Retry-After", "1")
	answer.Header.SetConnectionClose()
	answer.SetStatusCode(problem.Status)
	answer.SetBodyRaw(problem.Append(nil, ""))
	_ = c.raw.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // the buffer of a new connection has room
	if c.raw == c.Conn {                                              // a handshake would take too long
		_, _ = answer.WriteTo(c.raw)
	}
	_ = c.raw.Close()
}

func tooManyConnections() *httpapi.Problem {
	return httpapi.Unavailable.Problem(
		"This process has reached its limit of connections. Try again in a second, keep connections open and " +
			"reuse them; operators raise SLUICE_CHECK_MAX_CONNECTIONS.")
}
