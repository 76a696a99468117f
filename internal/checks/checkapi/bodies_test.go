package checkapi_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func batch(key string, n, size int) string {
	body := `{"checks":[{}` + strings.Repeat(`,{}`, n-1) + `]`
	body += strings.Repeat(" ", max(0, size-len(body)-1)) + `}`
	return fmt.Sprintf("POST /v1/check/batch HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: "+
		"Bearer %s\r\n"+
		"Content-Length: %d\r\n\r\n%s", key, len(body), body)
}

const (
	otherKey = "slk_other_" + secret
	kib      = 1 << 10
)

func TestHalfSentBatchesHaveAShare(t *testing.T) {
	t.Parallel()
	large := batch(fullKey, 1, 600*kib)
	for name, half := range map[string]string{
		"with a length": large[:len(large)-1],
		"in chunks": "POST /v1/check/batch HTTP/1.1\r\nHost: a\r\n" + withKey +
			"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, 100, func(t *testing.T, h *harness, l *pipes) {
				h.server.SetMaxHeld(1024*kib, 1024*kib)
				stuck := l.call(t, "192.0.2.1")
				stuck.send(half)
				synctest.Wait()
				ask := func(request string) answer {
					c := l.call(t, "192.0.2.1")
					go func() { _, _ = c.Write([]byte(request)) }() // the server need not read it to its end
					got := c.answer()
					_ = c.Close()
					synctest.Wait()
					return got
				}
				if got := ask(large); got.status != 503 || got.header.Get("Retry-After") != "1" || !got.last ||
					!strings.Contains(got.body, "urn:sluice:problem:unavailable") {
					t.Errorf("one more is answered %d %v %s", got.status, got.header, got.body)
				}
				ask(requestTo("/v1/check", `{}`)).want(t, 200)
				for range 2 {
					ask(batch(otherKey, 1, 600*kib)).want(t, 200)
				}
				_ = stuck.Close()
				synctest.Wait()
				if got := h.server.Held(); got != 0 {
					t.Errorf("in the end %d bytes are held", got)
				}
				ask(large).want(t, 200)
			})
		})
	}
}

func TestLargeAndSmallAnswersOfAPipelineAreInOrder(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	_, addr, _ := h.listen()
	c := call(t, addr)
	sizes := []int{100, 0, 1, 0, 0, 1000, 0}
	var all strings.Builder
	for _, n := range sizes {
		if n == 0 {
			all.WriteString(requestTo("/v1/check", `{}`))
		} else {
			all.WriteString(batch(fullKey, n, 0))
		}
	}
	c.send(all.String())
	for i, n := range sizes {
		got := c.answer()
		if results := strings.Count(got.body, `"status":200`); got.status != 200 || results != n {
			t.Errorf("answer %d is %d with %d results, want 200 with %d", i, got.status, results, n)
		}
	}
}

func TestUnreadAnswersHaveAShare(t *testing.T) {
	t.Parallel()
	inBubble(t, 100, func(t *testing.T, h *harness, l *pipes) {
		h.server.SetMaxHeld(1024*kib, 100*kib)
		stuck, next := l.call(t, "192.0.2.1"), l.call(t, "192.0.2.1")
		stuck.send(batch(fullKey, 1000, 0))
		synctest.Wait()
		next.send(batch(fullKey, 1, 0))
		if got := next.answer(); got.status != 503 || got.last {
			t.Errorf("one more is answered %d, the last: %t", got.status, got.last)
		}
		next.check(fullKey).want(t, 200)
		stuck.answer().want(t, 200)
		synctest.Wait()
		next.send(batch(fullKey, 1, 0))
		next.answer().want(t, 200)
		synctest.Wait()
		if got := h.server.Held(); got != 0 {
			t.Errorf("in the end %d bytes are held", got)
		}
	})
}

func TestUnreadUsageHasAShare(t *testing.T) {
	t.Parallel()
	var many []rules.Rule
	for i := range enforce.MaxUsage {
		many = append(many, limit(t, rules.RuleID(i+1),
			fmt.Sprintf("user:{user_id}:endpoint:/api/%d/%s", i, strings.Repeat("x", 200)), 1, 50))
	}
	inBubble(t, 100, func(t *testing.T, h *harness, l *pipes) {
		h.server.SetMaxHeld(1024*kib, 30*kib)
		usage := func(key string) string {
			return "GET /v1/usage?user_id=42 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + key + "\r\n\r\n"
		}
		stuck, next := l.call(t, "192.0.2.1"), l.call(t, "192.0.2.1")
		stuck.send(usage(fullKey))
		synctest.Wait()
		next.send(usage(fullKey))
		if got := next.answer(); got.status != 503 || got.last || got.header.Get("Retry-After") != "1" {
			t.Errorf("one more is answered %d with %d bytes, the last: %t", got.status, len(got.body), got.last)
		}
		next.check(fullKey).want(t, 200)
		other := l.call(t, "192.0.2.1")
		for range 2 {
			other.send(usage(otherKey))
			other.answer().want(t, 200)
			synctest.Wait()
		}
		if got := stuck.answer(); got.status != 200 || len(got.body) < 30*kib {
			t.Errorf("the first is answered %d, with %d bytes", got.status, len(got.body))
		}
		synctest.Wait()
		if got := h.server.Held(); got != 0 {
			t.Errorf("in the end %d bytes are held", got)
		}
		next.send(usage(fullKey))
		next.answer().want(t, 200)
	}, many...)
}

func TestAKeyIsLookedAtAgainWhenTheBodyWasWaitedFor(t *testing.T) {
	t.Parallel()
	inBubble(t, 2, func(t *testing.T, h *harness, l *pipes) {
		c := l.call(t, "192.0.2.1")
		request := requestTo("/v1/check", `{}`)
		c.send(request[:len(request)-1])
		synctest.Wait()
		h.snapshot = snapshot.New(snapshot.Rows{})
		c.send(request[len(request)-1:])
		if got := c.answer(); got.status != 401 || h.decided > 0 {
			t.Errorf("answered %d %s; %d checks were decided", got.status, got.body, h.decided)
		}
	})
}
