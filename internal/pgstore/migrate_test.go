package pgstore_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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
