package adminapi_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func TestLookingForMistakesEndsAtTheTwentieth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	var unknown strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&unknown, ",\"%x\":1", i)
	}
	csv, yaml := map[string]string{"Content-Type": "text/csv"}, map[string]string{"Content-Type": "application/yaml"}
	const acme = "/api/v1/tenants/acme"
	for name, q := range map[string]request{
		"unknown fields": {"POST", acme + "/plans", "{" + unknown.String()[1:] + "}", nil},
		"items":          {"POST", acme + "/matrix", `{"cells":[` + strings.Repeat("1,", 400) + `1]}`, nil},
		"query":          {"GET", acme + "/rules?" + strings.ReplaceAll(unknown.String()[1:5000], ",", "&"), "", nil},
		"CSV":            {"POST", acme + "/users/import", "user_id,plan\n" + strings.Repeat(",\n", 1_000_000), csv},
		"YAML":           {"POST", acme + "/import", "rules:\n" + strings.Repeat("- 1\n", 50_000), yaml},
	} {
		start := time.Now()
		got := w.do(by, q)
		if mistakes := len(pointersOf(t, got)); got.status != http.StatusBadRequest || mistakes != 20 {
			t.Errorf("%s: answered %d with %d mistakes, want 20", name, got.status, mistakes)
		}
		t.Logf("%s: %s", name, time.Since(start))
	}
	tooMany := w.do(by, request{"POST", acme + "/import", "rules: [" + strings.Repeat("[],", 1_000_000) + "]\n", yaml})
	if tooMany.status != http.StatusBadRequest || !strings.Contains(tooMany.body, "at most 1000000 lines") {
		t.Errorf("a million lists are answered %d: %.300s", tooMany.status, tooMany.body)
	}
}

type lateBody struct {
	io.Reader
	meanwhile func()
}

func (b *lateBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && b.meanwhile != nil {
		b.meanwhile()
		b.meanwhile = nil
	}
	return n, err
}

func TestWhoSentAFileMustStillBeAllowedToWhenItHasArrived(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, test := range map[string]struct {
		meanwhile func(by caller)
		status    int
	}{
		"signed out": {
			func(by caller) { must(w.store.EndSessions(w.ctx(), by.account.ID))(t) },
			http.StatusUnauthorized,
		},
		"removed": {func(by caller) {
			if err := w.store.RemoveMember(w.ctx(), rules.Actor{}, w.acme.ID, by.account.ID, rules.AnyVersion,
				false); err != nil {
				t.Error(err)
			}
		}, http.StatusNotFound}, // to others the tenant does not exist
		"suspended": {func(caller) {
			acme := must(w.store.Tenant(w.ctx(), w.acme.ID))(t)
			w.suspend(&acme)
		}, http.StatusForbidden},
	} {
		acme := must(w.store.Tenant(w.ctx(), w.acme.ID))(t)
		acme.Suspended = false
		must(w.system().UpdateTenant(w.ctx(), acme))(t)
		by := w.person(w.acme, auth.Editor)
		body := &lateBody{strings.NewReader("user_id,plan\nlate,free\n"), func() { test.meanwhile(by) }}
		r := httptest.NewRequestWithContext(w.ctx(), "POST", "/api/v1/tenants/acme/users/import", body)
		r.Header.Set("Content-Type", "text/csv")
		r.AddCookie(&http.Cookie{Name: "sluice_session", Value: by.session})
		recorder := httptest.NewRecorder()
		w.handler.ServeHTTP(recorder, r)
		if recorder.Code != test.status {
			t.Errorf("%s: answered %d, want %d: %s", name, recorder.Code, test.status, recorder.Body)
		}
		if _, err := w.store.Assignment(w.ctx(), w.acme.ID, "late"); !errors.Is(err, rules.ErrNotFound) {
			t.Errorf("%s: the file was imported (%v)", name, err)
		}
	}
}

func TestAFileThatEndsEarlyIsItsSendersMistake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	r := httptest.NewRequestWithContext(w.ctx(), "POST", "/api/v1/tenants/acme/users/import",
		io.MultiReader(strings.NewReader("user_id,plan\na,fr"), &lateBody{brokenReader{}, nil}))
	r.Header.Set("Content-Type", "text/csv")
	r.AddCookie(&http.Cookie{Name: "sluice_session", Value: by.session})
	recorder := httptest.NewRecorder()
	w.handler.ServeHTTP(recorder, r)
	if recorder.Code != http.StatusBadRequest {
		t.Errorf("answered %d: %s", recorder.Code, recorder.Body)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

type readStores struct {
	adminapi.Stores
	after func()
}

func (s *readStores) Assignments(ctx context.Context, tenant rules.TenantID, plan, prefix, after string,
	limit int,
) ([]rules.Assignment, error) {
	page, err := s.Stores.Assignments(ctx, tenant, plan, prefix, after, limit)
	s.after()
	return page, err
}

func (s *readStores) ExportChunk(ctx context.Context, tenant rules.TenantID, id int64, number int) ([]byte, error) {
	chunk, err := s.Stores.ExportChunk(ctx, tenant, id, number)
	s.after()
	return chunk, err
}

func TestAHeadOfAnExportReadsNoRows(t *testing.T) {
	t.Parallel()
	stores := &readStores{after: func() { t.Error("a HEAD reads rows") }}
	w := newWorld(t, func(c *adminapi.Config) { stores.Stores, c.Stores = c.Stores, stores })
	head := httptest.NewRequestWithContext(w.ctx(), "HEAD", "/api/v1/tenants/acme/users/export", nil)
	head.AddCookie(&http.Cookie{Name: "sluice_session", Value: w.person(w.acme, auth.Viewer).session})
	recorder := httptest.NewRecorder()
	w.handler.ServeHTTP(recorder, head)
	if recorder.Code != http.StatusOK || recorder.Body.Len() > 0 || recorder.Header().Get("Content-Disposition") == "" {
		t.Errorf("a HEAD is answered %d with %v", recorder.Code, recorder.Header())
	}
}

func TestADownloadEndsWhenItsReaderMayReadNoLonger(t *testing.T) {
	t.Parallel()
	stores := &readStores{after: func() {}}
	w := newWorld(t, func(c *adminapi.Config) { stores.Stores, c.Stores = c.Stores, stores })
	by := w.person(w.acme, auth.Viewer)
	id := w.exportOf(w.acme, by)
	var chunk bytes.Buffer
	packed := gzip.NewWriter(&chunk)
	must(packed.Write(bytes.Repeat([]byte("42,free\n"), 20_000)))(t) // more than the server's buffers hold
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	w.exec(`INSERT INTO export_chunk (tenant_id, export_id, number, data)
		SELECT $1, $2, n, $3 FROM generate_series(0, 1) AS n`, w.acme.ID, id, chunk.Bytes())
	w.exec("UPDATE export SET chunks = 2 WHERE export_id = $1", id)
	path := fmt.Sprintf("/api/v1/tenants/acme/exports/%d/file", id)
	if lines := strings.Count(w.get(by, path).body, "\n"); lines != 40_000 {
		t.Errorf("the file has %d lines", lines)
	}
	stores.after = func() { must(w.store.EndSessions(w.ctx(), by.account.ID))(t) }
	if got := w.send(by, "GET", path, nil); got.status != 0 {
		t.Errorf("the file is answered %d to its end, want a broken connection", got.status)
	}
}

func TestOnlyPlatformAdminsUndoASuspension(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, owner := w.platformAdmin(), w.person(w.acme, auth.Owner)
	for _, act := range []string{"suspend", "resume"} {
		w.want(w.send(admin, "POST", "/api/v1/tenants/acme/"+act, nil, "If-Match", "*"), http.StatusOK)
	}
	entries, _, err := w.store.Audit(w.ctx(), w.acme.ID, auth.AuditFilter{ObjectKind: "tenant"}, auth.LogCursor{}, 1)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	undo := fmt.Sprintf("/api/v1/tenants/acme/audit/%d/revert", entries[0].ID)
	w.want(w.send(owner, "POST", undo, nil), http.StatusForbidden)
	w.want(w.send(admin, "POST", undo, nil), http.StatusOK)

	token := *w.inviteSystem(w.acme, "late@example.com")
	accept := map[string]any{"token": token, "name": "Late", "password": password}
	refused := w.want(w.send(caller{}, "POST", "/api/v1/invitations/accept", accept), http.StatusForbidden)
	if told := read[problem](t, refused); told.Type != "urn:sluice:problem:tenant-suspended" {
		t.Errorf("it is refused as %s", told.Type)
	}
	late := auth.Account{Name: "Late"} // whom the suspension overtook on the way to the database
	if _, err := w.store.AcceptAsNew(w.ctx(), rules.Actor{}, sha256.Sum256([]byte(token)), late,
		passwordHash()); !errors.Is(err, auth.ErrSuspended) {
		t.Errorf("the database accepts it: %v", err)
	}
	w.want(w.send(admin, "POST", "/api/v1/tenants/acme/resume", nil, "If-Match", "*"), http.StatusOK)
	w.want(w.send(caller{}, "POST", "/api/v1/invitations/accept", accept), http.StatusOK)
}

func TestAKeyIsJudgedByItsRowToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	owner := w.person(w.acme, auth.Owner)
	id, key := w.key(w.acme, auth.PermissionManage)
	w.refresh()
	by := caller{key: key}
	w.get(by, "/api/v1/tenants/acme")
	w.want(w.send(owner, "POST", "/api/v1/tenants/acme/api-keys/"+id+"/revoke", nil, "If-Match", "*"), http.StatusOK)
	w.want(w.send(by, "GET", "/api/v1/tenants/acme", nil), http.StatusUnauthorized) // which memory does not know yet
	basic := w.do(owner, request{
		"GET", "/api/v1/session", "",
		map[string]string{"Authorization": "Basic Zm9vOmJhcg=="},
	})
	w.want(basic, http.StatusOK)
}

func TestARotatedKeyKeepsItsExpiry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	const keys = "/api/v1/tenants/acme/api-keys"
	end, later := time.Now().Add(time.Hour).UTC().Truncate(time.Second),
		time.Now().Add(2*time.Hour).UTC().Truncate(time.Second)
	type made struct {
		Key struct {
			KeyID     string    `json:"key_id"`
			ExpiresAt time.Time `json:"expires_at"`
		} `json:"key"`
	}
	first := read[made](t, w.want(w.send(by, "POST", keys,
		map[string]any{"name": "k", "permissions": []string{"check"}, "expires_at": end}), http.StatusCreated))
	second := read[made](t, w.want(w.send(by, "POST", keys+"/"+first.Key.KeyID+"/rotate",
		map[string]any{"grace_seconds": 60}, "If-Match", "*"), http.StatusCreated))
	if !second.Key.ExpiresAt.Equal(end) {
		t.Errorf("the new key expires at %s, want %s", second.Key.ExpiresAt, end)
	}
	third := read[made](t, w.want(w.send(by, "POST", keys+"/"+second.Key.KeyID+"/rotate",
		map[string]any{"grace_seconds": 0, "expires_at": later}, "If-Match", "*"), http.StatusCreated))
	if !third.Key.ExpiresAt.Equal(later) {
		t.Errorf("the new key expires at %s, want %s", third.Key.ExpiresAt, later)
	}
}

func TestAnotherUsersBucketIsNotChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	pattern := func(text string) func(*rules.Rule) {
		return func(r *rules.Rule) { r.Pattern = must(rules.ParsePattern(text))(t) }
	}
	own, named, shared := w.rule(w.acme), w.rule(w.acme, pattern("user:victim")), w.rule(w.acme, pattern("global"))
	w.refresh()
	const path = "/api/v1/tenants/acme/users/somebody/buckets/credit"
	for _, key := range []string{
		fmt.Sprintf("%d:victim", own.ID), fmt.Sprintf("%d:", named.ID),
		fmt.Sprintf("%d:", shared.ID),
	} {
		w.want(w.send(by, "POST", path, map[string]any{"bucket_key": key, "tokens": -1}), http.StatusBadRequest)
	}
	w.violate(denied(w.acme, lately(), func(v *violations.Violation) {
		v.Rule, v.Subject, v.Pattern, v.Scope, v.UserID = shared.ID, "", "global", rules.ScopeGlobal, "somebody"
	}))
	w.want(w.send(by, "POST", path, map[string]any{"bucket_key": fmt.Sprintf("%d:", shared.ID), "tokens": -1}),
		http.StatusOK)
	entries, _, err := w.store.Audit(w.ctx(), w.acme.ID, auth.AuditFilter{ObjectKind: "bucket"}, auth.LogCursor{}, 10)
	if err != nil || len(entries) != 1 || strings.Contains(string(entries[0].After), "user_id") {
		t.Errorf("the audit log has %+v, %v", entries, err)
	}
}
