package adminapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func withoutDatabase(t *testing.T) func(*adminapi.Config) {
	nobody := must(devdb.ReservePort())(t)
	t.Cleanup(nobody.Release)
	return func(c *adminapi.Config) {
		away := must(pgstore.Open(t.Context(), "postgres://sluice@"+nobody.Addr()+"/sluice?sslmode=disable",
			c.Requests.Log))(t)
		t.Cleanup(away.Close)
		c.Stores, c.People, c.Gate = away, away, auth.NewGate(away, auth.Options{})
	}
}

func TestADatabaseThatIsAwayIsAnOutageAndNoRefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutDatabase(t))
	by := w.person(w.acme, auth.Owner)
	_, key := w.key(w.acme, auth.PermissionManage)
	w.refresh()
	for name, got := range map[string]answer{
		"a session": w.send(by, "GET", "/api/v1/session", nil),
		"a list":    w.send(by, "GET", "/api/v1/tenants/acme/rules", nil),
		"an export": w.send(by, "GET", "/api/v1/tenants/acme/users/export", nil),
		"a key":     w.send(caller{key: key}, "GET", "/api/v1/tenants/acme/rules", nil),
		"signing in": w.send(caller{}, "POST", "/api/v1/session",
			map[string]any{"email": by.account.Email, "password": password}),
		"a wrong one": w.send(caller{}, "POST", "/api/v1/session",
			map[string]any{"email": by.account.Email, "password": "wrong"}),
	} {
		if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" ||
			len(got.header.Values("Set-Cookie")) > 0 {
			t.Errorf("%s is answered %d: %s", name, got.status, got.body)
		}
	}
	w.get(caller{}, "/healthz")
	w.want(w.send(caller{key: "slk_nobody_0123456789abcdef0123456789abcdef"}, "GET", "/api/v1/tenants", nil),
		http.StatusUnauthorized)
}

func TestAnOutageIsNoStrangersRequest(t *testing.T) {
	t.Parallel()
	l := newLimited(t, withoutDatabase(t))
	by := l.person(l.acme, auth.Owner)
	_, key := l.key(l.acme, auth.PermissionManage)
	l.refresh()
	for _, by := range []caller{by, {key: key}} {
		for _, path := range []string{"/rules", "/violations", "/users/export"} {
			l.want(l.send(by, "GET", "/api/v1/tenants/acme"+path, nil), http.StatusServiceUnavailable)
		}
	}
	if left := l.exhaust(adminapi.PayerNetwork, loopbackNetwork); left != 2000 {
		t.Errorf("the network has %d tokens left, want all 2000", left)
	}
}

func TestAKeyBeforeTheFirstSnapshotIsNoStrangersRequest(t *testing.T) {
	t.Parallel()
	l := newLimited(t, func(c *adminapi.Config) {
		c.Snapshots = snapshot.NewWatcher(nil, snapshot.WatcherOptions{
			PollInterval: time.Second, RereadInterval: time.Minute, Logger: c.Requests.Log,
		})
	})
	_, key := l.key(l.acme, auth.PermissionManage)
	for range 3 {
		got := l.want(l.send(caller{key: key}, "GET", "/api/v1/tenants/acme/rules", nil), http.StatusServiceUnavailable)
		if !strings.Contains(got.body, "No API keys were loaded yet") {
			t.Errorf("the answer is %s", got.body)
		}
	}
	if left := l.exhaust(adminapi.PayerNetwork, loopbackNetwork); left != 2000 {
		t.Errorf("the network has %d tokens left, want all 2000", left)
	}
}

func TestExportsHoldEveryRowOnceAcrossPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Viewer)
	const users = 2500 // of which a page is 1000
	assignments := make([]rules.Assignment, users)
	for i := range assignments {
		assignments[i] = rules.Assignment{TenantID: w.acme.ID, UserID: fmt.Sprintf("user-%d", i), Plan: "free"}
	}
	must(w.system().AssignAll(w.ctx(), w.acme.ID, assignments))(t)
	csv := w.get(by, "/api/v1/tenants/acme/users/export")
	if lines := strings.Count(csv.body, "\n"); lines != users+1 {
		t.Errorf("%d lines of users, want %d", lines, users+1)
	}
	if name := csv.header.Get("Content-Disposition"); name != `attachment; filename="acme-users.csv"` {
		t.Errorf("the file is %s", name)
	}
	seen := map[string]bool{}
	audit := w.get(by, "/api/v1/tenants/acme/audit/export?format=jsonl&object_kind=user")
	for line := range strings.Lines(audit.body) {
		var entry struct {
			Object struct{ ID string }
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		seen[entry.Object.ID] = true
	}
	if lines := strings.Count(audit.body, "\n"); len(seen) != users || lines != users {
		t.Errorf("%d users on %d lines, want %d", len(seen), lines, users)
	}
}
