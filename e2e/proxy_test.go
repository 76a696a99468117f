package e2e_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a process and a server, and can lose replies or move to another server.
type proxy struct {
	net.Listener
	silent     atomic.Bool // swallows every reply
	cutsScript atomic.Bool // breaks the connection of the next script when its reply comes, once

	mu     sync.Mutex
	server string
	conns  map[net.Conn]bool // nil when closed
}

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, server: server, conns: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.closeAll()
		serving.Wait()
	})
	return p
}

func (p *proxy) moveTo(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func (p *proxy) url(t *testing.T, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.Addr().String()
	return u.String()
}

func (p *proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	p.mu.Lock()
	address := p.server
	p.mu.Unlock()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !p.keep(client, server) {
		return
	}
	defer p.drop(client, server)
	var cut atomic.Bool
	var replies sync.WaitGroup
	replies.Go(func() {
		_, _ = io.Copy(writer(func(b []byte) (int, error) {
			switch {
			case cut.Load():
				return 0, net.ErrClosed
			case p.silent.Load():
				return len(b), nil
			}
			return client.Write(b)
		}), server)
		_ = client.Close()
	})
	_, _ = io.Copy(writer(func(b []byte) (int, error) {
		if bytes.Contains(bytes.ToUpper(b), []byte("EVAL")) && p.cutsScript.CompareAndSwap(true, false) {
			cut.Store(true)
		}
		return server.Write(b)
	}), client)
	_ = server.Close()
	replies.Wait()
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		if p.conns != nil {
			p.conns[conn] = true
		}
	}
	return p.conns != nil
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.conns, conn)
	}
}

func (p *proxy) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			continue // it is closed all the same
		}
	}
	p.conns = nil
}
