package sluice

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// forwarder forwards connections, and can make the open ones hang.
type forwarder struct {
	net.Listener
	target string
	lost   atomic.Pointer[atomic.Bool] // of the connections that were accepted since the last loss
}

func newForwarder(t *testing.T, target string) *forwarder {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{Listener: listener, target: target}
	f.lost.Store(new(atomic.Bool))
	t.Cleanup(func() { _ = listener.Close() })
	go f.serve()
	return f
}

func (f *forwarder) lose() { f.lost.Swap(new(atomic.Bool)).Store(true) }

func (f *forwarder) serve() {
	for {
		from, err := f.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", f.target)
		if err != nil {
			_ = from.Close()
			continue
		}
		lost := f.lost.Load()
		go forward(to, from, lost)
		go forward(from, to, lost)
	}
}

func forward(to, from net.Conn, lost *atomic.Bool) {
	defer to.Close()
	for memory := make([]byte, 32<<10); ; {
		n, err := from.Read(memory)
		if err != nil {
			return
		}
		if lost.Load() {
			continue
		}
		if _, err := to.Write(memory[:n]); err != nil {
			return
		}
	}
}

func TestAConnectionThatIsSilentlyLostIsReplaced(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":200,"allowed":true}`)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	between := newForwarder(t, server.Listener.Addr().String())
	client := newTestClient(t, Config{URL: "https://" + between.Addr().String(), Timeout: 250 * time.Millisecond})
	client.own.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
	reach := func(when string) {
		t.Helper()
		for deadline := time.Now().Add(testTimeout); ; runtime.Gosched() {
			decision, err := client.Check(t.Context(), Check{})
			if err != nil {
				t.Fatal(err)
			}
			if decision.Source == FromServer {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s no check reaches the server: %v", when, decision.Err)
			}
		}
	}
	reach("at first")
	between.lose()
	reach("after the loss")
}
