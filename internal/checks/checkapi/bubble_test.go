package checkapi_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/checks/checkapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// pipes are connections without a buffer, by the clock of a synctest bubble.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error   { close(l.closed); return nil }
func (l *pipes) Addr() net.Addr { return &net.TCPAddr{} }

type from struct {
	net.Conn
	addr string
}

func (c from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.addr), Port: 1} }

func (l *pipes) call(t *testing.T, addr string) *caller {
	t.Helper()
	client, server := net.Pipe()
	l.accepted <- from{server, addr}
	return &caller{t, client, bufio.NewReader(client)}
}

func inBubble(t *testing.T, maxConnections int, test func(t *testing.T, h *harness, l *pipes), with ...rules.Rule) {
	t.Helper()
	newHarness(t, rules.DefaultSettings()).post("/v1/check", `{}`) // starts fasthttp's clock, outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, rules.DefaultSettings(), with...)
		l := &pipes{make(chan net.Conn), make(chan struct{})}
		h.config.MaxConnections = maxConnections
		server := checkapi.NewServer(h.config)
		h.server = server
		stop := h.run(server, l)
		test(t, h, l)
		stop()
	})
}

func (c *caller) ends() time.Duration {
	c.Helper()
	began := time.Now()
	_, err := c.answers.ReadByte()
	if !errors.Is(err, io.EOF) {
		c.Errorf("the connection ended with %v", err)
	}
	return time.Since(began)
}

func (c *caller) get(path string) answer {
	c.Helper()
	c.send("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n")
	got := c.answer()
	synctest.Wait()
	return got
}

func (c *caller) check(key string) answer {
	c.Helper()
	c.send("POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: Bearer " + key +
		"\r\nContent-Length: 2\r\n\r\n{}")
	got := c.answer()
	synctest.Wait()
	return got
}

func wantOpen(t *testing.T, open, closed []*caller) {
	t.Helper()
	for i, c := range closed {
		if took := c.ends(); took > 0 {
			t.Errorf("connection %d of those to be closed was open for %s more", i, took)
		}
	}
	for i, c := range open {
		if _, err := io.WriteString(c.Conn, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Errorf("connection %d of those to stay open is closed", i)
			continue
		}
		c.answer().want(t, 200)
	}
}
