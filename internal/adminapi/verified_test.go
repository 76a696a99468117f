package adminapi_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/shares"
)

type heldSessions struct {
	auth.Store
	isHeld atomic.Bool
	turns  chan struct{}
	looked atomic.Int64
	person auth.Digest  // of a session
	ahead  atomic.Int64 // lookups before that of the person
	isSeen atomic.Bool  // the person's
}

func (h *heldSessions) SessionOf(ctx context.Context, token auth.Digest, live auth.Live, use auth.Use) (auth.Session,
	error,
) {
	if h.isHeld.Load() {
		<-h.turns
		switch {
		case token == h.person:
			h.isSeen.Store(true)
		case !h.isSeen.Load():
			h.ahead.Add(1)
		}
	}
	h.looked.Add(1)
	return h.Store.SessionOf(ctx, token, live, use)
}

func invented() string {
	var random [32]byte
	_, _ = rand.Read(random[:])
	return base64.RawURLEncoding.EncodeToString(random[:])
}

func TestInventedSessionsDelayNobodyElse(t *testing.T) {
	t.Parallel()
	const flood = 400
	for name, isVerified := range map[string]bool{"a session seen before": true, "a session not seen before": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held := &heldSessions{turns: make(chan struct{})}
			var lookups func() shares.Count
			closing := make(chan struct{})
			close(closing) // refusals do not pause
			w := newWorld(t, func(c *adminapi.Config) {
				held.Store = c.People
				c.Gate, c.Closing = auth.NewGate(held, auth.Options{}), closing
				c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(loopbackNetwork)}
				c.ObserveShares = func(class string, count func() shares.Count) {
					if class == "identify" {
						lookups = count
					}
				}
			})
			by := w.person(w.acme, auth.Viewer)
			ask := func(by caller, ip string) answer {
				return w.send(by, "GET", "/api/v1/tenants/acme/rules", nil, "X-Forwarded-For", ip)
			}
			if isVerified {
				w.want(ask(by, "203.0.113.7"), http.StatusOK)
			}
			held.person = auth.DigestSecret(by.session)
			held.isHeld.Store(true)
			var group sync.WaitGroup
			await := func(requests int) {
				t.Helper()
				await(t, fmt.Sprint(requests, " requests in line"), func() bool {
					now := lookups()
					return now.Held+now.Waiting+int(now.Refused) >= requests
				})
			}
			for i := range flood {
				group.Go(func() { ask(caller{session: invented()}, fmt.Sprintf("198.51.100.%d", i%250)) })
			}
			await(flood)
			answered := make(chan answer, 1)
			go func() { answered <- ask(by, "203.0.113.7") }()
			await(flood + 1)
			for isAnswered := false; !isAnswered; {
				select {
				case held.turns <- struct{}{}:
				case got := <-answered:
					w.want(got, http.StatusOK)
					isAnswered = true
				}
			}
			if ahead := held.ahead.Load(); !held.isSeen.Load() || ahead > 10 {
				t.Errorf("%d lookups come before the person's", ahead)
			}
			close(held.turns)
			group.Wait()
		})
	}
}

func TestANetworkBeyondItsRateCausesNoLookups(t *testing.T) {
	t.Parallel()
	held := &heldSessions{}
	l := newLimited(t, func(c *adminapi.Config) {
		held.Store = c.People
		c.People, c.Gate = held, auth.NewGate(held, auth.Options{})
	})
	by := l.person(l.acme, auth.Viewer)
	known := l.keyOf(l.acme, auth.PermissionManage)
	l.refresh()
	const path = "/api/v1/tenants/acme/rules"
	l.get(by, path)
	l.exhaust(adminapi.PayerNetwork, loopbackNetwork)
	before := held.looked.Load()
	l.wantDenied(l.send(caller{session: invented()}, "GET", path, nil), "network")
	key, _, _ := auth.NewServiceKeyToken()
	l.wantDenied(l.send(caller{key: key}, "GET", path, nil), "network")
	if looked := held.looked.Load() - before; looked != 0 {
		t.Errorf("%d credentials are looked up", looked)
	}
	l.get(by, path)
	l.get(known, path) // the snapshot has it
	must(l.store.EndSessions(l.ctx(), by.account.ID))(t)
	l.want(l.send(by, "GET", path, nil), http.StatusTooManyRequests)
	ended := held.looked.Load()
	l.wantDenied(l.send(by, "GET", path, nil), "network")
	if held.looked.Load() != ended {
		t.Error("a session that has ended is still looked up")
	}
}
