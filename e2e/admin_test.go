package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
)

type adminServer struct {
	*process
	addr, key string
	session   *http.Cookie // instead of the key, if somebody has signed in
	client    *http.Client
}

var answeringAdmin = regexp.MustCompile(`"msg":"answering the admin API","admin_addr":"([^"]+)"`)

func (tn tenant) startAdmin(t *testing.T, redisURL string) *adminServer {
	t.Helper()
	key := admin(t, tn.database, "create-key", "--tenant", tn.slug, "--name", "automation", "--permissions", "manage")
	p := spawn(t, []string{
		"SLUICE_DATABASE_URL=" + tn.database, "SLUICE_REDIS_URL=" + redisURL,
		"SLUICE_ADMIN_ADDR=127.0.0.1:0", "SLUICE_METRICS_ADDR=127.0.0.1:0", "SLUICE_LOG_FORMAT=json",
	}, "admin", "serve")
	a := &adminServer{
		process: p, addr: p.await(t, &p.stderr, answeringAdmin)[1], key: strings.TrimSpace(key),
		client: newClient(t),
	}
	eventually(t, patience, "the admin process to be ready", func() bool {
		status, _, err := a.ask(http.MethodGet, "", "")
		return err == nil && status == http.StatusOK
	})
	return a
}

func (a *adminServer) ask(method, path, body string) (status int, answer string, err error) {
	return a.askOf("acme", method, path, body)
}

func (a *adminServer) askOf(tenant, method, path, body string) (status int, answer string, err error) {
	r, err := http.NewRequestWithContext(context.Background(), method, "http://"+a.addr+"/api/v1/tenants/"+tenant+path,
		strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPut && strings.Contains(path, "/overrides/") {
		r.Header.Set("If-None-Match", "*") // the tests only create them
	} else {
		r.Header.Set("If-Match", "*")
	}
	if a.session != nil {
		r.AddCookie(a.session)
	} else {
		r.Header.Set("Authorization", "Bearer "+a.key)
	}
	w, err := a.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	return w.StatusCode, string(text), err
}

func (a *adminServer) signIn(t *testing.T, database string) {
	t.Helper()
	const email, password = "ada@example.com", "a password nobody would guess"
	create := exec.Command(filepath.Join(binaries, "admin"), "create-admin", "--email", email)
	create.Env = []string{"PATH=" + os.Getenv("PATH"), "SLUICE_DATABASE_URL=" + database}
	create.Stdin = strings.NewReader(password + "\n")
	if output, err := create.CombinedOutput(); err != nil {
		t.Fatalf("create-admin: %v\n%s", err, output)
	}
	a.signInAs(t, email, password)
}

func (a *adminServer) signInAs(t *testing.T, email, password string) {
	t.Helper()
	body := fmt.Sprintf(`{"email":%q,"password":%q}`, email, password)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.addr+"/api/v1/session",
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	w, err := a.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	if w.StatusCode != http.StatusOK {
		t.Fatalf("signing in is answered %d", w.StatusCode)
	}
	a.session = w.Cookies()[0]
}

func (a *adminServer) want(t *testing.T, status int, method, path, body string) string {
	t.Helper()
	got, answer, err := a.ask(method, path, body)
	if err != nil || got != status {
		t.Fatalf("%s %s: status %d, %v, want %d: %s", method, path, got, err, status, answer)
	}
	return answer
}

type ruleList struct {
	Items []struct {
		RuleID  int64 `json:"rule_id,string"`
		Version int64 `json:"version"`
	} `json:"items"`
}

func (a *adminServer) rules(t *testing.T) (list ruleList) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.want(t, http.StatusOK, http.MethodGet, "/rules?limit=500", "")),
		&list); err != nil {
		t.Fatal(err)
	}
	return list
}

// propagation is how long a change may take to reach every process.
const propagation = 2 * time.Second

func TestChangesMadeByTheAdminAPIReachARunningAPIWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	redis := devdbtest.Redis(t)
	tn := newTenant(t, "rules:\n  - {key_pattern: global, rate: 1/second, burst_capacity: 10}\n")
	api := tn.startAPI(t, redis.URL())
	a := tn.startAdmin(t, redis.URL())
	id := a.rules(t).Items[0].RuleID
	a.want(t, http.StatusOK, http.MethodPatch, fmt.Sprintf("/rules/%d", id), `{"burst_capacity":25}`)
	eventually(t, propagation, "the new burst",
		func() bool { return strings.Contains(api.check(t, `{}`).text, `"limit":25`) })

	keyID := strings.Split(tn.key, "_")[1]
	a.want(t, http.StatusForbidden, http.MethodPost, "/api-keys/"+keyID+"/revoke", "") // keys are editors
	a.signIn(t, tn.database)
	a.everyChangeReaches(t, api)
	a.want(t, http.StatusOK, http.MethodPost, "/api-keys/"+keyID+"/revoke", "")
	eventually(t, propagation, "the key to be refused", func() bool {
		got, err := api.try(`{}`)
		return err == nil && got.status == http.StatusUnauthorized
	})
	a.stop(t)
}

func (a *adminServer) everyChangeReaches(t *testing.T, api *api) {
	t.Helper()
	for _, plan := range []string{"free", "pro"} {
		a.want(t, http.StatusCreated, http.MethodPost, "/plans", fmt.Sprintf(`{"name":%q}`, plan))
	}
	create := func(fields string) (id int64) {
		var rule struct {
			RuleID int64 `json:"rule_id,string"`
		}
		body := `{"key_pattern":"user:{user_id}","rate_per_second":1,` + fields + `}`
		if err := json.Unmarshal([]byte(a.want(t, http.StatusCreated, http.MethodPost, "/rules", body)),
			&rule); err != nil {
			t.Fatal(err)
		}
		return rule.RuleID
	}
	free, pro := create(`"plan":"free","burst_capacity":31`), create(`"plan":"pro","burst_capacity":32`)
	candidate := create(`"plan":"pro","name":"candidate","mode":"shadow","burst_capacity":33`)
	for _, change := range []struct {
		what, method, path, body string
		user                     string
		limit                    int
	}{
		{"a default plan", http.MethodPatch, "", `{"default_plan":"free"}`, "1", 31},
		{
			"an override", http.MethodPut, fmt.Sprintf("/rules/%d/overrides/2", free),
			`{"rate_per_second":1,"burst_capacity":34,"reason":"x"}`, "2", 34,
		},
		{"an assignment", http.MethodPut, "/users/3/plan", `{"plan":"pro"}`, "3", 32},
		{
			"a promotion", http.MethodPost, fmt.Sprintf("/rules/%d/promote", candidate),
			fmt.Sprintf(`{"into_rule_id":"%d","into_version":1}`, pro), "3", 33,
		},
		{"a revert", http.MethodPost, "/audit/{latest}/revert", "", "3", 32},
	} {
		path := strings.Replace(change.path, "{latest}", a.latestEntry(t, "rule", pro), 1)
		status, answer, err := a.ask(change.method, path, change.body)
		if err != nil || status >= 300 {
			t.Fatalf("%s is answered %d (%v): %s", change.what, status, err, answer)
		}
		eventually(t, propagation, change.what, func() bool {
			return strings.Contains(api.check(t, fmt.Sprintf(`{"user_id":%q}`, change.user)).text,
				fmt.Sprintf(`"limit":%d`, change.limit))
		})
	}
}

func (a *adminServer) latestEntry(t *testing.T, kind string, id int64) string {
	t.Helper()
	var list struct {
		Items []struct {
			AuditID int64 `json:"audit_id,string"`
		} `json:"items"`
	}
	path := fmt.Sprintf("/audit?object_kind=%s&object_id=%d&limit=1", kind, id)
	if err := json.Unmarshal([]byte(a.want(t, http.StatusOK, http.MethodGet, path, "")), &list); err != nil ||
		len(list.Items) != 1 {
		t.Fatalf("%s: %v", path, err)
	}
	return fmt.Sprint(list.Items[0].AuditID)
}

func TestARemovedTenantIsRefusedWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	redis := devdbtest.Redis(t)
	tn := newTenant(t, "rules:\n  - {key_pattern: global, rate: 1/second, burst_capacity: 10}\n")
	api := tn.startAPI(t, redis.URL())
	a := tn.startAdmin(t, redis.URL())
	a.signIn(t, tn.database)
	for _, step := range []struct {
		method, path string
		want, check  int
	}{
		{http.MethodPost, "/suspend", http.StatusOK, http.StatusForbidden},
		{http.MethodDelete, "", http.StatusNoContent, http.StatusUnauthorized},
	} {
		a.want(t, step.want, step.method, step.path, "")
		eventually(t, propagation, fmt.Sprintf("checks to be answered %d", step.check), func() bool {
			got, err := api.try(`{}`)
			return err == nil && got.status == step.check
		})
	}
	a.stop(t)
}

func TestAfterAKillAmidAThousandWritesRulesRevisionAndAuditAgree(t *testing.T) {
	t.Parallel()
	const writers, each = 50, 20
	var file strings.Builder
	file.WriteString("rules:\n")
	for i := range writers {
		fmt.Fprintf(&file, "  - {key_pattern: \"endpoint:/%d\", rate: 1/second, burst_capacity: 10}\n", i)
	}
	tn := newTenant(t, file.String())
	a := tn.startAdmin(t, "")
	before := tn.written(t)
	var told atomic.Int64
	var group sync.WaitGroup
	deadline := time.Now().Add(patience)
	for _, rule := range a.rules(t).Items {
		group.Go(func() {
			for burst := 0; burst < each; {
				status, answer, err := a.ask(http.MethodPatch, fmt.Sprintf("/rules/%d", rule.RuleID),
					fmt.Sprintf(`{"burst_capacity":%d}`, 100+burst))
				if err != nil {
					return // the process is gone
				}
				if status == http.StatusServiceUnavailable && time.Now().Before(deadline) {
					continue // so many writers wait for one another that it was not its turn in time
				}
				if burst++; status != http.StatusOK {
					t.Errorf("a write is answered %d: %s", status, answer)
					return
				}
				if told.Add(1) == writers*each/3 {
					_ = a.cmd.Process.Kill()
				}
			}
		})
	}
	group.Wait()
	if told.Load() >= writers*each {
		a.stop(t)
		t.Fatal("all writes were done before the process was killed")
	}
	a.status(t)
	again := tn.startAdmin(t, "") // whose new key is one more revision
	after := tn.written(t)
	changes := after.changes - before.changes
	switch {
	case changes < told.Load():
		t.Errorf("%d writes were acknowledged, and %d are there", told.Load(), changes)
	case after.entries-before.entries != changes:
		t.Errorf("%d writes have %d audit entries", changes, after.entries-before.entries)
	case after.revision-before.revision != changes+1:
		t.Errorf("%d writes, and a key, raised the revision by %d", changes, after.revision-before.revision)
	case after.strayed > 0:
		t.Errorf("%d rules are not as the last entry about them says", after.strayed)
	case after.newest > after.revision:
		t.Errorf("a rule has the revision %d, its tenant %d", after.newest, after.revision)
	}
	t.Logf("%d writes acknowledged, %d made", told.Load(), changes)
	again.stop(t)
}

type written struct {
	changes  int64 // of rules, by their versions
	entries  int64 // of the audit log that say so
	revision int64 // of the tenant
	newest   int64 // revision of a rule
	strayed  int64 // rules that are not as their last entry says
}

func (tn tenant) written(t *testing.T) (w written) {
	t.Helper()
	ctx := t.Context()
	connection, err := pgx.Connect(ctx, tn.database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close(ctx) }() // only read from
	err = connection.QueryRow(ctx, `SELECT
		(SELECT sum(version - 1) FROM rate_limit_rule),
		(SELECT count(*) FROM audit_event WHERE object_kind = 'rule' AND action = 'update'),
		(SELECT revision FROM tenant), (SELECT max(revision) FROM rate_limit_rule),
		(SELECT count(*) FROM rate_limit_rule AS r
			WHERE to_jsonb(r) - '{tenant_id,removed_at,parameters}'::text[] || r.parameters IS DISTINCT FROM (
			SELECT after FROM audit_event WHERE object_kind = 'rule' AND object_id = r.rule_id::text
				ORDER BY audit_id DESC LIMIT 1))`).
		Scan(&w.changes, &w.entries, &w.revision, &w.newest, &w.strayed)
	if err != nil {
		t.Fatal(err)
	}
	return w
}
