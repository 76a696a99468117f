package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
)

func TestAFailingErasureSaysWhyAndGoesOnWhenAskedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	isAway := true
	kind := w.ErasureWork(func(context.Context, rules.TenantID, string) (int64, error) {
		if isAway {
			return 0, errors.New("10.0.0.7:6379 refused mallory")
		}
		return 3, nil
	})
	first := must(w.EraseUser(ctx, ours, "mallory"))(t)
	failed := w.workOn(t, kind, ours, first)
	if !strings.Contains(failed.Error, "buckets could not be filled") || strings.Contains(failed.Error, "10.0.0.7") {
		t.Errorf("the receipt says %q", failed.Error)
	}
	wantPause(t, failed.NextTryAt, jobs.Pause(1))
	isAway = false
	w.work(t, kind)
	if later := must(w.Erasure(ctx, ours, first.ID))(t); !later.NextTryAt.Equal(failed.NextTryAt) {
		t.Errorf("it was tried before %s: %+v", failed.NextTryAt, later)
	}
	if again := must(w.EraseUser(ctx, ours, "mallory"))(t); again.ID != first.ID {
		t.Errorf("asking again begins %s", again.ID)
	}
	ended := w.workOn(t, kind, ours, first)
	if ended.FinishedAt.IsZero() || ended.Error != "" || !ended.NextTryAt.IsZero() {
		t.Errorf("asked again, it is %+v", ended)
	}
}

func TestATenantErasesAHundredUsersAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	exec(t, w.url, `INSERT INTO user_erasure (tenant_id, receipt_id, user_id, actor)
		SELECT t, 'erased-' || i, 'user-' || i, '' FROM generate_series(1, $1) AS i, unnest($2::bigint[]) AS t
		WHERE t = $3 OR i > 1`,
		rules.MaxOpenErasures, []int64{int64(w.ours.ID), int64(w.theirs.ID)}, w.ours.ID)
	_, err := w.EraseUser(ctx, w.ours.ID, "one-more")
	wantError(t, err, rules.ErrTooManyErasures)
	must(w.EraseUser(ctx, w.ours.ID, "user-7"))(t) // goes on already
	must(w.EraseUser(ctx, w.theirs.ID, "one-more"))(t)
	exec(t, w.url, `UPDATE user_erasure SET user_id = NULL, finished_at = now()
		WHERE tenant_id = $1 AND user_id = 'user-1'`, w.ours.ID)
	must(w.EraseUser(ctx, w.ours.ID, "one-more"))(t)
}

// The store of buckets may take as long as it likes.
func TestNoTransactionIsOpenWhileBucketsAreFilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	watch := connect(t, w.url)
	first := must(w.EraseUser(t.Context(), w.ours.ID, "mallory"))(t)
	var open []string
	ended := w.workOn(t, w.ErasureWork(func(context.Context, rules.TenantID, string) (int64, error) {
		for range 20 { // other work of the process may be between two statements
			if open = lines(t, watch, `SELECT query FROM pg_stat_activity
				WHERE datname = current_database() AND state = 'idle in transaction'`); len(open) == 0 {
				break
			}
		}
		return 3, nil
	}), w.ours.ID, first)
	if len(open) > 0 {
		t.Errorf("a transaction waits after %q", open)
	}
	if ended.FinishedAt.IsZero() {
		t.Errorf("it is %+v", ended)
	}
}

func TestAnErasureReadsRecordedBlocksOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	w.recordFor(t, 7)
	w.EraseInPiecesOf(2)
	now := time.Now().UTC()
	var blocks []traffic.Block
	for number := range int64(5) {
		blocks = append(blocks, blockOf(ours, number+1, now, 0, "mallory", "43"))
	}
	if err := w.WriteTraffic(ctx, blocks); err != nil {
		t.Fatal(err)
	}
	must(w.EraseUser(ctx, ours, "mallory"))(t)
	watch := connect(t, w.url)
	var id int64
	if err := watch.QueryRow(ctx, "SELECT erasure_id FROM user_erasure").Scan(&id); err != nil {
		t.Fatal(err)
	}
	var places []string
	for goesOn := true; goesOn; {
		var err error
		if _, goesOn, err = w.ErasePiece(ctx, ours, id, threeBuckets); err != nil {
			t.Fatal(err)
		}
		places = append(places, lines(t, watch, `SELECT s->>'rows' || ' ' || ((s->>'at')::jsonb->>'number')
			FROM user_erasure, jsonb_array_elements(steps) AS s
			WHERE s->>'name' = 'traffic_blocks' AND s->>'at' IS NOT NULL`)...)
	}
	if want := []string{"2 2", "4 4"}; !slices.Equal(places, want) {
		t.Errorf("rows and last blocks of the pieces are %q, want %q", places, want)
	}
}

// A recorder's batch takes locks in the order of the rows.
func TestAnErasureDoesNotDeadlockWithARecorder(t *testing.T) {
	t.Parallel()
	for name, batch := range map[string][2]string{
		"the other subjects come first": {"(1, '', true)", "(1, 'mallory', false)"},
		"the other subjects come later": {"(1, 'mallory', false)", "(2, '', true)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ctx, ours := t.Context(), w.ours.ID
			exec(t, w.url, `INSERT INTO violation_minute (tenant_id, minute, rule_id, subject, other, denied,
				detail_dropped)
				SELECT $1, timestamptz '2026-11-01Z' + make_interval(mins => i), $2, s, s = '', 5, 0
				FROM generate_series(1, 3) AS i, unnest('{"", mallory}'::text[]) AS s WHERE i < 3 OR s <> ''`,
				ours, w.ours.user.ID)
			recorder, watch := connect(t, w.url), connect(t, w.url)
			count := func(row string) error {
				_, err := recorder.Exec(ctx, `INSERT INTO violation_minute AS m
					(tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
					SELECT $1, timestamptz '2026-11-01Z' + make_interval(mins => c.minute), $2, c.subject, c.other, 1, 0
					FROM (VALUES `+row+`) AS c (minute, subject, other)
					ON CONFLICT (tenant_id, minute, rule_id, subject, other) DO UPDATE SET denied = m.denied + 1`,
					ours, w.ours.user.ID)
				return err
			}
			must(recorder.Exec(ctx, "BEGIN"))(t)
			if err := count(batch[0]); err != nil {
				t.Fatal(err)
			}
			must(w.EraseUser(ctx, ours, "mallory"))(t)
			job, kind := w.claim(t, "erase user"), w.ErasureWork(threeBuckets)
			ended := make(chan error, 1)
			go func() {
				again, err := kind.Do(ctx, &job)
				for err == nil && !again.IsZero() { // a slow machine needs more turns
					again, err = kind.Do(ctx, &job)
				}
				ended <- err
			}()
			const waiting = `SELECT pid::text FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock'`
			for deadline := time.Now().Add(time.Minute); len(lines(t, watch, waiting)) == 0; runtime.Gosched() {
				if time.Now().After(deadline) {
					t.Fatal("the erasure waits for no lock")
				}
			}
			if err := count(batch[1]); err != nil {
				t.Errorf("the recorder: %v", err)
			}
			must(recorder.Exec(ctx, "COMMIT"))(t)
			if err := <-ended; err != nil {
				t.Errorf("the erasure: %v", err)
			}
			got := lines(t, watch,
				"SELECT concat_ws(' ', sum(denied), bool_and(other), count(*)) FROM violation_minute")
			if got[0] != "27 t 3" {
				t.Errorf("the counts are %q, want 27 of other subjects in 3 minutes", got)
			}
		})
	}
}

func TestAnErasureGoesOnAfterTheDatabaseWasAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	const counts = 3000
	w.EraseInPiecesOf(5)
	exec(t, w.url, `INSERT INTO violation_minute (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
		SELECT $1, timestamptz '2026-11-01Z' + make_interval(mins => i), $2, 'mallory', false, 2, 1
		FROM generate_series(1, $3) AS i`, ours, w.ours.user.ID, counts)
	first := must(w.EraseUser(ctx, ours, "mallory"))(t)
	owner, role := connect(t, w.url), roleOf(t, w.url)
	runner := jobs.New(w, []jobs.Kind{w.ErasureWork(threeBuckets)}, slog.New(slog.DiscardHandler))
	if err := runner.Round(ctx); err != nil {
		t.Fatal(err)
	}
	left := func() string {
		return lines(t, owner, "SELECT count(*)::text FROM violation_minute WHERE subject = 'mallory'")[0]
	}
	for deadline := time.Now().Add(time.Minute); left() == fmt.Sprint(counts); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("no piece is erased in a minute")
		}
	}
	must(owner.Exec(ctx, fmt.Sprintf("ALTER ROLE %s NOLOGIN", role)))(t)
	must(owner.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", role))(t)
	runner.Wait()
	if before := left(); before == "0" {
		t.Fatal("it ended before the database was away")
	}
	if err := runner.Round(ctx); err == nil {
		t.Error("a round works without the database")
	}
	must(owner.Exec(ctx, fmt.Sprintf("ALTER ROLE %s LOGIN", role)))(t)
	for turn := 0; turn < 100 && must(w.Erasure(ctx, ours, first.ID))(t).FinishedAt.IsZero(); turn++ {
		w.die(t) // the minute of the lease is over
		w.work(t, w.ErasureWork(threeBuckets))
	}
	receipt := must(w.Erasure(ctx, ours, first.ID))(t)
	at := slices.IndexFunc(receipt.Steps, func(step rules.ErasureStep) bool { return step.Name == "counts" })
	if receipt.FinishedAt.IsZero() || receipt.Error != "" || receipt.Steps[at].Rows != counts {
		t.Errorf("the receipt is %+v", receipt)
	}
	got := lines(t, owner, `SELECT concat_ws(' ', sum(denied), bool_and(other), (SELECT count(*) FROM user_erasure),
		(SELECT count(*) FROM audit_event WHERE object_kind = 'user' AND object_id = $1)) FROM violation_minute`,
		first.ID)
	if want := fmt.Sprint(2*counts, " t 1 1"); got[0] != want {
		t.Errorf("counts, erasures and receipts are %q, want %q", got[0], want)
	}
}
