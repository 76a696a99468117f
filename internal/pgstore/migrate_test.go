package pgstore_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/pgstore/migrate"
)

// schemaFiles are the schema as it stands, and the names that the release before knows.
var schemaFiles = []string{"../../db/schema.sql", "../../db/before.sql"}

func TestSchemaFileIsAllMigrationsApplied(t *testing.T) {
	t.Parallel()
	migrated, written := devdbtest.Postgres(t), devdbtest.EmptyPostgres(t)
	exec(t, migrated, "DROP TABLE goose_db_version")
	for _, file := range schemaFiles {
		exec(t, written, string(must(os.ReadFile(file))(t)))
	}
	if got, want := describe(t, written), describe(t, migrated); got != want {
		t.Errorf("%q make\n%s\nand the migrations make\n%s", schemaFiles, got, want)
	}
}

func TestDescriptionsOfSchemasThatDifferDiffer(t *testing.T) {
	t.Parallel()
	changes := []string{
		"ALTER TABLE plan ADD COLUMN colour text",
		"ALTER TABLE plan ALTER COLUMN description DROP DEFAULT",
		"ALTER TABLE plan DROP CONSTRAINT plan_name_check",
		"DROP INDEX plan_revision_idx",
		"CREATE OR REPLACE FUNCTION moment_after(earlier timestamptz[]) RETURNS timestamptz LANGUAGE sql VOLATILE RETURN now()",
		"ALTER TABLE plan ALTER COLUMN name TYPE text COLLATE \"default\"",
	}
	same := describe(t, devdbtest.Postgres(t))
	for _, change := range changes {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			url := devdbtest.Postgres(t)
			exec(t, url, change)
			if describe(t, url) == same {
				t.Error("the description is the same")
			}
		})
	}
}

// describe lists everything in a database's schema, in no particular order of columns, because a
// column that a migration adds is the last.
func describe(t *testing.T, url string) string {
	t.Helper()
	const catalog = `
		SELECT format('column %s.%s %s %s %s %s', c.table_name, c.column_name, c.data_type, c.is_nullable,
			coalesce(c.column_default, c.identity_generation, ''), coalesce(c.collation_name, ''))
			FROM information_schema.columns c WHERE table_schema = 'public'
		UNION ALL
		SELECT format('constraint %s.%s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
			FROM pg_constraint WHERE connamespace = 'public'::regnamespace
		UNION ALL
		SELECT pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
			WHERE relnamespace = 'public'::regnamespace
		UNION ALL
		SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
		UNION ALL
		SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
		UNION ALL
		SELECT format('view %s %s', viewname, definition) FROM pg_views WHERE schemaname = 'public'
		ORDER BY 1`
	rows, err := connect(t, url).Query(t.Context(), catalog)
	lines := must(pgx.CollectRows(must(rows, err)(t), pgx.RowTo[string]))(t)
	return strings.Join(lines, "\n")
}

func TestMigratingAtOnceAppliesEachMigrationOnce(t *testing.T) {
	t.Parallel()
	url := devdbtest.EmptyPostgres(t)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			if err := migrate.Up(t.Context(), url, slog.New(slog.DiscardHandler)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	files := must(filepath.Glob("../../db/migrations/*.sql"))(t)
	var applied int
	err := connect(t, url).QueryRow(t.Context(), "SELECT count(*) FROM goose_db_version WHERE version_id > 0").Scan(&applied)
	if err != nil || applied != len(files) {
		t.Errorf("%d migrations were applied (%v), want %d", applied, err, len(files))
	}
	if err := pgstore.CheckSchema(t.Context(), url); err != nil {
		t.Error(err)
	}
}

// TestAMigrationGivesUpOnATableThatIsInUse sets the timeout for the session, since migration 6 has none itself.
func TestAMigrationGivesUpOnATableThatIsInUse(t *testing.T) {
	t.Parallel()
	url := devdbtest.EmptyPostgres(t)
	migrateTo(t, url, 5)
	reader := must(connect(t, url).Begin(t.Context()))(t)
	must(reader.Exec(t.Context(), "SELECT FROM alert_delivery"))(t)
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	err := migrate.Up(t.Context(), url+separator+"lock_timeout=50ms", slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "run `admin migrate` again") {
		t.Errorf("the error does not say what to do: %v", err)
	}
}

func TestCheckSchema(t *testing.T) {
	t.Parallel()
	t.Run("refuses an empty database and leaves it empty", func(t *testing.T) {
		t.Parallel()
		url := devdbtest.EmptyPostgres(t)
		err := pgstore.CheckSchema(t.Context(), url)
		wantError(t, err, pgstore.ErrSchemaBehind)
		if err != nil && !strings.Contains(err.Error(), "is at version 0 and this binary needs") {
			t.Errorf("the error does not say what is wrong: %v", err)
		}
		if left := describe(t, url); left != "" {
			t.Errorf("the check created\n%s", left)
		}
	})
	t.Run("refuses a schema that is behind", func(t *testing.T) {
		t.Parallel()
		url := devdbtest.Postgres(t)
		exec(t, url, "DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version)")
		wantError(t, pgstore.CheckSchema(t.Context(), url), pgstore.ErrSchemaBehind)
	})
	t.Run("accepts a schema that is ahead", func(t *testing.T) {
		t.Parallel()
		url := devdbtest.Postgres(t)
		exec(t, url, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)")
		if err := pgstore.CheckSchema(t.Context(), url); err != nil {
			t.Error(err)
		}
		if err := migrate.Up(t.Context(), url, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("an older binary cannot migrate a newer schema: %v", err)
		}
	})
}
