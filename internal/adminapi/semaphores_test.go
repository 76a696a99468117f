package adminapi_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/shares"
	"github.com/sluicegate/sluice/internal/violations"
)

// crowded is a world whose statistics take until the test ends.
type crowded struct {
	*world
	counts map[string]func() shares.Count
	ended  chan struct{}
	group  sync.WaitGroup
}

type endlessStatistics struct {
	violations.Store
	ended chan struct{}
}

func (s *endlessStatistics) Violations(
	ctx context.Context, tenant rules.TenantID, filter *violations.Filter, before violations.ID, limit int,
) (violations.Page, error) {
	<-s.ended
	return s.Store.Violations(ctx, tenant, filter, before, limit)
}

func newCrowded(t *testing.T, change ...func(*adminapi.Config)) *crowded {
	t.Helper()
	c := &crowded{counts: map[string]func() shares.Count{}, ended: make(chan struct{})}
	c.world = newWorld(t, append(change, func(config *adminapi.Config) {
		config.Violations = &endlessStatistics{config.Violations, c.ended}
		config.ObserveShares = func(class string, count func() shares.Count) { c.counts[class] = count }
	})...)
	t.Cleanup(c.end)
	return c
}

func (c *crowded) end() {
	select {
	case <-c.ended:
	default:
		close(c.ended)
	}
	c.group.Wait()
}

func (c *crowded) ask(by caller, tenant string, times, underWay int) {
	c.t.Helper()
	for range times {
		c.group.Go(func() { c.do(by, request{method: "GET", path: "/api/v1/tenants/" + tenant + "/violations"}) })
	}
	c.await("requests under way", func() bool {
		heavy := c.counts["heavy"]()
		return heavy.Held+heavy.Waiting == underWay
	})
}

func (c *crowded) await(what string, isThere func() bool) {
	c.t.Helper()
	await(c.t, what, isThere)
}

func await(t testing.TB, what string, isThere func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !isThere(); {
		if time.Now().After(deadline) {
			t.Fatalf("no %s", what)
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // other goroutines work meanwhile
	}
}

const (
	runningOfTenant  = 2
	runningOfAccount = 1
	waitingOfAccount = 32
)

func TestATenantThatHasAllItMayLeavesARunningPlaceToAnother(t *testing.T) {
	t.Parallel()
	c := newCrowded(t)
	greedy := []caller{c.person(c.acme, auth.Viewer), c.person(c.acme, auth.Viewer)}
	for i, by := range greedy {
		c.ask(by, "acme", 10, 10*(i+1))
	}
	wantHeld := func(want int) {
		t.Helper()
		if now := c.counts["heavy"]().Held; now != want {
			t.Errorf("%d places are held, want %d", now, want)
		}
	}
	wantHeld(runningOfTenant)
	c.ask(c.person(c.acme, auth.Viewer), "acme", 1, 21)
	wantHeld(runningOfTenant)
	c.ask(c.person(c.other, auth.Viewer), "other", 1, 22)
	wantHeld(runningOfTenant + 1)
	for _, by := range greedy {
		c.get(by, "/api/v1/tenants/acme/rules")
	}
	c.end()
	for class, count := range c.counts {
		if now := count(); now.Held+now.Waiting != 0 {
			t.Errorf("%s: %+v when all requests have ended", class, now)
		}
	}
}

func TestARequestTooManyOfAKeyIsRefused(t *testing.T) {
	t.Parallel()
	c := newCrowded(t)
	id, token := c.key(c.acme, auth.PermissionManage)
	c.refresh()
	greedy := caller{key: token}
	c.ask(greedy, "acme", runningOfAccount+waitingOfAccount, runningOfAccount+waitingOfAccount)
	got := c.send(greedy, "GET", "/api/v1/tenants/acme/violations", nil)
	if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("answered %d, Retry-After %q: %s", got.status, got.header.Get("Retry-After"), got.body)
	}
	if refused := c.counts["heavy"]().Refused; refused != 1 {
		t.Errorf("%d refusals are counted, want 1", refused)
	}
	forgedToken := "slk_" + id + "_" + strings.Repeat("x", len(token)-len("slk__")-len(id))
	forged := c.send(caller{key: forgedToken}, "GET", "/api/v1/tenants/acme/violations", nil)
	if forged.status != http.StatusUnauthorized {
		t.Errorf("who knows a key's id alone shares its places: answered %d", forged.status)
	}
	_, other := c.key(c.acme, auth.PermissionManage)
	c.refresh()
	c.get(caller{key: other}, "/api/v1/tenants/acme/rules")
}
