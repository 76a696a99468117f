package adminapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

// serveSmall serves a world over TCP with small buffers, so that a slow reader soon makes writes wait.
func (w *world) serveSmall() *httptest.Server {
	w.t.Helper()
	server := httptest.NewUnstartedServer(w.handler)
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if err := c.(*net.TCPConn).SetWriteBuffer(16 << 10); err != nil {
			w.t.Error(err)
		}
		return ctx
	}
	server.Start()
	w.t.Cleanup(server.Close)
	return server
}

// dial sends a GET and does not read the answer. The sockets' buffers are small, so the server's write blocks.
func (w *world) dial(server *httptest.Server, by caller, path string) net.Conn {
	w.t.Helper()
	conn := w.ask(server, by, path)
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		w.t.Fatal(err)
	}
	return conn
}

func (w *world) ask(server *httptest.Server, by caller, path string) net.Conn {
	w.t.Helper()
	conn := must(net.Dial("tcp", server.Listener.Addr().String()))(w.t)
	w.t.Cleanup(func() { _ = conn.Close() })
	must(fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:8081\r\nCookie: sluice_session=%s\r\n\r\n", path,
		by.session))(w.t)
	return conn
}

func (w *world) fetch(server *httptest.Server, by caller, path string) (status int, body string) {
	w.t.Helper()
	conn := w.ask(server, by, path)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text := must(io.ReadAll(answer.Body))(w.t)
	return answer.StatusCode, string(text)
}

func (w *world) manyUsers(tenant rules.Tenant, users int) {
	w.t.Helper()
	w.exec("SET session_replication_role = replica; INSERT INTO plan_assignment (tenant_id, user_id, plan, revision) " +
		fmt.Sprintf("SELECT %d, lpad(n::text, 244, 'x'), 'free', 1 FROM generate_series(1, %d) AS n", tenant.ID, users))
}

// TestASlowReaderOfAFileIsCutAndItsPlaceIsFree reads at a quarter of the least rate. No single write is slow.
func TestASlowReaderOfAFileIsCutAndItsPlaceIsFree(t *testing.T) {
	t.Parallel()
	const rate, chunk, users = 256 << 10, 4 << 10, 40_000
	c := newCrowded(t, func(config *adminapi.Config) { config.LeastDownloadRate = rate })
	server := c.serveSmall()
	c.manyUsers(c.acme, users)
	by := c.person(c.acme, auth.Viewer)
	path := c.madeFile(by, "/api/v1/tenants/acme/users/export")
	slow := []net.Conn{
		c.dial(server, by, path), c.dial(server, by, path), c.dial(server, by, path), c.dial(server, by, path),
	}
	c.await("four downloads", func() bool { return c.counts["downloads"]().Held == len(slow) })
	for _, conn := range slow {
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		c.group.Go(func() {
			tick := time.NewTicker(time.Second * chunk * 4 / rate)
			defer tick.Stop()
			for buffer := make([]byte, chunk); ; <-tick.C {
				switch _, err := conn.Read(buffer); {
				case errors.Is(err, os.ErrDeadlineExceeded):
					t.Error("a slow reader is not cut")
					return
				case err != nil:
					return
				}
			}
		})
	}
	c.group.Wait()
	c.await("free place", func() bool { return c.counts["downloads"]().Held == 0 })
	status, body := c.fetch(server, by, path)
	if lines := strings.Count(body, "\n"); status != http.StatusOK || lines != users+1 {
		t.Errorf("a fast reader is answered %d with %d lines", status, lines)
	}
}

func TestASlowReaderOfAnAnswerHoldsNoPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := w.serveSmall()
	w.manyUsers(w.acme, 1000)
	by := w.person(w.acme, auth.Viewer)
	for range 6 {
		w.dial(server, by, "/api/v1/tenants/acme/users?limit=500")
	}
	if status, body := w.fetch(server, by, "/api/v1/tenants/acme/plans"); status != http.StatusOK {
		t.Errorf("another request of the same account is answered %d: %s", status, body)
	}
}

func (w *world) largeMatrix(tenant rules.Tenant) {
	w.t.Helper()
	w.rule(tenant)
	const same = "tenant_id, scope, rate_per_second, rate_unit, burst_capacity, algorithm, mode, action, is_active, " +
		"revision, in_force_since"
	w.exec("SET session_replication_role = replica; " +
		"INSERT INTO rate_limit_rule (key_pattern, description, " + same + ") " +
		"SELECT 'user:' || n, repeat('x', 1000), " + same + " FROM rate_limit_rule, generate_series(1, 500) AS n " +
		fmt.Sprintf("WHERE tenant_id = %d", tenant.ID))
}

func (w *world) unread(server *httptest.Server, by caller, path string) (status int, conn net.Conn) {
	w.t.Helper()
	conn = w.dial(server, by, path)
	line := make([]byte, len("HTTP/1.1 200"))
	must(io.ReadFull(conn, line))(w.t)
	must(fmt.Sscanf(string(line), "HTTP/1.1 %d", &status))(w.t)
	return status, conn
}

func TestUnreadLargeAnswersHoldNoPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := w.serveSmall()
	third := w.person(w.tenant("third"), auth.Viewer)
	for _, tenant := range []rules.Tenant{w.acme, w.other} {
		w.largeMatrix(tenant)
		for range 2 {
			greedy := w.person(tenant, auth.Viewer)
			for range 4 {
				status, _ := w.unread(server, greedy, "/api/v1/tenants/"+tenant.Slug+"/matrix?limit=500")
				if status != http.StatusOK {
					t.Fatalf("a request beside unread answers is answered %d", status)
				}
			}
		}
	}
	if status, body := w.fetch(server, third, "/api/v1/tenants/third/plans"); status != http.StatusOK {
		t.Errorf("a request of another tenant is answered %d: %s", status, body)
	}
}

func TestTooMuchUnreadIsItsOwnCallersMatter(t *testing.T) {
	t.Parallel()
	c := newCrowded(t)
	server := c.serveSmall()
	c.largeMatrix(c.acme)
	greedy, colleague := c.person(c.acme, auth.Viewer), c.person(c.acme, auth.Viewer)
	const matrix, plans = "/api/v1/tenants/acme/matrix?limit=500", "/api/v1/tenants/acme/plans"
	var open []net.Conn
	for status := 0; status != http.StatusTooManyRequests; {
		var conn net.Conn
		status, conn = c.unread(server, greedy, matrix)
		open = append(open, conn)
		if len(open) > 30 {
			t.Fatal("an account may leave 30 large answers unread")
		}
	}
	if refused := c.counts["unread"]().Refused; refused != 1 {
		t.Errorf("%d refusals are counted, want 1", refused)
	}
	for name, status := range map[string]int{
		"a colleague": first(c.fetch(server, colleague, plans)),
		"a neighbour": first(c.fetch(server, c.person(c.other, auth.Viewer), "/api/v1/tenants/other/plans")),
	} {
		if status != http.StatusOK {
			t.Errorf("%s is answered %d", name, status)
		}
	}
	for _, conn := range open {
		_ = conn.Close()
	}
	c.await("answer after the unread ones", func() bool {
		return first(c.fetch(server, greedy, plans)) == http.StatusOK
	})
}

func first(status int, _ string) int { return status }
