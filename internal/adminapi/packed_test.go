package adminapi_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestAnImportsEntryShowsAndUndoesItsRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Editor)
	const many = 30
	text := "user_id,plan\n"
	for i := range many {
		text += fmt.Sprintf("user-%d,%s\n", i, w.plan(w.acme))
	}
	acme := "/api/v1/tenants/acme/"
	w.want(w.do(by, request{"POST", acme + "users/import", text, map[string]string{"Content-Type": "text/csv"}}),
		http.StatusOK)
	type row struct {
		ID            string `json:"id"`
		Before, After map[string]any
	}
	type entry struct {
		AuditID  int64 `json:"audit_id,string"`
		Row      int
		RowCount int `json:"row_count"`
		Rows     []row
		Object   struct{ ID string }
		After    map[string]any
	}
	type list struct{ Items []entry }
	get := func(path string) answer { return w.get(by, acme+path) }
	listed := read[list](t, get("audit?object_kind=user")).Items
	if len(listed) != 1 || listed[0].RowCount != many || listed[0].Rows != nil || listed[0].Object.ID != "" {
		t.Fatalf("the log has %+v", listed)
	}
	address := fmt.Sprint("audit/", listed[0].AuditID)
	whole := read[entry](t, get(address))
	if len(whole.Rows) != many || whole.Rows[3].Before != nil || whole.Rows[3].After["user_id"] != whole.Rows[3].ID {
		t.Errorf("the entry is %+v", whole)
	}
	of := read[list](t, get("audit?object_kind=user&object_id=user-3")).Items
	if len(of) != 1 || of[0].AuditID != whole.AuditID || whole.Rows[of[0].Row-1].ID != "user-3" ||
		of[0].After["user_id"] != "user-3" || of[0].RowCount != 0 {
		t.Errorf("the log of a user is %+v", of)
	}

	lines := must(csv.NewReader(strings.NewReader(get("audit/export?object_kind=user").body)).ReadAll())(t)
	if len(lines) != 1+many || lines[4][10] != whole.Rows[3].ID || lines[4][len(lines[4])-1] != "4" {
		t.Errorf("the file has %d lines, the fifth %q", len(lines), lines[min(len(lines)-1, 4)])
	}
	objects := 0
	for line := range strings.Lines(get("audit/export?format=jsonl&object_kind=user").body) {
		var one entry
		if err := json.Unmarshal([]byte(line), &one); err != nil || one.Row == 0 || one.Object.ID == "" {
			t.Errorf("a line is %s (%v)", line, err)
		}
		objects++
	}
	if objects != many {
		t.Errorf("the file has %d objects", objects)
	}

	undo := acme + address + "/revert?row="
	w.want(w.send(by, "POST", undo+"31", nil), http.StatusNotFound)
	w.want(w.send(by, "POST", undo+"1&whole=true", nil), http.StatusBadRequest)
	undone := read[entry](t, w.want(w.send(by, "POST", fmt.Sprint(undo, of[0].Row), nil), http.StatusOK))
	if undone.Object.ID != "user-3" || undone.After != nil || undone.RowCount != 0 {
		t.Errorf("undone is %+v", undone)
	}
	refused := w.want(w.send(by, "POST", fmt.Sprint(undo, of[0].Row), nil), http.StatusConflict)
	if pointer := fmt.Sprintf(`"/%s/rows/%d"`, address, of[0].Row); !strings.Contains(refused.body, pointer) {
		t.Errorf("undoing it again answers %s, want %s", refused.body, pointer)
	}
}

type keptStores struct {
	adminapi.Stores
	after func()
}

func (s *keptStores) Audit(ctx context.Context, tenant rules.TenantID, filter auth.AuditFilter, before auth.LogCursor,
	limit int,
) ([]auth.AuditEntry, auth.LogCursor, error) {
	entries, next, err := s.Stores.Audit(ctx, tenant, filter, before, limit)
	s.after()
	return entries, next, err
}

func TestAnExportLeavesOutWhatRetentionDropsMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	var ids []int64
	for n, days := range []int{41, 40, 39} { // the second one is about to be dropped
		w.exec(`INSERT INTO plan_assignment (tenant_id, user_id, plan, revision)
			SELECT $1, $2 || '-' || i, $3, 1 FROM generate_series(1, 30) AS i`, w.acme.ID, fmt.Sprint("user-", n),
			w.plan(w.acme))
		ids = append(ids, int64(w.count("SELECT max(audit_id) FROM audit_event WHERE rows IS NOT NULL")))
		w.exec(fmt.Sprintf(`SET session_replication_role = replica;
			UPDATE audit_event SET at = now() - interval '%d days' WHERE audit_id = %d`, days, ids[n]))
	}
	stores := &keptStores{w.store, func() {
		w.exec(fmt.Sprintf(`SET session_replication_role = replica;
			DELETE FROM audit_event WHERE audit_id = %d`, ids[1]))
	}}
	address := w.want(w.send(by, "POST", "/api/v1/tenants/acme/audit/export?object_kind=user", nil),
		http.StatusAccepted).header.Get("Location")
	w.round(w.store.ExportWork(adminapi.WriteExports(stores, w.store)))
	file := w.get(by, address+"/file").body
	lines := must(csv.NewReader(strings.NewReader(file)).ReadAll())(t)
	got := map[string]int{}
	for _, line := range lines[1:] {
		got[line[0]]++
	}
	want := map[string]int{fmt.Sprint(ids[0]): 30, fmt.Sprint(ids[2]): 30}
	if !maps.Equal(got, want) {
		t.Errorf("lines of the entries are %v, want %v", got, want)
	}
}
