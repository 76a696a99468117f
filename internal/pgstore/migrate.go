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

// ErrSchemaBehind means that the database must be migrated first.
var ErrSchemaBehind = errors.New("run `admin migrate`")

// Migrate brings a database's schema to the version of this binary, one transaction per migration. If several run at
// once, one migrates and the others wait for up to five minutes. A newer schema is left as it is. Migrate takes at most
// 15 minutes, and fails after 5 seconds if the database does not answer what its version is or who has the lock.
func Migrate(ctx context.Context, databaseURL string, log *slog.Logger) error {
	return migrate(ctx, databaseURL, log, patience{all: 15 * time.Minute, lock: 5 * time.Minute, answer: statementTimeout})
}

// patience bounds Migrate's waits: in all, for another process that migrates, and for one answer about the version or
// the lock.
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
	if _, err := schemaVersion(asking, conn); err != nil { // goose repeats this query without a deadline
		return fmt.Errorf("migrate: %w", explain(err))
	}
	results, err := migrations.Up(ctx)
	if isLockTimeout(err) {
		return fmt.Errorf("migrate: a table was locked for too long, and nothing of this migration happened; run `admin migrate` again: %w", err)
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	for _, result := range results {
		log.InfoContext(ctx, "database migrated", "migration", result.Source.Path, "duration", result.Duration)
	}
	if err := secure(ctx, databaseURL); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// isLockTimeout reports whether a statement gave up on a lock.
func isLockTimeout(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == stateLockTimeout
}

// CheckSchema returns an error, which says what to run, if a schema is older than this binary needs. A newer schema is
// fine: the release before runs on the new schema while a release is rolled out.
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
		return fmt.Errorf("check the schema: %w", explain(err))
	}
	sources := migrations.ListSources()
	if wanted := sources[len(sources)-1].Version; current < wanted {
		return fmt.Errorf("the database schema is at version %d and this binary needs %d: %w", current, wanted, ErrSchemaBehind)
	}
	if err := checkTenantRole(ctx, conn); err != nil {
		return fmt.Errorf("check the roles: %w", explain(err))
	}
	return nil
}

// checkTenantRole returns an error, which says what to run, unless this login can work for one tenant and for all.
func checkTenantRole(ctx context.Context, conn *sql.DB) error {
	var login, role string
	var may, inherits bool
	err := conn.QueryRowContext(ctx, `SELECT current_user, r.rolname, pg_has_role(r.rolname, `+mayBecome+`),
			pg_has_role(r.rolname, 'USAGE') AND row_security_active('public.tenant')
		FROM (`+findTenantRole+`) AS r`).Scan(&login, &role, &may, &inherits)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("the database has no role for tenants: %w", ErrSchemaBehind)
	case err != nil:
		return err
	case !may:
		return fmt.Errorf("role %[1]s may not become %[2]s: %[3]w with --grant-to %[1]s, or GRANT %[2]s TO %[1]s", login, role, ErrSchemaBehind)
	case inherits:
		return fmt.Errorf("role %[1]s inherits the restrictions of %[2]s: %[3]w with --grant-to %[1]s", login, role, ErrSchemaBehind)
	}
	return nil
}

// schemaVersion reads the version. Unlike goose it does not create goose's table, because a process's role may lack the
// right.
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
		return nil, nil, fmt.Errorf("read SLUICE_DATABASE_URL: %w", err)
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

// locker is goose's lock with bounded waits; goose takes and releases its own without a deadline.
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
		return fmt.Errorf("give the lock back: %w", err) // the session's end does so too
	}
	return nil
}

func (l locker) ask(ctx context.Context, conn *sql.Conn, query string) (yes bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.patience.answer)
	defer cancel()
	err = conn.QueryRowContext(ctx, query, lock.DefaultLockID).Scan(&yes)
	return yes, err
}
