package redisbucket

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

type proxy struct {
	listener  net.Listener
	target    atomic.Value // string
	loseReply atomic.Bool
	passes    atomic.Int64 // replies before it is lost
	lost      atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener}
	p.target.Store(target)
	p.wg.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *proxy) serve() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.target.Load().(string))
		if err != nil {
			_ = near.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, near, far)
		p.mu.Unlock()
		p.wg.Go(func() {
			_, _ = io.Copy(far, near)
			_ = far.Close()
		})
		p.wg.Go(func() { p.replies(near, far) })
	}
}

func (p *proxy) replies(near, far net.Conn) {
	defer func() { _ = near.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := far.Read(buf)
		if err != nil {
			return
		}
		if p.loseReply.Load() && p.passes.Add(-1) < 0 && p.loseReply.Swap(false) {
			p.lost.Add(1)
			return
		}
		if _, err := near.Write(buf[:n]); err != nil {
			return
		}
	}
}
