package checkapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/checks/checkapi"
	"github.com/sluicegate/sluice/internal/httpapi"
)

func (l *pipes) callers(t *testing.T, n int, addr string, ask func(*caller)) (all []*caller) {
	t.Helper()
	for range n {
		c := l.call(t, addr)
		ask(c)
		time.Sleep(time.Second) //nolint:forbidigo // the bubble's clock
		all = append(all, c)
	}
	return all
}

func asksHealth(c *caller) { c.get("/healthz") }
func asksNothing(*caller)  {}

func TestAtTheLimitTheLongestIdleConnectionIsClosed(t *testing.T) {
	t.Parallel()
	inBubble(t, 4, func(t *testing.T, h *harness, l *pipes) {
		all := l.callers(t, 4, "192.0.2.1", asksHealth)
		all[0].get("/healthz") // so that the second is idle for longest
		all = append(all, l.callers(t, 2, "192.0.2.1", asksHealth)...)
		wantOpen(t, []*caller{all[0], all[3], all[4], all[5]}, all[1:3])
		if got, want := h.server.Connections(), (checkapi.Connections{Open: 4, Evicted: 2}); got != want {
			t.Errorf("counted %+v, want %+v", got, want)
		}
		if text := h.logText(); strings.Count(text, "level=WARN") != 1 ||
			!strings.Contains(text, "SLUICE_CHECK_MAX_CONNECTIONS") {
			t.Errorf("the log is %s, want one warning", text)
		}
	})
}

func TestANetworkEvictsItself(t *testing.T) {
	t.Parallel()
	inBubble(t, 8, func(t *testing.T, _ *harness, l *pipes) {
		others := append(l.callers(t, 1, "192.0.2.1", asksHealth), l.callers(t, 1, "2001:db8::1", asksHealth)...)
		greedy := l.callers(t, 12, "2001:db8:0:1::1", asksHealth)
		more := l.callers(t, 1, "2001:db8:0:1:ffff::1", asksHealth) // the same network
		wantOpen(t, append(others, append(greedy[7:], more...)...), greedy[:7])
	})
}

// Many networks without a key are one group, so that they cannot close the connections of tenants together.
func TestCallersWithoutAKeyEvictEachOther(t *testing.T) {
	t.Parallel()
	inBubble(t, 8, func(t *testing.T, _ *harness, l *pipes) {
		tenant := l.callers(t, 3, "192.0.2.1", func(c *caller) { c.check(fullKey) })
		var flood []*caller
		for i := range 20 {
			flood = append(flood, l.callers(t, 1, fmt.Sprintf("198.51.100.%d", i), asksNothing)...)
		}
		wantOpen(t, append(tenant, flood[15:]...), flood[:15])
	})
}

func TestATenantEvictsItself(t *testing.T) {
	t.Parallel()
	inBubble(t, 8, func(t *testing.T, _ *harness, l *pipes) {
		other := l.callers(t, 2, "192.0.2.1", func(c *caller) { c.check("slk_other_" + secret) })
		var greedy []*caller
		for i := range 20 { // from as many addresses
			greedy = append(greedy, l.callers(t, 1, fmt.Sprintf("198.51.100.%d", i),
				func(c *caller) { c.check(fullKey) })...)
		}
		wantOpen(t, append(other, greedy[14:]...), greedy[:14])
	})
}

func TestHalfRequestsMakeRoom(t *testing.T) {
	t.Parallel()
	whole := requestTo("/v1/check", `{}`)
	for name, half := range map[string]string{
		"half of the headers": "GET /healthz HT", "half of the body": whole[:len(whole)-1],
		"answered, and no body": "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, 4, func(t *testing.T, h *harness, l *pipes) {
				halves := l.callers(t, 4, "192.0.2.1", func(c *caller) {
					if c.send(half); name == "answered, and no body" {
						c.answer()
					}
				})
				ask := asksHealth
				if name == "half of the body" {
					ask = func(c *caller) { c.check(fullKey) }
				}
				whole := l.callers(t, 4, "192.0.2.1", ask)
				wantOpen(t, whole, halves)
			})
		})
	}
}

func TestUnreadAnswersMakeRoom(t *testing.T) {
	t.Parallel()
	inBubble(t, 1, func(t *testing.T, _ *harness, l *pipes) {
		stuck := l.call(t, "192.0.2.1")
		stuck.send(requestTo("/v1/check", `{}`))
		synctest.Wait()
		l.call(t, "192.0.2.1").check(fullKey).want(t, 503)
		time.Sleep(2 * time.Second) //nolint:forbidigo // the bubble's clock
		l.call(t, "192.0.2.1").check(fullKey).want(t, 200)
	})
}

func TestUnreadContinuesMakeRoom(t *testing.T) {
	t.Parallel()
	inBubble(t, 1, func(t *testing.T, _ *harness, l *pipes) {
		stuck := l.call(t, "192.0.2.1")
		stuck.send("POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n" + withKey +
			"\r\n")
		time.Sleep(2 * time.Second) //nolint:forbidigo // the bubble's clock
		l.call(t, "192.0.2.1").check(fullKey).want(t, 200)
	})
}

type halfClosing struct{ from }

func (halfClosing) CloseWrite() error { return nil }

func TestRefusedConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	inBubble(t, 1, func(t *testing.T, _ *harness, l *pipes) {
		client, server := net.Pipe()
		l.accepted <- halfClosing{from{server, "192.0.2.1"}}
		refused := &caller{t, client, bufio.NewReader(client)}
		refused.send("hello\r\n\r\n")
		refused.answer().want(t, 400)
		synctest.Wait()
		l.call(t, "192.0.2.2").check(fullKey).want(t, 200)
		if took := refused.ends(); took > 0 {
			t.Errorf("the refused connection was open for %s more", took)
		}
	})
}

func (h *harness) busy(t *testing.T, l *pipes, n int) (leave chan struct{}) {
	leave = make(chan struct{})
	h.ready = func() httpapi.Readiness {
		<-leave
		return httpapi.Readiness{}
	}
	for range n {
		c := l.call(t, "192.0.2.1")
		c.send("GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
		t.Cleanup(func() { _ = c.Close() })
	}
	synctest.Wait()
	return leave
}

func TestOverTheLimitHealthIsAnsweredAndChecksAreRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, 3, func(t *testing.T, h *harness, l *pipes) {
		leave := h.busy(t, l, 3)
		refused := l.call(t, "192.0.2.1")
		got := refused.check(fullKey)
		if got.status != 503 || !got.last || got.header.Get("Retry-After") != "1" ||
			got.header.Get("Content-Type") != "application/problem+json" ||
			!strings.Contains(got.body, "urn:sluice:problem:unavailable") {
			t.Errorf("a check is answered %d %v %s", got.status, got.header, got.body)
		}
		refused.ends()
		// A proxy must know that it is not a rule that denies.
		for _, target := range []string{"/v1/authorize", "/v1/authorize?deny=403", "/v1/authorize/a"} {
			c := l.call(t, "192.0.2.1")
			c.send("GET " + target + " HTTP/1.1\r\nHost: a\r\n" + withKey + "\r\n")
			c.answer().want(t, 502)
			c.ends()
		}
		probe := l.call(t, "192.0.2.1")
		if got := probe.get("/healthz"); got.status != 200 || !got.last {
			t.Errorf("a probe is answered %d, the last: %t", got.status, got.last)
		}
		probe.ends()
		if got, want := h.server.Connections(), (checkapi.Connections{Open: 3, Refused: 5}); got != want {
			t.Errorf("counted %+v, want %+v", got, want)
		}
		close(leave)
		if h.decided != 0 {
			t.Errorf("%d checks were decided", h.decided)
		}
	})
}

func TestNobodyTakesTheWholeReserve(t *testing.T) {
	t.Parallel()
	inBubble(t, 1, func(t *testing.T, h *harness, l *pipes) {
		leave := h.busy(t, l, 1)
		for range 20 {
			c := l.call(t, "192.0.2.1")
			t.Cleanup(func() { _ = c.Close() })
			go func() { _, _ = io.Copy(io.Discard, c.answers) }()
			synctest.Wait()
		}
		late := l.call(t, "192.0.2.1")
		if got, err := late.read(); err != nil || got.status != 502 || got.header.Get("Retry-After") != "1" {
			t.Errorf("one more is answered %d (%v)", got.status, err)
		}
		l.call(t, "192.0.2.2").get("/healthz").want(t, 200)
		time.Sleep(2 * time.Second) //nolint:forbidigo // the bubble's clock
		if got := h.server.Connections().Open; got != 1 {
			t.Errorf("after a second %d connections are open, want the one within the limit", got)
		}
		l.call(t, "192.0.2.1").get("/healthz").want(t, 200)
		close(leave)
	})
}

// By the bubble's clock, because a slow machine would need longer to open them than a silent connection is kept.
func TestManyIdleConnectionsDoNotShutOthersOut(t *testing.T) {
	t.Parallel()
	inBubble(t, 200, func(t *testing.T, h *harness, l *pipes) {
		for range 400 {
			l.call(t, "192.0.2.1")
		}
		c := l.call(t, "192.0.2.1")
		c.send(requestTo("/v1/check", `{}`))
		c.answer().want(t, 200)
		if got := h.server.Connections(); got.Open > 200 || got.Evicted < 201 || got.Refused > 0 {
			t.Errorf("counted %+v", got)
		}
	})
}
