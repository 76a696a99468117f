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
	err := connect(t, url).QueryRow(t.Context(),
		"SELECT count(*) FROM schema_version WHERE version_id > 0").Scan(&applied)
	if err != nil || applied != len(files) {
		t.Errorf("%d migrations were applied (%v), want %d", applied, err, len(files))
	}
	if err := pgstore.CheckSchema(t.Context(), url); err != nil {
		t.Error(err)
	}
}

// sqlc reads db/schema.sql, and processes run on what the migrations make.
func TestTheSchemaIsWhatTheMigrationsMake(t *testing.T) {
	t.Parallel()
	migrated, url := devdbtest.Postgres(t), devdbtest.EmptyPostgres(t)
	exec(t, url, string(must(os.ReadFile("../../db/schema.sql"))(t)))
	if err := pgstore.Secure(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	made, stands := objects(t, migrated), objects(t, url)
	for object := range made {
		if !stands[object] {
			t.Errorf("the migrations make this, and db/schema.sql lacks it: %s", object)
		}
	}
	for object := range stands {
		if !made[object] {
			t.Errorf("db/schema.sql has this, and no migration makes it: %s", object)
		}
	}
	if len(made) < 500 {
		t.Errorf("only %d objects were compared", len(made))
	}
}

func objects(t *testing.T, url string) map[string]bool {
	t.Helper()
	rows := must(connect(t, url).Query(t.Context(), `
		WITH mine AS (
			SELECT oid FROM pg_class
			WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE $1 || '%'
		)
		SELECT format('column %s of %s: %s, %s, not null %s, default %s, %s%s',
			row_number() OVER (PARTITION BY a.attrelid ORDER BY a.attnum), a.attrelid::regclass, a.attname,
			format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attidentity,
			a.attgenerated)
		FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE a.attrelid IN (TABLE mine) AND a.attnum > 0 AND NOT a.attisdropped
		UNION ALL
		SELECT format('constraint %s of %s: %s', conname, conrelid::regclass, pg_get_constraintdef(oid))
		FROM pg_constraint WHERE conrelid IN (TABLE mine)
		UNION ALL
		SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid IN (TABLE mine)
		UNION ALL
		SELECT format('policy %s of %s', polname, polrelid::regclass) FROM pg_policy WHERE polrelid IN (TABLE mine)
		UNION ALL
		SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid IN (TABLE mine) AND NOT tgisinternal
		UNION ALL
		SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prokind IN ('f', 'p')`,
		pgstore.VersionTable))(t)
	found := map[string]bool{}
	for _, object := range must(pgx.CollectRows(rows, pgx.RowTo[string]))(t) {
		found[object] = true
	}
	return found
}

func TestAMigrationGivesUpOnATableThatIsInUse(t *testing.T) {
	t.Parallel()
	url := devdbtest.EmptyPostgres(t)
	other := must(connect(t, url).Begin(t.Context()))(t)
	must(other.Exec(t.Context(), "CREATE TABLE tenant ()"))(t)
	err := migrate.Up(t.Context(), url, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "run `admin migrate` again") {
		t.Errorf("the error does not say what to do: %v", err)
	}
}

// The last migration of such a database has a higher number than those of this binary.
func TestADatabaseFromBeforeTheFirstReleaseIsRefused(t *testing.T) {
	t.Parallel()
	url := devdbtest.EmptyPostgres(t)
	exec(t, url, `CREATE TABLE goose_db_version (version_id bigint NOT NULL, is_applied boolean NOT NULL);
		INSERT INTO goose_db_version VALUES (0, true), (1, true), (74, true)`)
	wantError(t, pgstore.CheckSchema(t.Context(), url), pgstore.ErrUnreleased)
	wantError(t, migrate.Up(t.Context(), url, slog.New(slog.DiscardHandler)), pgstore.ErrUnreleased)
	var tables int
	err := connect(t, url).QueryRow(t.Context(),
		"SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&tables)
	if err != nil || tables != 1 {
		t.Errorf("%d tables are there (%v), want the one of before", tables, err)
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
		var created int
		err = connect(t, url).QueryRow(t.Context(),
			"SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&created)
		if err != nil || created != 0 {
			t.Errorf("the check created %d tables (%v)", created, err)
		}
	})
	t.Run("refuses a schema that is behind", func(t *testing.T) {
		t.Parallel()
		url := devdbtest.Postgres(t)
		exec(t, url, "DELETE FROM schema_version WHERE version_id = (SELECT max(version_id) FROM schema_version)")
		wantError(t, pgstore.CheckSchema(t.Context(), url), pgstore.ErrSchemaBehind)
	})
	t.Run("accepts a schema that is ahead", func(t *testing.T) {
		t.Parallel()
		url := devdbtest.Postgres(t)
		exec(t, url, "INSERT INTO schema_version (version_id, is_applied) VALUES (99999, true)")
		if err := pgstore.CheckSchema(t.Context(), url); err != nil {
			t.Error(err)
		}
		if err := migrate.Up(t.Context(), url, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("an older binary cannot migrate a newer schema: %v", err)
		}
	})
}
