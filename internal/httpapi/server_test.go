package httpapi_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/httpapi"
)

func TestTheServerKeepsConnectionsAndBoundsHeaders(t *testing.T) {
	t.Parallel()
	server := httpapi.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), quiet())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	// A Transport would retry on another connection if it learns too late that its request was written.
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	get := func(header string) int {
		r, err := http.NewRequest("GET", "http://"+listener.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Filler", header)
		if err := r.Write(conn); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(answers, r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	if first, second := get("small"), get("small"); first != 200 || second != 200 {
		t.Errorf("answered %d and %d", first, second)
	}
	if got := get(strings.Repeat("a", 32<<10)); got != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("32 KiB of headers are answered %d", got)
	}
	_ = server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("serving ended with %v", err)
	}
}

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

func TestConnectionsThatStallAreCut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sent string
		read bool // the answer to it
		want time.Duration
	}{
		"half of the headers": {"GET / HTTP/1.1\r\nHost: a\r\n", false, 5 * time.Second},
		"half of the body": {
			"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{", false,
			10 * time.Second,
		},
		"an answer that is unread":  {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", false, 30 * time.Second},
		"nothing after an answer":   {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true, 2 * time.Minute},
		"nothing from the start on": {"", false, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := httpapi.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.Copy(io.Discard, r.Body); err != nil {
						panic(http.ErrAbortHandler) // as for WriteError; nobody reads an answer here
					}
				}), quiet())
				l := &pipes{make(chan net.Conn), make(chan struct{})}
				served := make(chan error, 1)
				go func() { served <- server.Serve(l) }()
				client, accepted := net.Pipe()
				conn := &endings{accepted, make(chan struct{})}
				l.accepted <- conn
				began := time.Now()
				if _, err := io.WriteString(client, test.sent); err != nil {
					t.Fatal(err)
				}
				if test.read {
					answer, err := http.ReadResponse(bufio.NewReader(client), nil)
					if err != nil {
						t.Fatal(err)
					}
					_ = answer.Body.Close()
				}
				<-conn.closed
				if took := time.Since(began); took != test.want {
					t.Errorf("it was cut after %s, want %s", took, test.want)
				}
				_ = server.Close()
				if err := <-served; !errors.Is(err, http.ErrServerClosed) {
					t.Errorf("serving ended with %v", err)
				}
			})
		})
	}
}

type endings struct {
	net.Conn
	closed chan struct{}
}

func (c *endings) Close() error {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return c.Conn.Close()
}
