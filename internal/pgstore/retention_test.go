package pgstore_test

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

const (
	day     = 24 * time.Hour
	details = "rate_limit_violation"
)

var keep = violations.Retention{Details: 30 * day, Counts: 396 * day}

func partitions(t *testing.T, url, table string) map[string]int {
	t.Helper()
	connection := connect(t, url)
	rows, err := connection.Query(t.Context(), `SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
		WHERE inhparent = $1::text::regclass`, table)
	names := must(pgx.CollectRows(must(rows, err)(t), pgx.RowTo[string]))(t)
	counts := map[string]int{}
	for _, name := range names {
		var n int
		if err := connection.QueryRow(t.Context(), "SELECT count(*) FROM "+name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		counts[strings.TrimPrefix(name, table+"_")] = n
	}
	return counts
}

func rowsIn(t *testing.T, url, table string) (n int) {
	t.Helper()
	if err := connect(t, url).QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func named(at time.Time) string { return at.UTC().Format("20060102") }

func TestUpkeepMakesPartitionsAndDropsWhatIsOld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Second)       // a millisecond later it is the same day
	for _, ago := range []time.Duration{0, 5 * day, 29 * day, 40 * day} { // no partition is there yet
		w.record(t, now.Add(-ago), func(*violations.Violation) {})
	}
	if got := partitions(t, w.url, details); got["default"] != 8 || len(got) != 1 {
		t.Fatalf("before any upkeep the partitions are %v, want 8 rows in the default one", got)
	}
	kept := must(w.KeepViolations(ctx, now, keep))(t)
	if want := (pgstore.Kept{DaysMade: 7 + 7 + 8 + 5 + 5}); kept != want {
		t.Errorf("the first upkeep did %+v, want %+v", kept, want)
	}
	counts := partitions(t, w.url, "violation_minute")
	for at, want := range map[string]int{
		"default": 0, named(now): 2, named(now.Add(-40 * day)): 2,
		named(now.Add(3 * day)): 0,
	} {
		if n, ok := counts[at]; !ok || n != want || len(counts) != 9 {
			t.Errorf("the counts are in %v, want %d rows in %s, and 9 partitions", counts, want, at)
		}
	}
	got := partitions(t, w.url, details)
	for at, want := range map[string]int{
		"default": 0, named(now): 2, named(now.Add(-5 * day)): 2, named(now.Add(-29 * day)): 2,
		named(now.Add(-day)): 0, named(now.Add(3 * day)): 0,
	} {
		if n, ok := got[at]; !ok || n != want {
			t.Errorf("partition %s has %d rows (%v), want %d", at, n, ok, want)
		}
	}
	if len(got) != 8 {
		t.Errorf("the partitions are %v, want the default and 7 days", got)
	}
	if kept := must(w.KeepViolations(ctx, now, keep))(t); kept != (pgstore.Kept{}) {
		t.Errorf("the second upkeep did %+v, want nothing", kept)
	}
	w.record(t, now.Add(time.Millisecond), func(*violations.Violation) {})
	if got := partitions(t, w.url, details); got[named(now)] != 4 || got["default"] != 0 {
		t.Errorf("a new row went into %v", got)
	}
	kept = must(w.KeepViolations(ctx, now, violations.Retention{Details: 10 * day, Counts: keep.Counts}))(t)
	if got := partitions(t, w.url, details); kept.DaysDropped != 2 || len(got) != 7 {
		t.Errorf("a shorter retention dropped %d days and left %v", kept.DaysDropped, got)
	}
	all := violations.Filter{Since: now.Add(-60 * day), Until: now.Add(day)}
	if page := must(w.Violations(ctx, w.ours.ID, &all, violations.ID{}, 10))(t); len(page.Violations) != 3 {
		t.Errorf("%d of our rows are left, want 3", len(page.Violations))
	}
	kept = must(w.KeepViolations(ctx, now, violations.Retention{Details: 10 * day, Counts: 20 * day}))(t)
	if got := partitions(t, w.url, "violation_minute"); kept.DaysDropped != 2 || kept.RowsDropped != 0 ||
		len(got) != 7 {
		t.Errorf("a shorter retention of counts did %+v and left %v, want two days dropped and no row deleted", kept,
			got)
	}
}

func TestUpkeepDropsOldRowsPieceByPiece(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now().UTC().Truncate(day).Add(12 * time.Hour) // noon, also if midnight passes meanwhile
	for _, sql := range []string{
		`INSERT INTO decision_span SELECT tenant_id, i, 60, now() - interval '430 days', 1, 1, 0, 0, 1
			FROM tenant, generate_series(1, 11000) AS i`, // of both tenants
		`INSERT INTO decision_span SELECT tenant_id, 0, 60, now() - i * interval '1 day', 1, 1, 0, 0, 1
			FROM tenant, generate_series(0, 429) AS i`,
		`INSERT INTO recorder_batch SELECT 'x', i, now() - i * interval '1 day' FROM generate_series(0, 9) AS i`,
		`UPDATE rate_limit_override SET in_force_since = now() - interval '500 days',
			removed_at = now() - interval '401 days'
			WHERE tenant_id = (SELECT max(tenant_id) FROM tenant)`,
	} {
		exec(t, w.url, strings.ReplaceAll(sql, "now()", "timestamptz '"+now.Add(-time.Second).Format(time.RFC3339)+"'"))
	}
	oldest := now.Add(-keep.Counts)
	month := time.Date(oldest.Year(), oldest.Month(), 1, 0, 0, 0, 0, time.UTC) // is kept as a whole
	want := 2*11_000 + 2*(429-int64(now.Add(-time.Second).Sub(month)/day)) + 3 + 1
	kept := must(w.KeepViolations(t.Context(), now, keep))(t)
	if kept.RowsDropped != want || kept.IsMore {
		t.Errorf("%+v, want %d rows dropped and no more", kept, want)
	}
}

func TestARunThatLeavesRowsGoesOnAndStaysDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.DropInPiecesOf(1)
	exec(t, w.url, `INSERT INTO recorder_batch SELECT 'x', i, now() - interval '8 days'
		FROM generate_series(1, 250) AS i`)
	kinds := w.Retention(keep, slog.New(slog.DiscardHandler))
	kinds = slices.DeleteFunc(kinds, func(k jobs.Kind) bool { return k.Name != "keep numbers of batches" })
	r := runner(w, slog.New(slog.DiscardHandler), kinds...)
	round(t, r)
	exec(t, w.url, "UPDATE job SET due_at = due_at - interval '2 hours' WHERE kind LIKE 'keep%'")
	lag := func() time.Duration { return must(w.PeriodicJobs(t.Context()))(t)[0].Lag }
	if left := rowsIn(t, w.url, "recorder_batch"); left != 50 || lag() < 2*time.Hour {
		t.Errorf("after a run of 200 transactions %d rows are left, and the job has been due for %v", left, lag())
	}
	round(t, r) // without a pause
	if left := rowsIn(t, w.url, "recorder_batch"); left != 0 || lag() != 0 {
		t.Errorf("after the next run %d rows are left, and the job has been due for %v", left, lag())
	}
}

func TestEachKindFindsItsRowsByAnIndex(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	deletions := map[string]string{}
	queries := string(must(os.ReadFile("../../db/queries/platform.sql"))(t))
	for _, name := range regexp.MustCompile(`-- name: ((?:Drop|Sum)\w+ :execrows)`).FindAllStringSubmatch(queries, -1) {
		deletions[name[1]] = queryOf(t, "platform.sql", name[1], map[string]string{
			"before": "'2026-11-02'", "at_most": "10", "spans": "'{60,360,1440}'", "today": "'2026-11-02'",
			"tenant_ids": "'{1}'", "rule_ids": "'{1}'", "subjects": "'{42}'", "stamps": "'{1}'",
		})
	}
	code := string(must(os.ReadFile("retention.go"))(t))
	for _, of := range regexp.MustCompile(`dropsBefore\("([^"]+)", "(\w+)", "(\w+)"`).FindAllStringSubmatch(code, -1) {
		deletions[of[1]] = fmt.Sprintf(`DELETE FROM %[1]s WHERE ctid = ANY (ARRAY(
			SELECT old.ctid FROM %[1]s AS old WHERE old.%[2]s < '2026-11-02' LIMIT 10))`, of[2], of[3])
	}
	if len(deletions) < 20 {
		t.Fatalf("only %d are found: %q", len(deletions), slices.Collect(maps.Keys(deletions)))
	}
	connection := connect(t, w.url)
	must(connection.Exec(t.Context(), "SET enable_seqscan = off"))(t) // the tables are small
	for name, query := range deletions {
		plan := strings.Join(lines(t, connection, "EXPLAIN "+query), "\n")
		if strings.Contains(strings.ReplaceAll(plan, "Seq Scan on tenant ", ""), "Seq Scan") {
			t.Errorf("%s reads a whole table:\n%s", name, plan)
		}
	}
}

func TestARoleThatMayNotChangeTheSchemaKeepsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address := runtimeOf(t, w.url)
	if err := pgstore.CheckSchema(t.Context(), address); err != nil {
		t.Error(err)
	}
	now := time.Now().UTC()
	for _, ago := range []time.Duration{0, 5 * day} {
		w.record(t, now.Add(-ago), func(*violations.Violation) {})
	}
	if kept := must(w.KeepViolations(t.Context(), now, keep))(t); kept.DaysMade != 6+6+6+5+5 {
		t.Errorf("the upkeep did %+v, want 6 days made of each table with rows of an earlier day", kept)
	}
	if kept := must(w.KeepViolations(t.Context(), now, violations.Retention{Details: 2 * day, Counts: day}))(
		t); kept.DaysDropped != 3 {
		t.Errorf("the upkeep did %+v, want one day of each table dropped", kept)
	}
	filter := violations.Filter{Since: now.Add(-day), Until: now.Add(day)}
	if page := must(w.Violations(t.Context(), w.ours.ID, &filter, violations.ID{}, 10))(t); len(page.Violations) != 1 {
		t.Errorf("%d rows are read, want 1", len(page.Violations))
	}
	must(w.CreatePlan(t.Context(), rules.Plan{TenantID: w.ours.ID, Name: "enterprise"}))(t)
	for _, refused := range []string{
		"CREATE TABLE mine (i int)", "DROP TABLE rate_limit_violation_default",
		"DROP TABLE violation_minute_default", "DROP TABLE decision_minute_default",
		"SELECT drop_day_partitions('rate_limit_violation', current_date + 1)",
		"SELECT make_day_partition('rate_limit_violation', current_date + 1000)",
		"SELECT drop_day_partitions('decision_minute', current_date + 1)",
		"SELECT drop_day_partitions('audit_event', current_date - 100)",
		"SELECT make_day_partition('plan', current_date)",
	} {
		if _, err := connect(t, address).Exec(t.Context(), refused); err == nil {
			t.Errorf("the role may %s", refused)
		}
	}
}
