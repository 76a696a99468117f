package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/sluicegate/sluice/db"
)

// ErrSchemaBehind is what CheckSchema answers for a database that must be migrated first.
var ErrSchemaBehind = errors.New("run `admin migrate`")

// Migrate brings the schema of a database to the version of this binary, one transaction per
// migration. Of several that are started at once one migrates and the others wait for it, for up to
// five minutes, and then find nothing left to do. A database that is newer is left as it is. All of it
// takes at most 15 minutes, and a database that answers neither what its version is nor who has the
// lock is an error after 5 seconds.
func Migrate(ctx context.Context, databaseURL string, log *slog.Logger) error {
	return migrate(ctx, databaseURL, log, patience{all: 15 * time.Minute, lock: 5 * time.Minute, answer: statementTimeout})
}

// patience says how long Migrate waits: for all of it, for another process that migrates, and for one
// answer about the version or the lock.
type patience struct{ all, lock, answer time.Duration }

func migrate(ctx context.Context, databaseURL string, log *slog.Logger, patience patience) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience.all)
	defer cancel()
	migrations, conn, err := openMigrations(databaseURL, patience)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	asking, cancelAsking := context.WithTimeout(ctx, patience.answer)
	defer cancelAsking()
	if _, err := schemaVersion(asking, conn); err != nil { // goose asks the same, without a deadline
		return fmt.Errorf("migrate: %w", err)
	}
	results, err := migrations.Up(ctx)
	if isLockTimeout(err) {
		return fmt.Errorf("migrate: a table was in use for longer than the migration waits, and nothing of it happened; run `admin migrate` again: %w", err)
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	for _, result := range results {
		log.InfoContext(ctx, "database migrated", "migration", result.Source.Path, "duration", result.Duration)
	}
	return nil
}

// isLockTimeout says that a statement gave up on a lock, as migrations do soon.
func isLockTimeout(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == stateLockTimeout
}

// CheckSchema says whether this binary can work with the schema of a database. A schema that is
// behind cannot; the error says what to run. A schema that is ahead can: migrations only add, and
// while a release is rolled out the old binaries run on the new schema.
func CheckSchema(ctx context.Context, databaseURL string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	migrations, conn, err := openMigrations(databaseURL, patience{answer: statementTimeout})
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

func openMigrations(databaseURL string, patience patience) (*goose.Provider, *sql.DB, error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, nil, fmt.Errorf("read the database URL: %w", err)
	}
	setDefaults(config, databaseURL)
	files, err := fs.Sub(db.Migrations, "migrations")
	if err != nil {
		return nil, nil, err
	}
	conn := stdlib.OpenDB(*config)
	migrations, err := goose.NewProvider(goose.DialectPostgres, conn, files,
		goose.WithSessionLocker(locker{patience}), goose.WithDisableGlobalRegistry(true), goose.WithSlog(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return migrations, conn, nil
}

// locker is goose's own lock, but for its patience: goose asks for the lock without a deadline, and
// gives it back without one even when the caller's has passed.
type locker struct{ patience patience }

func (l locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, l.patience.lock)
	defer cancel()
	for {
		locked, err := l.ask(ctx, conn, "SELECT pg_try_advisory_lock($1)")
		if err != nil {
			return fmt.Errorf("take the lock: %w", err)
		}
		if locked {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for another process that migrates: %w", ctx.Err())
		case <-time.After(min(time.Second, l.patience.lock)):
		}
	}
}

func (l locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	if _, err := l.ask(ctx, conn, "SELECT pg_advisory_unlock($1)"); err != nil {
		return fmt.Errorf("give the lock back: %w", err) // the end of the session does so, too
	}
	return nil
}

func (l locker) ask(ctx context.Context, conn *sql.Conn, query string) (yes bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience.answer)
	defer cancel()
	err = conn.QueryRowContext(ctx, query, lock.DefaultLockID).Scan(&yes)
	return yes, err
}
