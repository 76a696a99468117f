package httpapi_test

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/httpapi"
)

func TestTheServerKeepsConnectionsAndBoundsHeaders(t *testing.T) {
	t.Parallel()
	server := httpapi.NewServer("", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), quiet())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var remotes []string
	server.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			remotes = append(remotes, c.RemoteAddr().String()) // only the accepting goroutine comes here
		}
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	transport := &http.Transport{}
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	get := func(header string) int {
		r, err := http.NewRequest("GET", "http://"+listener.Addr().String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Filler", header)
		answer, err := client.Do(r)
		if err != nil {
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
	transport.CloseIdleConnections()
	_ = server.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("serving ended with %v", err)
	}
	if len(remotes) != 1 {
		t.Errorf("three requests took the connections %v, want one", remotes)
	}
}

// Connections that stall are bounded by these alone, and a test that waits for them would take as
// long as they do.
func TestTheServerHasEveryTimeout(t *testing.T) {
	t.Parallel()
	s := httpapi.NewServer("", http.NotFoundHandler(), quiet())
	for name, timeout := range map[string]time.Duration{
		"ReadHeaderTimeout": s.ReadHeaderTimeout, "ReadTimeout": s.ReadTimeout,
		"WriteTimeout": s.WriteTimeout, "IdleTimeout": s.IdleTimeout,
	} {
		if timeout <= 0 || timeout > 5*time.Minute {
			t.Errorf("%s is %v", name, timeout)
		}
	}
}
