package checkapi_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// An answer must have its own time, not the rest of the time of the answer before.
func TestLateMistakesAreAnswered(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{
		"no HTTP": "hello\r\n\r\n", "a body to wait for": "POST /v1/check HTTP/1.1\r\nHost: a\r\n" + withKey +
			"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, 2, func(t *testing.T, _ *harness, l *pipes) {
				c := l.call(t, "192.0.2.1")
				c.get("/healthz")
				time.Sleep(time.Minute) //nolint:forbidigo // in the bubble's time the deadline of the first answer passes
				c.send(request)
				if got, err := c.read(); err != nil {
					t.Errorf("answered %+v, %v", got, err)
				}
			})
		})
	}
}

func TestAnIdleConnectionIsKeptForTwoMinutes(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, _ *harness, l *pipes) {
		c := l.call(t, "192.0.2.1")
		for range 3 {
			c.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
			c.answer()
			time.Sleep(100 * time.Second) //nolint:forbidigo // the bubble's clock
		}
		c.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
		c.answer()
		if kept := c.ends(); kept > 2*time.Minute || kept < 110*time.Second {
			t.Errorf("it was kept for %s", kept)
		}
	})
}

func TestASlowRequestIsAnswered(t *testing.T) {
	t.Parallel()
	const begun = "POST /v1/check HTTP/1.1\r\nHost: a\r\n" + withKey + "Content-Length: 20\r\n\r\n{"
	for name, test := range map[string]struct {
		request string
		want    []int
	}{
		"alone":          {begun, []int{408}},
		"behind another": {"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" + begun, []int{200, 408}},
		"of chunks": {strings.Replace(strings.Replace(begun, "Content-Length: 20", "Transfer-Encoding: chunked",
			1), "\r\n{", "\r\n5\r\n{", 1), []int{408}},
		"not even begun": {"POST /v1/check HT", []int{408}},
		"nothing at all": {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, 2, func(t *testing.T, _ *harness, l *pipes) {
				c := l.call(t, "192.0.2.1")
				began := time.Now()
				if test.request != "" {
					c.send(test.request)
				}
				for _, want := range test.want {
					if got := c.answer(); got.status != want {
						t.Errorf("answered %d %s, want %d", got.status, got.body, want)
					}
				}
				c.ends()
				if took := time.Since(began); took > 10*time.Second || took < 9*time.Second {
					t.Errorf("the connection ended after %s", took)
				}
			})
		})
	}
}

// A request that comes byte by byte has the time of any other.
func TestASlowlyWrittenRequestIsCut(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, _ *harness, l *pipes) {
		c, began, cut := l.call(t, "192.0.2.1"), time.Now(), make(chan struct{})
		go func() {
			defer close(cut)
			for {
				if _, err := c.Write([]byte("G")); err != nil {
					return
				}
				time.Sleep(time.Second) //nolint:forbidigo // the bubble's clock
			}
		}()
		if got := c.answer(); got.status != 408 {
			t.Errorf("answered %d %s", got.status, got.body)
		}
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("it was answered after %s", took)
		}
		_ = c.Close()
		<-cut
	})
}

func TestWhoeverDoesNotReadItsAnswerIsCut(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, _ *harness, l *pipes) {
		c, began := l.call(t, "192.0.2.1"), time.Now()
		c.send(requestTo("/v1/check", `{}`))
		if _, err := c.Write([]byte("GET")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the connection went on: %v", err)
		}
		if took := time.Since(began); took > 30*time.Second || took < 28*time.Second {
			t.Errorf("it was cut after %s", took)
		}
	})
}
