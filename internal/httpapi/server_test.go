package httpapi_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
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
	// By hand: a Transport takes another connection if it learns too late that its request was written.
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

// Connections that stall are bounded by these alone, and a test that waits for them would take as
// long as they do.
func TestTheServerHasEveryTimeout(t *testing.T) {
	t.Parallel()
	s := httpapi.NewServer(http.NotFoundHandler(), quiet())
	for name, timeout := range map[string]time.Duration{
		"ReadHeaderTimeout": s.ReadHeaderTimeout, "ReadTimeout": s.ReadTimeout,
		"WriteTimeout": s.WriteTimeout, "IdleTimeout": s.IdleTimeout,
	} {
		if timeout <= 0 || timeout > 5*time.Minute {
			t.Errorf("%s is %v", name, timeout)
		}
	}
}
