package pgstore_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/pgstore/migrate"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

// lastUnpartitioned is the last migration before the counts of violations are partitioned.
const lastUnpartitioned = 54

// TestCountsThatWereThereBecomeTheOldestPartition migrates while a process of the release before is connected as its own role,
// and then lets it and a process of this release count the same denials.
func TestCountsThatWereThereBecomeTheOldestPartition(t *testing.T) {
	t.Parallel()
	ctx, owner := t.Context(), devdbtest.EmptyPostgres(t)
	migrateTo(t, owner, lastUnpartitioned)
	if err := pgstore.Secure(ctx, owner); err != nil {
		t.Fatal(err)
	}
	runtime := must(pgx.ParseConfig(runtimeURL(t, owner)))(t)
	runtime.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // as a Store asks
	old := must(pgx.ConnectConfig(ctx, runtime))(t)
	defer func() { _ = old.Close(ctx) }()
	statements := statementsBefore(t)
	exec(t, owner, "INSERT INTO tenant (slug, name) VALUES ('acme', 'Acme'), ('other', 'Other')")
	now := time.Now().UTC().Truncate(time.Minute)
	ancient := now.Add(-500 * day)
	countBefore := func(at time.Time) {
		t.Helper()
		_, err := old.Exec(ctx, statements["ViolationsCounted"], []int64{1}, []time.Time{at}, []int64{12}, []string{"42"}, []bool{false}, []int64{2}, []int64{1})
		if err != nil {
			t.Error(err)
		}
	}
	deniedBefore := func(at time.Time) (denied int64) {
		t.Helper()
		err := old.QueryRow(ctx, statements["DeniedInMinute"], 1, at, 12, "42").Scan(&denied)
		if err != nil {
			t.Error(err)
		}
		return denied
	}
	countBefore(now)
	countBefore(ancient)
	deniedBefore(now)

	if err := migrate.Up(ctx, owner, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}

	end := now.Truncate(day).Add(14 * day)
	oldest := "violation_minute_" + named(end.Add(-day))
	conn := connect(t, owner)
	must(conn.Exec(ctx, "SET timezone = 'UTC'"))(t)
	for what, want := range map[string]string{
		// where the rows are, and that nothing was promised for longer than it was needed
		`SELECT string_agg(DISTINCT tableoid::regclass::text, ' ') FROM violation_minute`:                                                                                  oldest,
		`SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = '` + oldest + `'`:                                                                             "FOR VALUES FROM (MINVALUE) TO ('" + end.Format(time.DateOnly) + " 00:00:00+00')",
		`SELECT count(*)::text FROM pg_constraint WHERE conname LIKE 'violation_minute_until%'`:                                                                            "0",
		`SELECT count(*)::text FROM pg_class WHERE relname LIKE 'violation_minute%' AND relispartition AND relkind = 'r' AND relacl::text LIKE '%tenant%'`:                 "0",
		`SELECT string_agg(policyname, ' ' ORDER BY policyname) FROM pg_policies WHERE tablename = 'violation_minute'`:                                                     "every_row one_tenant",
		`SELECT relrowsecurity::text FROM pg_class WHERE oid = 'violation_minute'::regclass`:                                                                               "true",
		`SELECT string_agg(inhparent::regclass::text, ' ' ORDER BY 1) FROM pg_inherits JOIN pg_index ON indexrelid = inhrelid WHERE indrelid = '` + oldest + `'::regclass`: "violation_minute_pkey violation_minute_rule_idx",
	} {
		if got := strings.Join(lines(t, conn, what), " "); got != want {
			t.Errorf("%s\nis %s, want %s", what, got, want)
		}
	}

	store := must(pgstore.Open(ctx, runtimeOf(t, owner), slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(store.Close)
	v := violation(1, now)
	batch := violations.Batch{Writer: "new", Number: 1, Tallies: []violations.Tally{tallyOf(v, 1)}}
	for range 2 { // the second time it is known
		if err := store.WriteViolations(ctx, &batch); err != nil {
			t.Fatal(err)
		}
	}
	countBefore(now)
	if got := deniedBefore(now); got != 7 { // 2 twice by the old process, 3 once by the new one
		t.Errorf("%d denials are counted in one minute, want 7", got)
	}

	// New processes are granted the functions by admin migrate --grant-to.
	if err := pgstore.Grant(ctx, owner, roleOf(t, owner)); err != nil {
		t.Fatal(err)
	}
	kept := must(store.KeepViolations(ctx, now, keep))(t)
	if want := (violations.Kept{DaysMade: 5, RowsDropped: 1}); kept != want { // of the rows in detail
		t.Errorf("the upkeep did %+v, want %+v", kept, want)
	}
	countBefore(ancient)
	if tag := must(old.Exec(ctx, statements["DropViolationMinutes"], now.Add(-keep.Counts), 100))(t); tag.RowsAffected() != 1 {
		t.Errorf("the release before deletes %d old rows, want 1", tag.RowsAffected())
	}
	if got := deniedBefore(now); got != 7 {
		t.Errorf("after the old rows were dropped, %d denials are left, want 7", got)
	}

	// Two weeks later days have their own partitions. Rows of theirs at the place of an old row stay.
	later := end.Add(12 * time.Hour)
	exec(t, owner, `INSERT INTO violation_minute SELECT 1, $1::timestamptz + i * interval '1 minute', 12, '42', false, 1, 0 FROM generate_series(1, 100) AS i`, later)
	exec(t, owner, `INSERT INTO violation_minute SELECT 1, $1::timestamptz + i * interval '1 minute', 12, '42', false, 1, 0 FROM generate_series(1, 100) AS i`, ancient)
	kept = must(store.KeepViolations(ctx, later, violations.Retention{Details: 60 * day, Counts: keep.Counts}))(t)
	if kept.RowsDropped != 100+1 || kept.DaysMade != 9 { // and the batch's number; 5 days of details, and 4 after the oldest partition
		t.Errorf("two weeks later the upkeep did %+v, want 9 days made and 101 rows dropped", kept)
	}
	if got := partitions(t, owner, "violation_minute"); got[named(later)] != 100 || got[named(end.Add(-day))] != 1 || got["default"] != 0 {
		t.Errorf("two weeks later the partitions are %v", got)
	}
}

// TestATenantSeesItsOwnCountsInEveryPartition reads through the parent, which has the policies.
func TestATenantSeesItsOwnCountsInEveryPartition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := lately()
	for _, ago := range []time.Duration{0, 5 * day} {
		w.record(t, now.Add(-ago), func(*violations.Violation) {})
	}
	must(w.KeepViolations(t.Context(), now, keep))(t)
	w.record(t, now.Add(-9*day), func(*violations.Violation) {}) // into the default one
	for _, tenant := range []rules.TenantID{w.ours.ID, w.theirs.ID} {
		var rows, others int
		err := w.ConnectionOf(tenant).QueryRow(t.Context(),
			"SELECT count(*), count(*) FILTER (WHERE tenant_id <> $1) FROM violation_minute", tenant).Scan(&rows, &others)
		if err != nil || rows != 3 || others != 0 {
			t.Errorf("tenant %d sees %d rows, %d of others (%v), want its own 3", tenant, rows, others, err)
		}
		if _, err := w.ConnectionOf(tenant).Exec(t.Context(), "SELECT FROM violation_minute_"+named(now)); !isRefusal(err) {
			t.Errorf("a partition itself can be read: %v", err)
		}
	}
}

// TestRecentCountsAreReadFromTheirPartitions reads plans, because a reader of all partitions is slow and right.
func TestRecentCountsAreReadFromTheirPartitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := lately()
	must(w.KeepViolations(t.Context(), now, keep))(t)
	plan := strings.Join(lines(t, connect(t, w.url), `EXPLAIN SELECT minute FROM violation_minute
		WHERE tenant_id = $1 AND rule_id = 12 AND minute > $2 AND minute <= $3`, w.ours.ID, now.Add(-time.Minute), now), "\n")
	if today := "violation_minute_" + named(now); !strings.Contains(plan, today) || strings.Contains(plan, fmt.Sprintf("violation_minute_%s", named(now.Add(-2*day)))) ||
		strings.Contains(plan, "violation_minute_"+named(now.Add(2*day))) {
		t.Errorf("the plan is\n%s\nwant %s, and not the days around it", plan, today)
	}
}
