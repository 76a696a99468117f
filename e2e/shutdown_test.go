package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/devdb/awake"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

func TestRequestsUnderWayAreAnsweredBeforeAProcessEnds(t *testing.T) {
	t.Parallel()
	tn := newTenant(t, `rules: [{key_pattern: "user:{user_id}", rate: 1/hour, burst_capacity: 5}]`)
	a := tn.startAPI(t, devdbtest.Redis(t).URL())

	callers := make([]*slowCaller, 8)
	for i := range callers {
		callers[i] = a.beginCheck(t, fmt.Sprintf(`{"user_id":"%d"}`, i))
	}
	a.terminate(t)
	eventually(t, patience, "new connections to be refused", func() bool {
		conn, err := net.Dial("tcp", a.checks)
		if err != nil {
			return true
		}
		_ = conn.Close()
		return false
	})
	select {
	case <-a.ended:
		t.Fatal("the process ended while requests were under way")
	default:
	}
	for i, caller := range callers {
		got := caller.finish(t)
		if got.status != http.StatusOK || got.Degraded || *got.Remaining != 4 {
			t.Errorf("request %d: %d %s, want 200 and 4 tokens left, from Redis", i, got.status, got.text)
		}
	}
	a.stop(t)
}

func TestARequestThatNeverEndsDoesNotKeepAProcess(t *testing.T) {
	t.Parallel()
	tn := newTenant(t, `rules: []`)
	a := tn.spawnAPI(t, "", "--shutdown-timeout=200ms", "--store-budget=200ms")
	eventually(t, patience, "the api process to be ready", func() bool { return a.ready(t).status == http.StatusOK })
	a.beginCheck(t, `{}`)
	watch := awake.Start()
	defer watch.Stop()
	a.terminate(t)
	if status := a.status(t); status == 0 {
		t.Error("status 0 although a request was cut off")
	}
	if took := watch.Now(); took > 5*time.Second {
		t.Errorf("it took %s to end, with a shutdown timeout of 200 ms", took)
	}
}

type slowCaller struct {
	conn net.Conn
	rest string
}

func (a *api) beginCheck(t *testing.T, body string) *slowCaller {
	t.Helper()
	conn, err := net.Dial("tcp", a.checks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	// The server says "100 Continue" when the handler reads the body: from then on the request is under way.
	_, err = fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: sluice\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", a.key, len(body))
	if err != nil {
		t.Fatal(err)
	}
	const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
	reply := make([]byte, len(goOn))
	if _, err := io.ReadFull(conn, reply); err != nil || string(reply) != goOn {
		t.Fatalf("the server answered %q (%v), want %q", reply, err, goOn)
	}
	half := len(body) / 2
	if _, err := conn.Write([]byte(body[:half])); err != nil {
		t.Fatal(err)
	}
	return &slowCaller{conn, body[half:]}
}

func (c *slowCaller) finish(t *testing.T) answer {
	t.Helper()
	if _, err := c.conn.Write([]byte(c.rest)); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c.conn), nil)
	if err != nil {
		t.Fatalf("no answer to a request that was under way: %v", err)
	}
	got, err := readAnswer(response)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
