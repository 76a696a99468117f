package pgstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/violations"
)

func (w *world) importOverrides(t *testing.T, many int) []auth.AuditEntry {
	t.Helper()
	since := w.latest(t)
	var changes ruleset.Changes
	for i := range many {
		override := overrideOf(w.ours.user, fmt.Sprint("user-", i))
		override.Reason = fmt.Sprint("asked by ", i, ".")
		changes.Overrides = append(changes.Overrides, ruleset.Change[ruleset.ConfigOverride]{
			After: &ruleset.ConfigOverride{Rule: w.ours.user.Identity(), Override: override},
		})
	}
	must(w.ChangeConfig(t.Context(), w.ours.ID,
		func(ruleset.Config) (ruleset.Changes, error) { return changes, nil }))(t)
	_, entries := w.written(t, w.ours.ID, since)
	return entries
}

func TestAPackedEntryStaysBelowAMegabyte(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	exec(t, w.url, `INSERT INTO rate_limit_override (tenant_id, rule_id, user_id, rate_per_second, rate_unit,
		burst_capacity, reason, in_force_since, revision)
		SELECT $1, $2, i || repeat('u', 240), 1, 'second', 1, repeat('€', 500), now(), 1
		FROM generate_series(1, 1000) AS i`, w.ours.ID, w.ours.user.ID)
	sizes := lines(t, connect(t, w.url),
		"SELECT octet_length(rows::text)::text || ' of ' || row_count FROM audit_event WHERE row_count > 1")
	if len(sizes) < 2 || len(sizes) > 10 || slices.ContainsFunc(sizes, func(size string) bool {
		bytes, _ := strconv.Atoi(strings.Fields(size)[0])
		return bytes > 1<<20
	}) {
		t.Errorf("bytes and rows of the entries are %q", sizes)
	}
}

func TestAnObjectIsFoundInPackedEntriesByTheirIndex(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.importOverrides(t, 100)
	connection := connect(t, w.url)
	for _, setting := range []string{"enable_seqscan", "enable_indexscan"} { // for few entries they are cheaper
		must(connection.Exec(t.Context(), "SET "+setting+" = off"))(t)
	}
	plan := lines(t, connection, `EXPLAIN SELECT audit_id FROM audit_event WHERE rows IS NOT NULL
		AND audit_row_keys(tenant_id, rows) COLLATE "C" && ARRAY(
			SELECT concat_ws(':', '1', o) FROM unnest('{1}'::text[]) AS o)`)
	if !strings.Contains(strings.Join(plan, "\n"), "audit_event_rows_idx") {
		t.Errorf("the plan is\n%s", strings.Join(plan, "\n"))
	}
}

func TestAnImportIsPackedWithAllItsRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours, rule := t.Context(), w.ours.ID, w.ours.user
	began := must(w.ArrivedAt(ctx, ours, violations.ID{}))(t) // the database's clock
	const many = 10_000
	entries := w.importOverrides(t, many)
	if len(entries) > many/auth.MaxAuditRows {
		t.Errorf("there are %d entries", len(entries))
	}
	got := map[string]auth.AuditEntry{}
	for _, listed := range entries {
		if !listed.IsPacked() || listed.Rows != nil || listed.Change != entries[0].Change {
			t.Errorf("an entry is listed as %+v", listed)
		}
		entry := must(w.AuditEntry(ctx, ours, listed.ID))(t)
		if len(entry.Rows) != entry.Objects || entry.Objects > auth.MaxAuditRows {
			t.Errorf("%d has %d of %d objects", entry.ID, len(entry.Rows), entry.Objects)
		}
		for _, row := range entry.Unpacked() {
			got[row.Object.ID] = row
		}
	}
	for i := range many {
		id := fmt.Sprintf("%d:user-%d", rule.ID, i)
		var image struct {
			UserID string `json:"user_id"`
			Reason string
		}
		row := got[id]
		err := json.Unmarshal(row.After, &image)
		if err != nil || row.Before != nil || row.Action != auth.AuditCreate ||
			image.UserID != fmt.Sprint("user-", i) || image.Reason != fmt.Sprint("asked by ", i, ".") {
			t.Fatalf("the row of %s is %+v with %s (%v)", id, row, row.After, err)
		}
	}
	if len(got) != many {
		t.Errorf("they have %d objects", len(got))
	}
	h := must(w.History(ctx, ours, began))(t)
	if len(h.Changes) != many || len(h.Start.Overrides) != 1 {
		t.Errorf("a replay knows %d changes after %d overrides", len(h.Changes), len(h.Start.Overrides))
	}

	want := got[fmt.Sprint(rule.ID, ":user-7777")]
	same := func(where string, found []auth.AuditEntry, err error) {
		t.Helper()
		if err != nil || len(found) != 1 || found[0].ID != want.ID || found[0].Row != want.Row ||
			found[0].Object != want.Object || string(found[0].After) != string(want.After) {
			t.Errorf("%s has %+v (%v), want %+v", where, found, err, want)
		}
	}
	found, next, err := w.Audit(ctx, ours, auth.AuditFilter{ObjectKind: "override", ObjectID: want.Object.ID},
		auth.LogCursor{}, 10)
	same("the log of the override", found, err)
	if next != (auth.LogCursor{}) {
		t.Errorf("after the only entry comes %v", next)
	}
	found, _, err = w.Audit(ctx, ours, auth.AuditFilter{
		ObjectKind: "override", ObjectID: want.Object.ID, ActorID: "somebody else",
	}, auth.LogCursor{}, 10)
	if len(found) != 0 || err != nil {
		t.Errorf("somebody else changed it: %+v (%v)", found, err)
	}
	found, err = w.UserStory(ctx, ours, "user-7777", began, auth.LogCursor{}, 10)
	same("the user's story", found, err)
	found = nil
	for after := auth.AuditID(0); ; {
		page, last, err := w.AuditOfUser(ctx, ours, "user-7777", after)
		if found = append(found, page...); err != nil || last == 0 {
			same("the export of the user's data", found, err)
			break
		}
		after = last
	}
}

func TestARowOfAPackedEntryIsUndone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours, rule := t.Context(), w.ours.ID, w.ours.user
	before := w.content(t)
	entry := must(w.AuditEntry(ctx, ours, w.importOverrides(t, 30)[0].ID))(t)
	changed := must(w.Override(ctx, ours, rule.ID, "user-7"))(t)
	changed.Burst++
	must(w.PutOverride(ctx, changed, rules.AnyVersion))(t)
	stored := w.content(t)
	row := func(user string) int {
		t.Helper()
		return 1 + slices.IndexFunc(entry.Rows,
			func(r auth.AuditRow) bool { return r.ID == fmt.Sprint(rule.ID, ":", user) })
	}
	var clash *auth.UndoError
	for what, err := range map[string]error{
		"a changed row": second(w.RevertRow(ctx, ours, entry.ID, row("user-7"))),
		"all rows":      second(w.Revert(ctx, ours, entry.ID, false)),
		"the change":    second(w.Revert(ctx, ours, entry.ID, true)),
	} {
		if !errors.As(err, &clash) || len(clash.Clashes) != 1 || clash.Clashes[0].Entry.Row != row("user-7") ||
			!errors.Is(err, rules.ErrChanged) {
			t.Errorf("undoing %s ends with %v", what, err)
		}
	}
	wantError(t, second(w.RevertRow(ctx, ours, entry.ID, 31)), rules.ErrNotFound)
	if now := w.content(t); now != stored {
		t.Errorf("it was\n%s\nand is, with the undoing refused,\n%s", stored, now)
	}

	undone := must(w.RevertRow(ctx, ours, entry.ID, row("user-8")))(t)
	revert := must(w.AuditEntry(ctx, ours, undone))(t)
	if revert.Object.ID != fmt.Sprint(rule.ID, ":user-8") || revert.Action != auth.AuditRemove ||
		revert.Actor.Act != fmt.Sprintf("revert %d row %d", entry.ID, row("user-8")) {
		t.Errorf("the entry of the revert is %+v", revert)
	}
	wantError(t, second(w.Override(ctx, ours, rule.ID, "user-8")), rules.ErrNotFound)
	must(w.Override(ctx, ours, rule.ID, "user-9"))(t)
	must(w.Revert(ctx, ours, undone, false))(t)
	if now := w.content(t); now != stored {
		t.Errorf("it was\n%s\nand is, with the undoing undone,\n%s", stored, now)
	}

	changed.Burst--
	must(w.PutOverride(ctx, changed, rules.AnyVersion))(t)
	must(w.Revert(ctx, ours, entry.ID, true))(t)
	if now := w.content(t); now != before {
		t.Errorf("it was\n%s\nand is, with the import undone,\n%s", before, now)
	}
}

func TestAPackedSaveIsUndoneAsAWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.importOverrides(t, 30)
	var users []string
	for i := range 40 {
		users = append(users, fmt.Sprint("user-", i))
	}
	w.assign(t, w.ours.ID, "pro", users[30:]...)
	for what, save := range map[string]func(){
		"the removal of a rule": func() {
			if err := w.RemoveRule(t.Context(), w.ours.ID, w.ours.user.ID, rules.AnyVersion); err != nil {
				t.Fatal(err)
			}
		},
		"the move of users": func() { w.assign(t, w.ours.ID, "free", users...) },
	} {
		before, since := w.content(t), w.latest(t)
		save()
		_, entries := w.written(t, w.ours.ID, since)
		if !slices.ContainsFunc(entries, func(e auth.AuditEntry) bool { return e.IsPacked() }) {
			t.Errorf("%s has %d entries, none of them packed", what, len(entries))
		}
		must(w.Revert(t.Context(), w.ours.ID, entries[0].ID, true))(t)
		if now := w.content(t); now != before {
			t.Errorf("it was\n%s\nand is, with %s undone,\n%s", before, what, now)
		}
	}
}

func TestAnErasedUserIsInNoPackedEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	entry := must(w.AuditEntry(ctx, ours, w.importOverrides(t, 50)[0].ID))(t)
	var users []string
	for i := range 50 {
		users = append(users, fmt.Sprint("user-", i))
	}
	since := w.latest(t)
	w.assign(t, ours, "pro", users...)
	_, moves := w.written(t, ours, since)
	moved := must(w.AuditEntry(ctx, ours, moves[0].ID))(t)
	rows := w.erase(t, ours, "user-7")
	if rows["audit_entries"] != 4 { // two packed ones, and the removals of the override and the assignment
		t.Errorf("the receipt counts %v", rows)
	}
	for _, before := range []auth.AuditEntry{entry, moved} {
		after := must(w.AuditEntry(ctx, ours, before.ID))(t)
		for i, row := range after.Rows {
			was := before.Rows[i]
			isTheirs := strings.HasSuffix(was.ID, "user-7")
			switch {
			case isTheirs && (strings.Contains(string(row.After), "asked") || !strings.Contains(row.ID, "erased-") ||
				!strings.Contains(string(row.After), "erased-") || row.Before != nil):
				t.Errorf("the user's row is %s %s", row.ID, row.After)
			case !isTheirs && (row.ID != was.ID || string(row.After) != string(was.After) || row.Before != nil):
				t.Errorf("the row %s %s was %s %s", row.ID, row.After, was.ID, was.After)
			}
		}
		if len(after.Rows) != len(before.Rows) {
			t.Errorf("%d of %d rows are left", len(after.Rows), len(before.Rows))
		}
	}
	_, err := w.RevertRow(ctx, ours, entry.ID, 1+slices.IndexFunc(entry.Rows, func(row auth.AuditRow) bool {
		return strings.HasSuffix(row.ID, ":user-7")
	}))
	wantError(t, err, rules.ErrFinal)
	must(w.Revert(ctx, ours, entry.ID, false))(t)
	if page := must(w.Overrides(ctx, ours, w.ours.user.ID, "", 100))(t); len(page) > 1 {
		t.Errorf("after the undo there are %d overrides", len(page))
	}
	left := lines(t, connect(t, w.url), `SELECT audit_id::text FROM audit_event AS e
		WHERE e.tenant_id = $1 AND e::text ~ 'user-7[^0-9]|asked by 7[.]'`, ours)
	if len(left) != 0 {
		t.Errorf("entries %v still have the user", left)
	}
	found, _, err := w.Audit(ctx, ours, auth.AuditFilter{
		ObjectKind: "override", ObjectID: fmt.Sprint(w.ours.user.ID, ":user-7"),
	}, auth.LogCursor{}, 10)
	if len(found) != 0 || err != nil {
		t.Errorf("the log has %+v of the user (%v)", found, err)
	}
	_, err = asTenant(t, connect(t, runtimeOf(t, w.url)), tenantRoleOf(t, connect(t, w.url)), "1",
		"SELECT packed_audit_of(2, 'override', '{}', now(), now(), 0, 1)")
	if !isRefusal(err) {
		t.Errorf("another tenant's log: %v", err)
	}
}

func TestAPackedEntryIsSentWithItsRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	type event struct {
		AuditID  string `json:"audit_id"`
		RowCount int    `json:"row_count"`
		Rows     []struct {
			ID            string
			Before, After map[string]any
		}
	}
	var mu sync.Mutex
	received := map[string]event{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var message struct{ Events []event }
		if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range message.Events {
			received[e.AuditID] = e
		}
	}))
	t.Cleanup(receiver.Close)
	w.hook(t, w.ours.ID, receiver.URL)
	const many = 3010
	entries := w.importOverrides(t, many)
	for deadline := time.Now().Add(time.Minute); ; {
		w.work(t, auth.AuditKinds(w, localSender())...)
		w.due(t)
		mu.Lock()
		all := len(received)
		mu.Unlock()
		if all == len(entries)+1 || time.Now().After(deadline) { // and the webhook's own creation
			break
		}
	}
	got := map[string]bool{}
	for _, entry := range entries {
		e := received[fmt.Sprint(int64(entry.ID))]
		if len(e.Rows) != e.RowCount || entry.IsPacked() && e.RowCount != entry.Objects {
			t.Errorf("entry %d of %d objects was sent with %d of %d", entry.ID, entry.Objects, len(e.Rows), e.RowCount)
		}
		for _, row := range e.Rows {
			if row.Before != nil || fmt.Sprint(row.After["rule_id"], ":", row.After["user_id"]) != row.ID {
				t.Errorf("a row is %+v", row)
			}
			got[row.ID] = true
		}
	}
	if len(got) != 3000 || len(entries) != 13 {
		t.Errorf("of %d entries %d were received, with %d rows, such as %v", len(entries), len(received), len(got),
			slices.Collect(maps.Keys(received)))
	}
}

func TestAReceiptIsNoSpelling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	const user = "erased-0123456789abcdef"
	must(w.PutOverride(ctx, overrideOf(w.ours.user, user), rules.AnyVersion))(t)
	must(w.Revert(ctx, ours, w.latest(t), false))(t)
	wantError(t, second(w.Override(ctx, ours, w.ours.user.ID, user)), rules.ErrNotFound)
	w.erase(t, ours, "mallory")
	wantError(t, second(w.Revert(ctx, ours, w.latest(t), false)), rules.ErrFinal)
}
