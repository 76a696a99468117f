package checkapi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/checks/checkapi"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func (h *harness) hold() (entered, leave chan struct{}) {
	entered, leave = make(chan struct{}), make(chan struct{})
	h.ready = func() httpapi.Readiness {
		close(entered)
		<-leave
		return httpapi.Readiness{Open: true, RulesLoaded: true}
	}
	return entered, leave
}

func TestShutdownAnswersWhatIsUnderWayAndNothingElse(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	entered, leave := h.hold()
	server, addr, _ := h.listen()
	busy := call(t, addr)
	busy.send("GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
	<-entered

	wantImpatience(t, server)
	if conn, err := net.Dial("tcp", addr); err == nil {
		_ = conn.Close()
		t.Error("a new connection was taken after the shutdown")
	}
	close(leave)
	if got := busy.answer(); got.status != 200 || !strings.Contains(got.body, `"status":"ready"`) {
		t.Errorf("the request under way is answered %d %s", got.status, got.body)
	}
}

func TestShutdownWaits(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	entered, leave := h.hold()
	server, addr, _ := h.listen()
	c, idle := call(t, addr), call(t, addr)
	idle.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	idle.answer()
	c.send("GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
	<-entered
	ended := make(chan error, 1)
	go func() { ended <- server.Shutdown(context.Background()) }()
	// Once nobody can call, the shutdown has begun.
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	idle.wantEnd()
	select {
	case err := <-ended:
		t.Fatalf("the shutdown ended with %v before the answer was out", err)
	default:
	}
	close(leave)
	if got := c.answer(); got.status != 200 || !got.last {
		t.Errorf("answered %d, the last: %t; want 200 and the last", got.status, got.last)
	}
	c.wantEnd()
	wantNoError(t, <-ended)
}

func TestShutdownAnswersWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, h *harness, l *pipes) {
		idle, silent := l.call(t, "192.0.2.1"), l.call(t, "192.0.2.1")
		idle.get("/healthz")
		ended := make(chan error, 1)
		go func() { ended <- h.server.Shutdown(t.Context()) }()
		synctest.Wait()
		for _, c := range []*caller{idle, silent} {
			if got := c.get("/healthz"); got.status != 200 || !got.last {
				t.Errorf("answered %d, the last: %t; want 200 and the last", got.status, got.last)
			}
			c.ends()
		}
		wantNoError(t, <-ended)
	})
}

func TestShutdownUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	for range 20 {
		h := newHarness(t, rules.DefaultSettings())
		server, addr, _ := h.listen()
		var asked, callers sync.WaitGroup
		const each = 8
		asked.Add(each)
		for range each {
			c := call(t, addr)
			callers.Go(func() {
				begun := sync.OnceFunc(asked.Done)
				defer begun()
				for {
					if _, err := io.WriteString(c.Conn, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
						t.Errorf("a request could not be sent: %v", err)
						return
					}
					got, err := c.read()
					if err != nil || got.status != http.StatusOK {
						t.Errorf("answered %d, %v", got.status, err)
						return
					}
					if begun(); got.last {
						return
					}
				}
			})
		}
		asked.Wait()
		wantNoError(t, server.Shutdown(t.Context()))
		callers.Wait()
	}
}

func TestShutdownDoesNotLoseTheAnswersOfAPipeline(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	entered, leave := h.hold()
	server, addr, _ := h.listen()
	c := call(t, addr)
	c.send("GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n" + strings.Repeat("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 2000))
	<-entered
	wantImpatience(t, server)
	close(leave)
	if got := c.answer(); got.status != 200 || !got.last {
		t.Errorf("answered %d, the last: %t; want 200 and the last", got.status, got.last)
	}
	c.wantEnd()
}

func TestShutdownDoesNotWaitForTheSilent(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, h *harness, l *pipes) {
		silent, other := l.call(t, "192.0.2.1"), l.call(t, "192.0.2.1")
		other.get("/healthz")
		wantShutdownAtOnce(t, h.server)
		if kept := silent.ends(); kept > 0 {
			t.Errorf("after the shutdown it was kept for %s", kept)
		}
	})
}

func TestShutdownDoesNotWaitForSlowCallers(t *testing.T) {
	t.Parallel()
	const check = "POST /v1/check HTTP/1.1\r\nHost: a\r\n" + withKey
	inBubble(t, 4, func(t *testing.T, h *harness, l *pipes) {
		for _, part := range []string{"GET /heal", check, check + "Content-Length: 20\r\n\r\n{"} {
			l.call(t, "192.0.2.1").send(part)
		}
		synctest.Wait()
		began := time.Now()
		wantNoError(t, h.server.Shutdown(t.Context()))
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the shutdown took %s", took)
		}
	})
}

// An answer can be read while there is time, because its tokens are taken.
func TestShutdownLeavesCallersTheTimeToReadAnswers(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, h *harness, l *pipes) {
		slow, silent := l.call(t, "192.0.2.1"), l.call(t, "192.0.2.1")
		for _, c := range []*caller{slow, silent} {
			c.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- h.server.Shutdown(ctx) }()
		time.Sleep(8 * time.Second) //nolint:forbidigo // the bubble's clock
		slow.answer().want(t, 200)
		wantNoError(t, <-ended)
	})
}

func TestShutdownDoesNotWaitForBodiesThatNobodyReads(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, h *harness, l *pipes) {
		c := l.call(t, "192.0.2.1")
		c.send("POST /v1/check HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n{")
		c.answer().want(t, 401)
		wantShutdownAtOnce(t, h.server)
	})
}

func wantShutdownAtOnce(t *testing.T, server *checkapi.Server) {
	t.Helper()
	began := time.Now()
	wantNoError(t, server.Shutdown(t.Context()))
	if took := time.Since(began); took > time.Second { // it looks now and then whether connections have ended
		t.Errorf("the shutdown took %s", took)
	}
}

func wantImpatience(t *testing.T, server *checkapi.Server) {
	t.Helper()
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if err := server.Shutdown(impatient); !errors.Is(err, context.Canceled) {
		t.Errorf("with a request under way and no time the shutdown ends with %v", err)
	}
}

func wantNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("the shutdown ended with %v", err)
	}
}

func TestAServerThatWasShutDownServesNobody(t *testing.T) {
	t.Parallel()
	server := checkapi.NewServer(newHarness(t, rules.DefaultSettings()).config)
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("serving ended with %v", err)
	}
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener was left open: %v", err)
	}
}

func TestCloseCutsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	entered, leave := h.hold()
	server, addr, _ := h.listen()
	c := call(t, addr)
	c.send("GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n")
	<-entered
	if err := server.Close(); err != nil {
		t.Errorf("closing ended with %v", err)
	}
	c.wantEnd()
	close(leave)
}
