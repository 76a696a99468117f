package checkapi

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// listener accepts connections for a server.
type listener struct {
	net.Listener
	server *Server
	closed sync.Once
}

// Close closes it, once: fasthttp does so too.
func (l *listener) Close() (err error) {
	l.closed.Do(func() { err = l.Listener.Close() })
	return err
}

// Accept waits while the process has no room for another connection, which fasthttp would end for.
func (l *listener) Accept() (net.Conn, error) {
	const longest = time.Second
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, longest) {
		accepted, err := l.Listener.Accept()
		if err == nil {
			return l.server.track(accepted)
		}
		var network net.Error
		if !errors.As(err, &network) || !network.Temporary() { //nolint:staticcheck // net/http asks it too; there is no other word for it
			return nil, err //nolint:wrapcheck // fasthttp looks at its text
		}
		l.server.surface.Log.Warn("connections cannot be accepted; trying again", "error", err, "wait", wait)
		<-time.After(wait)
	}
}

// track makes a connection one of the server's.
func (s *Server) track(accepted net.Conn) (net.Conn, error) {
	c := &conn{Conn: accepted, server: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		_ = accepted.Close()
		return nil, net.ErrClosed
	}
	s.conns[c] = struct{}{}
	return c, nil
}

// conn is one connection.
type conn struct {
	net.Conn
	server *Server
	spoke  atomic.Bool // something came
	unread atomic.Bool // a request that was not read to its end was answered
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.spoke.Load() {
		c.spoke.Store(true)
	}
	return n, err //nolint:wrapcheck // the server must see the connection's own errors
}

const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 16 << 20
)

// Close gives a caller whose request was not read a moment to see why: a connection that closes with bytes to read
// is reset, which can take the answer with it (RFC 9112 section 9.6).
func (c *conn) Close() error {
	c.server.mu.Lock()
	delete(c.server.conns, c)
	c.server.mu.Unlock()
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.unread.Load() {
		_ = half.CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
	}
	return c.Conn.Close() //nolint:wrapcheck // the server must see the connection's own errors
}

// linger ends a request's connection after the answer, without expecting that all of the request was read.
func linger(c *fasthttp.RequestCtx) {
	c.SetConnectionClose()
	if conn, ok := c.Conn().(*conn); ok {
		conn.unread.Store(true)
	}
}
