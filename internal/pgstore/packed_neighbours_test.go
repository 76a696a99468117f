package pgstore_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

// mustGoOn fails unless the other tenant can save, read its audit log and erase a user within five seconds.
func (w *world) mustGoOn(t *testing.T) {
	t.Helper()
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"a save", func(ctx context.Context) error {
			return second(w.PutOverride(ctx, overrideOf(w.theirs.user, "mallory"), rules.AnyVersion))
		}},
		{"the audit log", func(ctx context.Context) error {
			_, _, err := w.Audit(ctx, w.theirs.ID, auth.AuditFilter{}, auth.LogCursor{}, 10)
			return err
		}},
		{"the request of an erasure", func(ctx context.Context) error {
			return second(w.EraseUser(ctx, w.theirs.ID, "mallory"))
		}},
		{"an erasure", func(ctx context.Context) error {
			job, kind := w.claim(t, "erase user"), w.ErasureWork(threeBuckets)
			for {
				if again, err := kind.Do(ctx, &job); err != nil || again.IsZero() {
					return err
				}
			}
		}},
	}
	for _, step := range steps {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := step.do(ctx); err != nil {
			t.Errorf("another tenant's %s: %v", step.name, err)
		}
		cancel()
	}
}

func TestAnImportHoldsNoNeighbourBack(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	importing := connect(t, w.url)
	must(importing.Exec(t.Context(), "BEGIN"))(t)
	must(importing.Exec(t.Context(), `INSERT INTO rate_limit_override (tenant_id, rule_id, user_id, rate_per_second,
		rate_unit, burst_capacity, reason, in_force_since, revision)
		SELECT $1, $2, 'user-' || i, 1, 'second', 1, '', now(), 1 FROM generate_series(1, 3000) AS i`, w.ours.ID,
		w.ours.user.ID))(t)
	packed := lines(t, importing, "SELECT row_count::text FROM audit_event WHERE row_count > 1")
	if len(packed) != 3 {
		t.Fatalf("rows of the import's packed entries are %q, want three times 1000", packed)
	}
	w.mustGoOn(t)
	must(importing.Exec(t.Context(), "COMMIT"))(t)
}

// The erased user is in 21 packed entries of 30 rows; a piece of 60 rows stops in the middle of its transaction.
func TestAnErasureAmongPackedEntriesHoldsNoNeighbourBack(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	w.importOverrides(t, 30)
	exec(t, w.url, fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..20 LOOP
		UPDATE rate_limit_override SET burst_capacity = burst_capacity + 1
		WHERE tenant_id = %d AND user_id LIKE 'user-%%'; END LOOP; END $$`, ours))
	w.EraseInPiecesOf(60)
	must(w.EraseUser(ctx, ours, "user-7"))(t)
	w.claim(t, "erase user") // the pieces below are its attempt
	watch, holding := connect(t, w.url), connect(t, w.url)
	var id int64
	if err := watch.QueryRow(ctx, "SELECT erasure_id FROM user_erasure").Scan(&id); err != nil {
		t.Fatal(err)
	}
	changed := func() (rows int) {
		err := watch.QueryRow(ctx, `SELECT coalesce(max((s->>'rows')::integer), 0) FROM user_erasure,
			jsonb_array_elements(steps) AS s WHERE erasure_id = $1 AND s->>'name' = 'audit_entries'`, id).Scan(&rows)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	var last int
	for goesOn := true; goesOn; {
		if last == 6 {
			must(holding.Exec(ctx, "BEGIN"))(t)
			must(holding.Exec(ctx, "SELECT FROM audit_event WHERE row_count > 1 ORDER BY audit_id FOR UPDATE"))(t)
		}
		ended := make(chan error, 1)
		go func() {
			var err error
			_, goesOn, err = w.ErasePiece(ctx, ours, id, threeBuckets)
			ended <- err
		}()
		if last == 6 {
			for deadline := time.Now().Add(time.Minute); len(lines(t, watch, `SELECT pid::text FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock'`)) == 0; runtime.Gosched() {
				if time.Now().After(deadline) {
					t.Fatal("the piece waits for no entry")
				}
			}
			w.mustGoOn(t)
			must(holding.Exec(ctx, "ROLLBACK"))(t)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		now := changed()
		if now-last > 2 {
			t.Errorf("a piece of 60 rows changes %d packed entries of 30", now-last)
		}
		last = now
	}
	if last != 22 { // and the removal of the override
		t.Errorf("%d entries were changed, want 21 packed ones and one", last)
	}
}
