package adminapi_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/shares"
	"github.com/sluicegate/sluice/internal/violations"
)

// crowded is a world whose statistics take until the test ends, and which counts the queries for API keys.
type crowded struct {
	*world
	*keyCounter
	counts map[string]func() shares.Count
	ended  chan struct{}
	group  sync.WaitGroup
}

type keyCounter struct {
	adminapi.Stores
	keyQueries atomic.Int32
}

func (s *keyCounter) Key(ctx context.Context, tenant rules.TenantID, id string) (auth.NamedKey, error) {
	s.keyQueries.Add(1)
	return s.Stores.Key(ctx, tenant, id)
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

func newCrowded(t *testing.T) *crowded {
	t.Helper()
	c := &crowded{keyCounter: &keyCounter{}, counts: map[string]func() shares.Count{}, ended: make(chan struct{})}
	c.world = newWorld(t, func(config *adminapi.Config) {
		c.Stores = config.Stores
		config.Stores = c.keyCounter
		config.Violations = &endlessStatistics{config.Violations, c.ended}
		config.ObserveShares = func(class string, count func() shares.Count) { c.counts[class] = count }
	})
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

// ask sends requests for statistics and returns when so many requests of all are under way.
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
	for deadline := time.Now().Add(patience); !isThere(); {
		if time.Now().After(deadline) {
			c.t.Fatalf("no %s: %+v", what, c.counts["heavy"]())
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // other goroutines work meanwhile
	}
}

func TestATenantThatHasAllItMayLeavesARunningPlaceToAnother(t *testing.T) {
	t.Parallel()
	c := newCrowded(t)
	greedy, colleague := c.person(c.acme, auth.Viewer), c.person(c.acme, auth.Viewer)
	c.ask(greedy, "acme", 32, 32)
	held := c.counts["heavy"]().Held
	c.ask(colleague, "acme", 1, 33)
	if now := c.counts["heavy"]().Held; now != held {
		t.Errorf("another member's request raises the tenant's places from %d to %d", held, now)
	}
	c.ask(c.person(c.other, auth.Viewer), "other", 1, 34)
	if now := c.counts["heavy"]().Held; now != held+1 {
		t.Errorf("a neighbour's request does not run: %d places are held, %d before", now, held)
	}
	for name, by := range map[string]caller{"the greedy account": greedy, "its colleague": colleague} {
		if got := c.send(by, "GET", "/api/v1/tenants/acme/rules", nil); got.status != http.StatusOK {
			t.Errorf("%s reads rules: answered %d: %s", name, got.status, got.body)
		}
	}
	c.end()
	for class, count := range c.counts {
		if now := count(); now.Held+now.Waiting != 0 {
			t.Errorf("%s: %+v when all requests have ended", class, now)
		}
	}
}

func TestARequestTooManyOfAKeyIsRefusedWithoutAQuery(t *testing.T) {
	t.Parallel()
	c := newCrowded(t)
	id, token := c.key(c.acme, auth.PermissionManage)
	c.refresh()
	greedy := caller{key: token}
	c.ask(greedy, "acme", 32, 32)
	asked := c.keyQueries.Load()
	got := c.send(greedy, "GET", "/api/v1/tenants/acme/violations", nil)
	if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("answered %d, Retry-After %q: %s", got.status, got.header.Get("Retry-After"), got.body)
	}
	if now := c.keyQueries.Load(); now != asked {
		t.Errorf("the refusal asked the database %d times", now-asked)
	}
	if refused := c.counts["heavy_arrivals"]().Refused; refused != 1 {
		t.Errorf("%d refusals are counted, want 1", refused)
	}
	forgedToken := "slk_" + id + "_" + strings.Repeat("x", len(token)-len("slk__")-len(id))
	forged := c.send(caller{key: forgedToken}, "GET", "/api/v1/tenants/acme/violations", nil)
	if forged.status != http.StatusUnauthorized {
		t.Errorf("who knows a key's id alone shares its places: answered %d", forged.status)
	}
	_, other := c.key(c.acme, auth.PermissionManage)
	c.refresh()
	if got := c.send(caller{key: other}, "GET", "/api/v1/tenants/acme/rules", nil); got.status != http.StatusOK {
		t.Errorf("another key of the tenant: answered %d: %s", got.status, got.body)
	}
}
