package checkapi_test

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sluicegate/sluice/internal/checks/checkapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestAConnectionIsUsedAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 1, "user:{user_id}", 1, 2))
	_, addr, _ := h.listen()
	c := call(t, addr)
	for _, want := range []int{200, 200, 429, 429} {
		c.send(requestTo("/v1/check", `{"user_id":"x"}`))
		c.answer().want(t, want)
	}
	c.send(requestTo("/v1/check", `{"user_id":"y"}`) + "GET /healthz HTTP/1.1\r\nHost: sluice\r\n\r\n" +
		requestTo("/v1/check", `{"user_id":"x"}`))
	for _, want := range []int{200, 200, 429} {
		c.answer().want(t, want)
	}
}

// nginx without proxy_pass_request_body announces a body and sends none: the next visitor's request would be taken for
// it.
func TestABodyThatOnlyWasAnnouncedEndsTheConnection(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	_, addr, _ := h.listen()
	const visitor = "GET /v1/authorize HTTP/1.1\r\nHost: a\r\n" + withKey + "Content-Length: 9\r\n\r\n"
	c := call(t, addr)
	c.send(visitor)
	if got := c.answer(); got.status != 200 || !got.last {
		t.Errorf("it is answered %d, and that the connection ends %t", got.status, got.last)
	}
	c.wantEnd()

	c = call(t, addr)
	for range 2 {
		c.send(visitor + "9 bytes.\n")
		if got := c.answer(); got.status != 200 || got.last {
			t.Errorf("with its body it is answered %d, and that the connection ends %t", got.status, got.last)
		}
	}
}

type fullListener struct {
	net.Listener
	refuse atomic.Int32
}

func (l *fullListener) Accept() (net.Conn, error) {
	if l.refuse.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

func TestTheServerOutlivesALackOfFileDescriptors(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	full := &fullListener{Listener: listener}
	full.refuse.Store(3)
	h.run(checkapi.NewServer(h.config), full)
	c := call(t, listener.Addr().String())
	c.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	c.answer().want(t, 200)
	if text := h.logText(); strings.Count(text, "level=WARN") != 3 {
		t.Errorf("the log is %s, want three warnings", text)
	}
}

func TestALackOfFileDescriptorsEndsTheLongestIdleConnection(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	h.config.MaxConnections = 16 // so that one is closed at a time
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	full := &fullListener{Listener: listener}
	h.run(checkapi.NewServer(h.config), full)
	ask := func(c *caller) {
		t.Helper()
		c.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
		c.answer().want(t, 200)
	}
	idle, other := call(t, listener.Addr().String()), call(t, listener.Addr().String())
	ask(other) // connections are accepted in order
	full.refuse.Store(1)
	ask(call(t, listener.Addr().String())) // by the Accept that waits already
	ask(call(t, listener.Addr().String()))
	idle.wantEnd()
	ask(other)
}

func TestConnectionsWithoutARequestAreNotCounted(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	h.logged.Set(slog.LevelDebug)
	_, addr, stop := h.listen()
	for _, linger := range []int{-1, 0} { // an end, and a reset
		c := call(t, addr)
		if err := errors.Join(c.Conn.(*net.TCPConn).SetLinger(linger), c.Close()); err != nil {
			t.Fatal(err)
		}
	}
	c := call(t, addr)
	c.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	c.answer()
	stop()
	if want := (observed{"/healthz", 200, 1}); h.observed != want {
		t.Errorf("observed %+v, want %+v", h.observed, want)
	}
}

func TestIdleConnectionsHoldLittleMemory(t *testing.T) { //nolint:paralleltest // it looks at all memory of the process
	const connections = 32
	for name, request := range map[string]string{
		"after a check":       requestTo("/v1/check", `{}`),
		"after a small batch": batch(fullKey, 400, 15*kib), // whose answer is as large as one that is kept
		"after a large batch": batch(fullKey, 1000, 1000*kib),
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, rules.DefaultSettings())
			_, addr, _ := h.listen()
			before := heap()
			for range connections {
				c := call(t, addr)
				c.send(request)
				if got := c.answer(); got.status != 200 {
					t.Fatalf("answered %d %s", got.status, got.body)
				}
				c.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
				c.answer()
			}
			if after := heap(); after > before+connections*40*kib { // of which the test has 7
				t.Errorf("%d idle connections hold %d KiB", connections, (after-before)>>10)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // empties pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fasthttp keeps the memory of the longest header of each position.
func TestHeadersDoNotPileUpInAConnection(t *testing.T) { //nolint:paralleltest // it looks at all memory of the process
	const connections = 16
	long := strings.Repeat("x", 14<<10)
	for name, request := range map[string]func(place int) string{
		"a long value at each place in turn": func(place int) string {
			return strings.Repeat("a:\r\n", place) + "b: " +
				long + "\r\n"
		},
		"a long name at each place in turn": func(place int) string {
			return strings.Repeat("a:\r\n", place) + long +
				":\r\n"
		},
		"many trailers announced": func(int) string {
			return "Trailer: " + strings.Repeat("a,", 90) +
				"a\r\n"
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, rules.DefaultSettings())
			_, addr, _ := h.listen()
			before := heap()
			for range connections {
				c := call(t, addr)
				for place := range 90 {
					c.send("GET /healthz HTTP/1.1\r\nHost: a\r\n" + request(place) + "\r\n")
					if got := c.answer(); got.status != 200 {
						t.Fatalf("answered %d %s", got.status, got.body)
					}
				}
			}
			if after := heap(); after > before+connections*150_000 {
				t.Errorf("%d idle connections hold %d KiB", connections, (after-before)>>10)
			}
		})
	}
}

func TestManyHeadersDoNotStayInAPool(t *testing.T) { //nolint:paralleltest // it looks at all memory of the process
	const connections = 16
	for name, headers := range map[string]string{
		"headers":  strings.Repeat("a:\r\n", 4_000),
		"trailers": "Trailer: " + strings.Repeat("a,", 7_000) + "a\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, rules.DefaultSettings())
			_, addr, _ := h.listen()
			before := heap()
			for range connections {
				c := call(t, addr)
				c.send("GET /healthz HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n")
				if got := c.answer(); got.status != 431 {
					t.Fatalf("answered %d %s", got.status, got.body)
				}
				c.wantEnd()
				_ = c.Close()
				c = call(t, addr) // takes the memory from the pool
				c.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
				c.answer()
			}
			if after := heap(); after > before+connections*100_000 {
				t.Errorf("%d idle connections hold %d KiB", connections, (after-before)>>10)
			}
		})
	}
}
