package adminapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

type export struct {
	ID         int64      `json:"export_id,string"`
	What       string     `json:"what"`
	Name       string     `json:"name"`
	Rows       int64      `json:"rows"`
	FinishedAt *time.Time `json:"finished_at"`
	ExpiresAt  *time.Time `json:"expires_at"`
	Error      string     `json:"error"`
	File       string     `json:"file"`
}

func (w *world) exportOf(tenant rules.Tenant, by caller) (id int64) {
	w.t.Helper()
	kind, maker := rules.ActorAccount, fmt.Sprint(by.account.ID)
	if by.key != "" {
		kind, maker = rules.ActorKey, strings.Split(by.key+"_", "_")[1]
	}
	connection := must(pgx.Connect(w.ctx(), w.url))(w.t)
	defer func() { _ = connection.Close(w.ctx()) }()
	err := connection.QueryRow(w.ctx(), `INSERT INTO export
		(tenant_id, requested_by_kind, requested_by_id, request, finished_at) VALUES ($1, $2, $3,
			'{"what": "users", "name": "acme-users.csv", "media_type": "text/csv; charset=utf-8", "least": "viewer"}',
			now())
		RETURNING export_id`, tenant.ID, kind, maker).Scan(&id)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) writeExports() {
	w.t.Helper()
	for w.count("SELECT count(*) FROM job WHERE kind = 'export' AND next_run_at <= clock_timestamp()") > 0 {
		w.round(w.store.ExportWork(adminapi.WriteExports(w.store, w.store)))
	}
}

func (w *world) madeFile(by caller, path string) string {
	w.t.Helper()
	address := w.want(w.send(by, "POST", path, nil), http.StatusAccepted).header.Get("Location")
	w.writeExports()
	done := read[export](w.t, w.get(by, address))
	if done.FinishedAt == nil || done.Error != "" || done.File != address+"/file" {
		w.t.Fatalf("the export is %+v", done)
	}
	return done.File
}

func (w *world) exported(by caller, path string) answer {
	w.t.Helper()
	return w.get(by, w.madeFile(by, path))
}

func TestAnExportAbove10000RowsIsAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, admin := w.person(w.acme, auth.Owner), w.platformAdmin()
	const most = 10_000
	paths := []string{
		"violations/export", "violations/export?format=jsonl", "audit/export?object_kind=user",
		"users/export", "usage/export?by=user",
	}
	add := func(from, to int) {
		for _, sql := range []string{
			`INSERT INTO plan_assignment (tenant_id, user_id, plan, revision)
				SELECT %[1]d, 'user-' || i, 'free', 1 FROM generate_series(%[2]d, %[3]d) AS i`,
			`INSERT INTO rate_limit_violation (tenant_id, requested_at, last_at, count, rule_id, bucket_key, scope,
				mode, reason, key_pattern, rule_version, rate_per_second, burst_capacity, cost, algorithm, limit_text)
				SELECT %[1]d, now() - interval '1 minute' - i * interval '1 ms', now(), 1, 12, '12:', 'user', 'enforce',
					'limit_exceeded', 'user:{user_id}', 1, 1, 1, 1, 'token_bucket', ''
				FROM generate_series(%[2]d, %[3]d) AS i`,
			`INSERT INTO user_month (tenant_id, month, user_id, allowed, denied, cost_taken)
				SELECT %[1]d, date_trunc('month', now()), 'user-' || i, 5, 1, 5
				FROM generate_series(%[2]d, %[3]d) AS i`,
			`INSERT INTO access_event (at, access_id, tenant_id, tenant, count, kind, account_id, key_id, who, typed,
				user_agent, detail, request_id)
				SELECT now(), i, %[1]d, 'acme', 1, 'signed_out', 0, '', '', '', '', '', ''
				FROM generate_series(%[2]d, %[3]d) AS i`,
		} {
			w.exec(fmt.Sprintf(sql, w.acme.ID, from, to))
		}
	}
	add(1, most)
	const securityLog = "/api/v1/security-log/export?kind=signed_out"
	for _, path := range paths {
		path = "/api/v1/tenants/acme/" + path
		if strings.Contains(path, "usage") {
			continue // which has lines for the checks of all users
		}
		got := w.get(by, path)
		if lines := strings.Count(got.body, "\n"); lines < most || lines > most+1 {
			t.Errorf("%s has %d lines", path, lines)
		}
	}
	w.get(admin, securityLog)
	add(most+1, most+1)
	for _, path := range paths {
		path = "/api/v1/tenants/acme/" + path
		refused := w.want(w.send(by, "GET", path, nil), http.StatusBadRequest)
		if !strings.Contains(refused.body, "POST to the same address") ||
			refused.header.Get("Content-Disposition") != "" {
			t.Errorf("%s is answered %s with %v", path, refused.body, refused.header)
		}
		file := w.exported(by, path)
		if lines := strings.Count(file.body, "\n"); lines < most+1 {
			t.Errorf("the file of %s has %d lines", path, lines)
		}
	}
	refused := w.want(w.send(admin, "GET", securityLog, nil), http.StatusBadRequest)
	if !strings.Contains(refused.body, "Choose a shorter time") {
		t.Errorf("the security log is answered %s", refused.body)
	}
}

func TestAFileHasWhatAGetAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	rule := w.rule(w.acme)
	for n := range 3 {
		w.want(w.send(by, "PUT", fmt.Sprintf("/api/v1/tenants/acme/rules/%d/overrides/user-%d", rule.ID, n),
			map[string]any{"rate_per_second": 100, "burst_capacity": 500, "reason": "asked"}, "If-None-Match", "*"),
			http.StatusCreated)
	}
	w.violate(denied(w.acme, time.Now()), denied(w.acme, time.Now().Add(-time.Minute)))
	w.exec(`INSERT INTO user_month (tenant_id, month, user_id, allowed, denied, cost_taken)
		SELECT $1, date_trunc('month', now()), 'user-' || i, 5, 1, 5 FROM generate_series(1, 2500) AS i`, w.acme.ID)
	w.exec(`INSERT INTO plan_assignment (tenant_id, user_id, plan, revision)
		SELECT $1, 'user-' || i, $2, 1 FROM generate_series(1, 2500) AS i`, w.acme.ID, w.plan(w.acme))
	for _, path := range []string{
		"violations/export", "violations/export?format=jsonl&user_id=42", "audit/export?object_kind=override",
		"audit/export?format=jsonl&object_kind=override", "users/export?prefix=user-2", "usage/export",
		"usage/export?by=user", "usage/export?by=user&user_id=user-7",
	} {
		path = "/api/v1/tenants/acme/" + path
		direct := w.get(by, path)
		file := w.exported(by, path)
		if file.body != direct.body || len(file.body) < 20 {
			t.Errorf("%s: the file is\n%.300s\nand the answer\n%.300s", path, file.body, direct.body)
		}
		for _, name := range []string{"Content-Type", "Content-Disposition"} {
			if file.header.Get(name) != direct.header.Get(name) {
				t.Errorf("%s: %s of the file is %q, of the answer %q", path, name, file.header.Get(name),
					direct.header.Get(name))
			}
		}
	}
}

func TestAnExportIsItsMakersForADay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by, other := w.person(w.acme, auth.Owner), w.person(w.acme, auth.Owner)
	accepted := w.want(w.send(by, "POST", "/api/v1/tenants/acme/users/mallory/data", nil), http.StatusAccepted)
	address := accepted.header.Get("Location")
	waiting := read[export](t, w.get(by, address))
	if begun := read[export](t, accepted); begun != waiting || waiting.FinishedAt != nil || waiting.File != "" {
		t.Errorf("the answer is %+v, and at %s is %+v", begun, address, waiting)
	}
	w.want(w.send(by, "GET", address+"/file", nil), http.StatusConflict)
	w.writeExports()
	done := read[export](t, w.get(by, address))
	if done.What != "user_data" || done.Name != "user-mallory.json" || done.ExpiresAt == nil ||
		!done.ExpiresAt.Equal(done.FinishedAt.Add(24*time.Hour)) {
		t.Errorf("the export is %+v", done)
	}
	for _, path := range []string{address, done.File} {
		w.want(w.send(other, "GET", path, nil), http.StatusNotFound)
		w.get(by, path)
	}
	w.exec("UPDATE member SET role = 'viewer' WHERE account_id = $1", by.account.ID)
	w.want(w.send(by, "GET", done.File, nil), http.StatusForbidden)
	w.exec("UPDATE member SET role = 'owner' WHERE account_id = $1", by.account.ID)
	w.exec("UPDATE export SET finished_at = now() - interval '25 hours'")
	w.want(w.send(by, "GET", done.File, nil), http.StatusNotFound)
}

func TestACallerMakesThreeExportsAtOnceAndATenantTen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const path = "/api/v1/tenants/acme/users/export"
	by := w.person(w.acme, auth.Viewer)
	refuse := func(by caller) {
		t.Helper()
		refused := w.want(w.send(by, "POST", path, nil), http.StatusConflict)
		if !strings.Contains(refused.body, "Wait until one has finished") {
			t.Errorf("one more is answered with %s", refused.body)
		}
	}
	for n := range rules.MaxOpenExports {
		if n > 0 && n%rules.MaxOwnExports == 0 {
			refuse(by)
			by = w.person(w.acme, auth.Viewer)
		}
		w.want(w.send(by, "POST", path, nil), http.StatusAccepted)
	}
	refuse(by)
	w.writeExports()
	w.writeExports()
	w.want(w.send(by, "POST", path, nil), http.StatusAccepted)
}
