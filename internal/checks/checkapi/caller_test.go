package checkapi_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/checks/checkapi"
)

const testTimeout = time.Minute

func (h *harness) listen() (server *checkapi.Server, addr string, stop func()) {
	h.t.Helper()
	return h.listenWith(checkapi.NewServer(h.config))
}

func (h *harness) listenWith(server *checkapi.Server) (_ *checkapi.Server, addr string, stop func()) {
	h.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	return server, listener.Addr().String(), h.run(server, listener)
}

type caller struct {
	*testing.T
	net.Conn
	answers *bufio.Reader
}

func call(t *testing.T, addr string) *caller {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return &caller{t, conn, bufio.NewReader(conn)}
}

func (c *caller) send(request string) {
	c.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		c.Fatal(err)
	}
}

type answer struct {
	status int
	header http.Header
	body   string
	last   bool // the connection ends with it
}

func (a answer) want(t *testing.T, status int) {
	t.Helper()
	if a.status != status {
		t.Errorf("answered %d %s, want %d", a.status, a.body, status)
	}
}

func (c *caller) answer() answer {
	c.Helper()
	a, err := c.read()
	if err != nil {
		c.Fatal(err)
	}
	return a
}

func (c *caller) read() (answer, error) {
	r, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return answer{}, err
	}
	body, err := io.ReadAll(r.Body)
	return answer{r.StatusCode, r.Header, string(body), r.Close}, errors.Join(err, r.Body.Close())
}

// A reset would take answers with it that were not yet read.
func (c *caller) wantEnd() {
	c.Helper()
	if b, err := c.answers.ReadByte(); !errors.Is(err, io.EOF) {
		c.Errorf("read %q, %v; want the connection to end", b, err)
	}
}

func requestTo(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: sluice\r\nAuthorization: Bearer %s\r\nContent-Type: "+
		"application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", path, fullKey, len(body), body)
}

const withKey = "Authorization: Bearer " + fullKey + "\r\nContent-Type: application/json\r\n"
