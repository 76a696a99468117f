package checkapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/sluicegate/sluice/internal/adapt"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/checks/checkapi"
	"github.com/sluicegate/sluice/internal/checks/door"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/membucket"
)

// A start in a second of its own shows rounding.
var start = time.Date(2026, 12, 11, 14, 40, 0, 0, time.UTC)

const (
	secret    = "0123456789abcdef0123456789abcdef"
	fullKey   = "slk_full_" + secret
	recordKey = "slk_record_" + secret
	jsonType  = "application/json"
)

type harness struct {
	t        testing.TB
	config   checkapi.Config
	listener *fasthttputil.InmemoryListener // of the server that send uses; nil until then
	server   *checkapi.Server               // of a bubble
	now      time.Time
	store    *membucket.Store
	snapshot *snapshot.Snapshot
	ready    func() httpapi.Readiness
	storeErr error         // what the shared buckets answer instead of asking the store
	logged   slog.LevelVar // from this level on

	mu       sync.Mutex // for tests of many connections
	log      bytes.Buffer
	keysUsed []string
	decided  int
	observed observed
	reports  []adapt.Report
}

// User 7 is on pro, free-rider on free (the default), tenant 2 is suspended, and there is one key for each permission.
func newHarness(t testing.TB, settings rules.Settings, own ...rules.Rule) *harness {
	t.Helper()
	h := &harness{t: t, now: start, ready: func() httpapi.Readiness {
		return httpapi.Readiness{Open: true, RulesLoaded: true, Database: "up", Redis: "up"}
	}}
	h.store = membucket.New(membucket.Options{Clock: func() int64 { return h.now.UnixMicro() }})
	key := func(id string, tenant rules.TenantID, permissions ...auth.Permission) auth.Key {
		return auth.Key{ID: id, TenantID: tenant, Digest: auth.DigestSecret(secret), Permissions: permissions}
	}
	revoked, expired := key("revoked", 1, auth.PermissionCheck), key("expired", 1, auth.PermissionCheck)
	revoked.Revoked = true
	expired.ExpiresAt = start.Add(time.Second)
	h.snapshot = snapshot.New(snapshot.Rows{
		Tenants: []rules.Tenant{
			{ID: 1, Slug: "one", DefaultPlan: "free", Settings: settings},
			{ID: 2, Slug: "two", Suspended: true, Settings: settings},
			{ID: 4, Slug: "four", Settings: settings},
		},
		Plans: []rules.Plan{{TenantID: 1, Name: "free"}, {TenantID: 1, Name: "pro"}},
		Rules: own,
		Assignments: []rules.Assignment{
			{TenantID: 1, UserID: "7", Plan: "pro"},
			{TenantID: 1, UserID: "free-rider", Plan: "free"},
		},
		Keys: []auth.Key{
			key("full", 1, auth.PermissionCheck, auth.PermissionExplain), key("check", 1, auth.PermissionCheck),
			key("explain", 1, auth.PermissionExplain), key("manage", 1, auth.PermissionManage),
			key("report", 1, auth.PermissionReport), key("record", 1, auth.PermissionCheck, auth.PermissionReport),
			key("lease", 1, auth.PermissionLease),
			key("suspended", 2, auth.PermissionCheck, auth.PermissionExplain),
			key("other", 4, auth.PermissionCheck),
			key("orphan", 3, auth.PermissionCheck), revoked, expired,
		},
	})
	clock := func() time.Time { return h.now }
	lessor := enforce.NewLessor(h.store, h, clock, func(err error) { h.t.Error(err) })
	h.config = checkapi.Config{
		Config: door.Config{
			Snapshots: h,
			Readiness: func() httpapi.Readiness { return h.ready() },
			Log:       slog.New(slog.NewTextHandler(h, &slog.HandlerOptions{Level: &h.logged})),
			Observer:  h,
			KeyUsed: func(key *snapshot.Key, _ time.Time) {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.keysUsed = append(h.keysUsed, key.ID)
			},
			Now: clock,
		},
		Lessor:  lessor,
		Version: "v1.2.3",
		Limiter: enforce.NewLimiter(h, h.store, h, clock),
		Reports: h,
	}
	return h
}

func (h *harness) run(server *checkapi.Server, listener net.Listener) (stop func()) {
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	stop = sync.OnceFunc(func() {
		if err := server.Close(); err != nil {
			h.t.Errorf("closing the server ended with %v", err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			h.t.Errorf("the server ended with %v", err)
		}
	})
	h.t.Cleanup(stop)
	return stop
}

func (h *harness) Snapshot() *snapshot.Snapshot { return h.snapshot }

func (h *harness) Take(ctx context.Context, checks []enforce.BucketCheck) error {
	if h.storeErr != nil {
		return h.storeErr
	}
	return h.store.Take(ctx, checks)
}

func (h *harness) SettleReservation(
	ctx context.Context, tenant rules.TenantID, id enforce.ReservationID, with enforce.Settlement,
) (enforce.Settled, error) {
	if h.storeErr != nil {
		return enforce.Settled{}, h.storeErr
	}
	return h.store.SettleReservation(ctx, tenant, id, with)
}

func (h *harness) Decided(_ *snapshot.Tenant, _ *enforce.Check, d *enforce.Decision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.decided += int(d.Count())
}

func (h *harness) StoreAnswered(time.Duration, error) {}

var errStoreDown = errors.New("store is down")

func (h *harness) post(path, body string) *httptest.ResponseRecorder {
	return h.postAs(fullKey, path, body)
}

func (h *harness) postAs(key, path, body string) *httptest.ResponseRecorder {
	return h.sendAs(key, "POST", path, http.Header{"Content-Type": {jsonType}}, body)
}

func (h *harness) getAs(key, path string) *httptest.ResponseRecorder {
	return h.sendAs(key, "GET", path, http.Header{}, "")
}

func (h *harness) sendAs(key, method, path string, header http.Header, body string) *httptest.ResponseRecorder {
	if key != "" {
		header.Set("Authorization", "Bearer "+key)
	}
	return h.send(method, path, header, body)
}

func (h *harness) send(method, path string, header http.Header, body string) *httptest.ResponseRecorder {
	h.t.Helper()
	if h.listener == nil {
		h.listener = fasthttputil.NewInmemoryListener()
		h.run(checkapi.NewServer(h.config), h.listener)
	}
	var request strings.Builder
	fmt.Fprintf(&request, "%s %s HTTP/1.1\r\nHost: sluice\r\nConnection: close\r\nContent-Length: %d\r\n", method, path,
		len(body))
	if err := header.Write(&request); err != nil {
		h.t.Fatal(err)
	}
	conn, err := h.listener.Dial()
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request.String()+"\r\n"+body); err != nil {
		h.t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		h.t.Fatal(err)
	}
	head, body, _ := strings.Cut(string(answer), "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	w := httptest.NewRecorder()
	if _, err := fmt.Sscanf(lines[0], "HTTP/1.1 %d", &w.Code); err != nil {
		h.t.Fatalf("answered %q: %v", answer, err)
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		w.Header()[name] = append(w.Header()[name], value)
	}
	w.Body.WriteString(body)
	return w
}

func (h *harness) Write(line []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.Write(line)
}

func (h *harness) logText() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.log.Reset()
	return h.log.String()
}

type observed struct {
	route  string
	status int
	count  int
}

func (h *harness) RequestAnswered(route string, status int, _ time.Duration, _ string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.observed = observed{route, status, h.observed.count + 1}
}

func (h *harness) want(w *httptest.ResponseRecorder, status int, body string) {
	h.t.Helper()
	if w.Code != status || w.Body.String() != body {
		h.t.Errorf("answered %d\n     %s\nwant %d\n     %s", w.Code, w.Body, status, body)
	}
}

func (h *harness) wantStatus(w *httptest.ResponseRecorder, status int) {
	h.t.Helper()
	if w.Code != status {
		h.t.Errorf("answered %d %s, want %d", w.Code, w.Body, status)
	}
}

func (h *harness) wantHeaders(w *httptest.ResponseRecorder, want map[string]string) {
	h.t.Helper()
	for _, name := range []string{
		"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining",
		"X-RateLimit-Reset", "Retry-After", "X-Sluice-Reason",
	} {
		if got := header(w, name); got != want[name] {
			h.t.Errorf("%s is %q, want %q", name, got, want[name])
		}
	}
}

func header(w *httptest.ResponseRecorder, name string) string {
	return strings.Join(w.Header()[name], ", ")
}

func limit(t testing.TB, id rules.RuleID, pattern string, rate float64, burst int64) rules.Rule {
	t.Helper()
	parsed := must(rules.ParsePattern(pattern))(t)
	return rules.Rule{
		ID: id, TenantID: 1, Pattern: parsed, RatePerSecond: rate, RateUnit: rules.PerSecond, Burst: burst,
		Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce, Action: rules.ActionLimit, Active: true, Version: 1,
		InForceSince: start.Add(-time.Hour),
	}
}

func with(r rules.Rule, change func(*rules.Rule)) rules.Rule {
	change(&r)
	return r
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
