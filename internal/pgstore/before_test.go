package pgstore_test

import (
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/sluicegate/sluice/db"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore/migrate"
)

// lastBefore is the last migration of the release before.
const lastBefore = 19

// statementsBefore reads what the release before sends about tables that have other names now.
func statementsBefore(t *testing.T) map[string]string {
	t.Helper()
	statements := map[string]string{}
	text := string(must(os.ReadFile("testdata/release-before.sql"))(t))
	for _, part := range strings.Split(text, "-- name: ")[1:] {
		name, statement, _ := strings.Cut(part, "\n")
		statements[name] = statement
	}
	return statements
}

// migrateTo applies the first migrations to an empty database.
func migrateTo(t *testing.T, url string, last int64) {
	t.Helper()
	pool := stdlib.OpenDB(*must(pgx.ParseConfig(url))(t))
	defer func() { _ = pool.Close() }()
	files := must(fs.Sub(db.Migrations, "migrations"))(t)
	migrations := must(goose.NewProvider(goose.DialectPostgres, pool, files, goose.WithDisableGlobalRegistry(true)))(t)
	must(migrations.UpTo(t.Context(), last))(t)
}

// TestTheReleaseBeforeWorksOnTheNewSchema migrates while a process of the release before is connected, as the role that
// was granted rights before, and then sends all that such a process does.
func TestTheReleaseBeforeWorksOnTheNewSchema(t *testing.T) {
	t.Parallel()
	owner := devdbtest.EmptyPostgres(t)
	migrateTo(t, owner, lastBefore)
	runtime := must(pgx.ParseConfig(runtimeURL(t, owner)))(t)
	runtime.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe // as a Store asks
	old := must(pgx.ConnectConfig(t.Context(), runtime))(t)
	defer func() { _ = old.Close(t.Context()) }()
	statements := statementsBefore(t)
	send := func(name string, args ...any) (values []any) {
		t.Helper()
		rows, err := old.Query(t.Context(), statements[name], args...)
		if err == nil && rows.Next() {
			values, err = rows.Values()
		}
		rows.Close()
		if err == nil {
			err = rows.Err()
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return values
	}
	exec(t, owner, `INSERT INTO tenant (slug, name) VALUES ('acme', 'Acme');
		INSERT INTO plan (tenant_id, name, revision) VALUES (1, 'free', 1), (1, 'pro', 1);
		INSERT INTO rate_limit_rule (tenant_id, key_pattern, scope, rate_per_second, rate_unit, burst_capacity, algorithm, mode, action, is_active, in_force_since, revision)
			VALUES (1, 'global', 'global', 1, 'second', 1, 'token_bucket', 'enforce', 'limit', true, now(), 1);
		INSERT INTO alert (tenant_id, name, rule_id, per_subject, threshold, window_minutes, url, secret, is_active)
			VALUES (1, 'loud', 1, false, 5, 10, 'https://example.com', 's', true)`)
	subject, network := make([]byte, 32), netip.MustParsePrefix("::/0")
	waits, now := []float64{0, 0, 0, 0, 60}, time.Now()
	attempt := func() []any { return send("Attempt", subject, network, 3600.0, waits) }

	send("AssignUsers", 1, []string{"ada", "bob"}, []string{"free", "pro"}, 7)
	poll := func() []any { return send("NewerAssignments", 1, 6, "", true, 10) }
	if got := poll(); len(got) == 0 || got[1] != "ada" {
		t.Errorf("before the migration a poll finds %v", got)
	}
	attempt()
	delivery := send("TestAlert", 1, 1)

	if err := migrate.Up(t.Context(), owner, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}

	if got := poll(); len(got) == 0 || got[1] != "ada" || got[2] != "free" {
		t.Errorf("a poll after the migration finds %v", got)
	}
	send("AssignUsers", 1, []string{"ada", "cy"}, []string{"pro", "free"}, 8)
	send("UnassignUsers", 9, 1, []string{"bob"})
	if got := send("Assignment", 1, "ada"); len(got) == 0 || got[2] != "pro" {
		t.Errorf("a user who was moved is %v", got)
	}
	send("AssignmentsAfter", 1, "", "", "", 10)
	if got := attempt(); len(got) != 1 || got[0] != int32(2) {
		t.Errorf("a second attempt is number %v", got)
	}
	send("SecondsToWait", waits, subject, network)
	send("AlertDeliveriesBefore", 1, 99, 0, 10)
	send("AlertDelivery", 1, 1, delivery[1])
	claimed := send("ClaimAlertDeliveries", now.Add(2*time.Minute), 10, now.Add(time.Minute), 4)
	if len(claimed) == 0 || claimed[1] != delivery[1] {
		t.Errorf("claimed %v, want delivery %v", claimed, delivery[1])
	}
	send("FinishAlertDelivery", "failed", now, now, 502, "", 1, delivery[1], 1)
	send("RaiseAlerts", now, 100, 1)
	var plan string
	var users, status, attempts int
	err := connect(t, owner).QueryRow(t.Context(), `SELECT
		(SELECT plan FROM plan_assignment WHERE user_id = 'ada'), (SELECT users FROM plan_use WHERE plan = 'free'),
		(SELECT http_status FROM delivery), (SELECT attempts FROM sign_in_attempt)`).Scan(&plan, &users, &status, &attempts)
	if err != nil || plan != "pro" || users != 1 || status != 502 || attempts != 2 {
		t.Errorf("this release reads plan %q with %d users on free, status %d, %d attempts: %v", plan, users, status, attempts, err)
	}
	send("RetryAlertDelivery", 1, 1, delivery[1])
	send("FinishAlertDelivery", "failed", now, now, 200, "", 1, delivery[1], 1)
	send("DropAlertDeliveries", now.Add(time.Hour), 10)
	send("ForgetOldAttempts", 86400.0)
	send("ForgetAttempts", subject)
	var left int
	err = connect(t, owner).QueryRow(t.Context(), "SELECT (SELECT count(*) FROM delivery) + (SELECT count(*) FROM sign_in_attempt)").Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d rows are left that were dropped: %v", left, err)
	}
}
