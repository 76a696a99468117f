package adminapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

type greedy struct {
	*world
	locks  *pgx.Conn
	locked pgx.Tx
	group  sync.WaitGroup
}

func newGreedy(w *world, table string) *greedy {
	w.t.Helper()
	g := &greedy{world: w, locks: must(pgx.Connect(w.ctx(), w.url))(w.t)}
	g.locked = must(must(pgx.Connect(w.ctx(), w.url))(w.t).Begin(w.ctx()))(w.t)
	must(g.locked.Exec(w.ctx(), "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE"))(w.t)
	w.t.Cleanup(func() {
		g.end()
		_ = g.locks.Close(context.WithoutCancel(w.ctx()))
		_ = g.locked.Conn().Close(context.WithoutCancel(w.ctx()))
	})
	return g
}

func (g *greedy) end() {
	_ = g.locked.Rollback(context.WithoutCancel(g.t.Context())) // an error says that it has ended before
	g.group.Wait()
}

func (g *greedy) send(by caller, times int, q request) {
	for range times {
		g.group.Go(func() { g.do(by, q) })
	}
}

func (g *greedy) held() (held int) {
	g.t.Helper()
	err := g.locks.QueryRow(g.ctx(),
		"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(
		&held)
	if err != nil {
		g.t.Fatal(err)
	}
	return held
}

func (g *greedy) await(connections int) {
	g.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		held := g.held()
		if held >= connections {
			return
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("%d connections are held, want %d", held, connections)
		}
	}
}

func TestReadsThatTakeLongKeepNobodyFromSigningInReadingOrWriting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	viewer, colleague, neighbour := w.person(w.acme, auth.Viewer), w.person(w.acme, auth.Editor),
		w.person(w.other, auth.Editor)
	second := w.account(false)
	w.member(w.other, second, auth.Viewer)
	g := newGreedy(w, "rate_limit_violation")
	g.send(viewer, 80, request{method: "GET", path: "/api/v1/tenants/acme/violations?plan=none"})
	g.send(w.signedIn(second), 80, request{method: "GET", path: "/api/v1/tenants/other/violations/export?plan=none"})
	g.await(2)
	for name, got := range map[string]answer{
		"signing in": w.send(caller{}, "POST", "/api/v1/session",
			map[string]any{"email": neighbour.account.Email, "password": password}),
		"a neighbour reads":   w.send(neighbour, "GET", "/api/v1/tenants/other/rules", nil),
		"a neighbour writes":  w.send(neighbour, "POST", "/api/v1/tenants/other/plans", map[string]any{"name": "gold"}),
		"a colleague reads":   w.send(colleague, "GET", "/api/v1/tenants/acme/rules", nil),
		"a colleague writes":  w.send(colleague, "POST", "/api/v1/tenants/acme/plans", map[string]any{"name": "gold"}),
		"the viewer reads on": w.send(viewer, "GET", "/api/v1/tenants/acme/rules", nil),
	} {
		if got.status != http.StatusOK && got.status != http.StatusCreated {
			t.Errorf("%s: answered %d: %s", name, got.status, got.body)
		}
	}
	w.refresh() // the Watcher reads
	g.end()
	refused := 0
	for _, got := range w.answers {
		if got.status == http.StatusTooManyRequests {
			refused++
			if got.header.Get("Retry-After") == "" || !strings.Contains(got.body, "in flight") &&
				!strings.Contains(got.body, "too many open") {
				t.Errorf("a refusal says %s", got.body)
			}
		}
	}
	if refused == 0 {
		t.Error("80 requests of one account at once are all answered")
	}
}

// TestRequestsLeaveConnectionsToTheProgram lets the requests of five tenants hold all connections that requests may
// have: 7 light ones, 3 heavy and 2 in bulk of 20.
func TestRequestsLeaveConnectionsToTheProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const slots = 7 + 3 + 2
	outsider := w.person(w.other, auth.Viewer)
	var tenants []rules.Tenant
	people := map[string][]caller{}
	for i := range 5 {
		tenant := w.tenant(fmt.Sprintf("tenant-%d", i))
		tenants = append(tenants, tenant)
		for range 4 {
			people[tenant.Slug] = append(people[tenant.Slug], w.person(tenant, auth.Editor))
		}
	}
	w.refresh()
	g := newGreedy(w, "audit_event, rate_limit_violation, plan_assignment")
	for _, tenant := range tenants {
		path := "/api/v1/tenants/" + tenant.Slug
		for _, by := range people[tenant.Slug] {
			g.send(by, 1, request{method: "GET", path: path + "/audit/1"})
			g.send(by, 1, request{method: "GET", path: path + "/violations"})
			g.send(by, 1, request{
				"POST", path + "/users/import", "user_id,plan\n1,free\n",
				map[string]string{"Content-Type": "text/csv"},
			})
		}
	}
	g.await(slots)
	signIn := map[string]any{"email": outsider.account.Email, "password": password}
	w.want(w.send(caller{}, "POST", "/api/v1/session", signIn), http.StatusOK)
	w.want(w.send(outsider, "GET", "/api/v1/tenants/acme/rules", nil), http.StatusNotFound) // who was identified
	w.refresh()                                                                             // the Watcher reads
	if held := g.held(); held > slots {
		t.Errorf("requests hold %d connections, want at most %d", held, slots)
	}
}

func TestImportsOfTwoTenantsKeepNobodyFromWriting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	third := w.tenant("third")
	rule := w.rule(third)
	by := w.person(third, auth.Editor)
	csv := map[string]string{"Content-Type": "text/csv"}
	g := newGreedy(w, "plan_assignment")
	for _, tenant := range []rules.Tenant{w.acme, w.other} {
		path := "/api/v1/tenants/" + tenant.Slug + "/users/import"
		g.send(w.person(tenant, auth.Editor), 1, request{"POST", path, "user_id,plan\n1,free\n", csv})
	}
	g.await(2)
	w.want(w.send(by, "DELETE", fmt.Sprintf("/api/v1/tenants/third/rules/%d", rule.ID), nil, "If-Match", "*"),
		http.StatusNoContent)
	w.want(w.send(by, "POST", "/api/v1/tenants/third/matrix", map[string]any{"cells": []any{
		map[string]any{
			"key_pattern": "user:{user_id}", "plan": "free", "version": 0, "rate_per_second": 1,
			"rate_unit": "second", "burst_capacity": 5,
		},
	}}), http.StatusOK)
}

type slowReader struct {
	*httptest.ResponseRecorder
	begun, let chan struct{}
	once       sync.Once
}

func (s *slowReader) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.begun) })
	<-s.let
	return s.ResponseRecorder.Write(p)
}

func TestSlowReadersOfWholeFilesKeepNobodyFromTheirs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var group sync.WaitGroup
	let := make(chan struct{})
	for _, tenant := range []rules.Tenant{w.acme, w.other} {
		var changes ruleset.Changes
		for i := range 200 {
			plan := rules.Plan{Name: fmt.Sprintf("plan-%d", i), Description: strings.Repeat("x", 500)}
			changes.Plans = append(changes.Plans, ruleset.Change[rules.Plan]{After: &plan})
		}
		must(w.system().ChangeConfig(w.ctx(), tenant.ID,
			func(ruleset.Config) (ruleset.Changes, error) { return changes, nil }))(t)
		r := httptest.NewRequestWithContext(w.ctx(), "GET", loopback+"/api/v1/tenants/"+tenant.Slug+"/export", nil)
		r.AddCookie(&http.Cookie{Name: "sluice_session", Value: w.person(tenant, auth.Viewer).session})
		reader := &slowReader{ResponseRecorder: httptest.NewRecorder(), begun: make(chan struct{}), let: let}
		group.Go(func() {
			w.handler.ServeHTTP(reader, r)
			if lines := bytes.Count(reader.Body.Bytes(), []byte("\n")); lines < 400 {
				t.Errorf("a slow reader got %d lines", lines)
			}
		})
		<-reader.begun
	}
	third := w.tenant("third")
	w.get(w.person(third, auth.Viewer), "/api/v1/tenants/third/export")
	close(let)
	group.Wait()
}

type heldStores struct {
	adminapi.Stores
	begun, let chan struct{}
}

func (s *heldStores) Config(ctx context.Context, tenant rules.TenantID) (ruleset.Config, error) {
	s.begun <- struct{}{}
	<-s.let
	return s.Stores.Config(ctx, tenant)
}

func TestWholeFilesAreInMemoryTwoAtATimeAndOneOfEachTenant(t *testing.T) {
	t.Parallel()
	stores := &heldStores{begun: make(chan struct{}), let: make(chan struct{})}
	w := newWorld(t, func(c *adminapi.Config) { stores.Stores, c.Stores = c.Stores, stores })
	third := w.tenant("third")
	by := w.person(w.acme, auth.Viewer)
	others := []caller{w.person(w.other, auth.Viewer), w.person(third, auth.Viewer)}
	var group sync.WaitGroup
	export := func(by caller, slug string) {
		group.Go(func() {
			if got := w.send(by, "GET", "/api/v1/tenants/"+slug+"/export", nil); got.status != http.StatusOK {
				t.Errorf("answered %d: %s", got.status, got.body)
			}
		})
	}
	export(by, "acme")
	<-stores.begun
	export(by, "acme") // which waits, and leaves its slot to the next
	export(others[0], "other")
	<-stores.begun
	export(others[1], "third")
	for range 2 {
		stores.let <- struct{}{}
		<-stores.begun // one of those that wait, only now
	}
	close(stores.let)
	group.Wait()
}

func TestUploadsHaveShares(t *testing.T) {
	t.Parallel()
	w := newCrowded(t)
	server := httptest.NewServer(w.handler)
	defer server.Close()
	upload := func(by caller, slug string, body io.Reader) int {
		r := must(http.NewRequestWithContext(w.ctx(), http.MethodPost,
			server.URL+"/api/v1/tenants/"+slug+"/users/import?dry_run=true", body))(t)
		r.Header.Set("Content-Type", "text/csv")
		r.AddCookie(&http.Cookie{Name: "sluice_session", Value: by.session})
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	people := []caller{w.person(w.acme, auth.Editor), w.person(w.acme, auth.Editor), w.person(w.acme, auth.Editor)}
	var slow sync.WaitGroup
	var ends []*io.PipeWriter
	begin := func(by caller) {
		body, end := io.Pipe()
		ends = append(ends, end)
		slow.Go(func() {
			if status := upload(by, "acme", body); status != http.StatusOK {
				t.Errorf("a slow upload is answered %d", status)
			}
		})
		must(end.Write([]byte("user_id,plan\n")))(t)
	}
	begin(people[0])
	begin(people[0])
	w.await("two uploads", func() bool { return w.counts["uploads"]().Held == 2 })
	if status := upload(people[0], "acme", strings.NewReader("user_id,plan\n")); status != http.StatusTooManyRequests {
		t.Errorf("an account's third upload is answered %d", status)
	}
	begin(people[1])
	begin(people[1])
	w.await("four uploads", func() bool { return w.counts["uploads"]().Held == 4 })
	if status := upload(people[2], "acme", strings.NewReader("user_id,plan\n")); status != http.StatusTooManyRequests {
		t.Errorf("a tenant's fifth upload is answered %d", status)
	}
	if status := upload(w.person(w.other, auth.Editor), "other",
		strings.NewReader("user_id,plan\n")); status != http.StatusOK {
		t.Errorf("a neighbour's upload is answered %d", status)
	}
	for _, end := range ends {
		_ = end.Close()
	}
	slow.Wait()
}
