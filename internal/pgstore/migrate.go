package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/sluicegate/sluice/db"
)

// ErrSchemaBehind is what CheckSchema answers for a database that must be migrated first.
var ErrSchemaBehind = errors.New("run `admin migrate`")

// Migrate brings the schema of a database to the version of this binary, one transaction per
// migration. Of several that are started at once one migrates and the others wait for it, for up to
// five minutes, and then find nothing left to do. A database that is newer is left as it is.
func Migrate(ctx context.Context, databaseURL string, log *slog.Logger) (err error) {
	migrations, conn, err := openMigrations(databaseURL)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	results, err := migrations.Up(ctx)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	for _, result := range results {
		log.InfoContext(ctx, "database migrated", "migration", result.Source.Path, "duration", result.Duration)
	}
	return nil
}

// CheckSchema says whether this binary can work with the schema of a database. A schema that is
// behind cannot; the error says what to run. A schema that is ahead can: migrations only add, and
// while a release is rolled out the old binaries run on the new schema.
func CheckSchema(ctx context.Context, databaseURL string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	migrations, conn, err := openMigrations(databaseURL)
	if err != nil {
		return fmt.Errorf("check the schema: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	current, err := schemaVersion(ctx, conn)
	if err != nil {
		return fmt.Errorf("check the schema: %w", err)
	}
	sources := migrations.ListSources()
	if wanted := sources[len(sources)-1].Version; current < wanted {
		return fmt.Errorf("the database schema is at version %d and this binary needs %d: %w", current, wanted, ErrSchemaBehind)
	}
	return nil
}

// schemaVersion reads the version without creating goose's table, as goose itself would: to look is
// not to change, and the role of an api process may not be allowed to.
func schemaVersion(ctx context.Context, conn *sql.DB) (int64, error) {
	var migrated bool
	err := conn.QueryRowContext(ctx, "SELECT to_regclass('"+goose.DefaultTablename+"') IS NOT NULL").Scan(&migrated)
	if err != nil || !migrated {
		return 0, err
	}
	var version int64
	err = conn.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM "+goose.DefaultTablename+" WHERE is_applied").
		Scan(&version)
	return version, err
}

func openMigrations(databaseURL string) (*goose.Provider, *sql.DB, error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, nil, fmt.Errorf("read the database URL: %w", err)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	files, err := fs.Sub(db.Migrations, "migrations")
	if err != nil {
		return nil, nil, err
	}
	const everySecond, fiveMinutes = 1, 300
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(everySecond, fiveMinutes))
	if err != nil {
		return nil, nil, err
	}
	conn := stdlib.OpenDB(*config)
	migrations, err := goose.NewProvider(goose.DialectPostgres, conn, files,
		goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true), goose.WithSlog(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return migrations, conn, nil
}
