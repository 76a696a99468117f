// Package migrate brings a database's schema to the version of this binary.
//
// Only programs that migrate link goose, so the package stands apart from pgstore.
package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/sluicegate/sluice/db"
	"github.com/sluicegate/sluice/internal/pgstore"
)

const answerTimeout = 5 * time.Second

// Up migrates within 15 minutes, one transaction per migration, and leaves a newer schema as it is. Concurrent callers
// wait for up to five minutes.
func Up(ctx context.Context, databaseURL string, log *slog.Logger) error {
	return up(ctx, databaseURL, log, timeouts{all: 15 * time.Minute, lock: 5 * time.Minute, answer: answerTimeout})
}

type timeouts struct{ all, lock, answer time.Duration }

func up(ctx context.Context, databaseURL string, log *slog.Logger, limits timeouts) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limits.all)
	defer cancel()
	asking, cancelAsking := context.WithTimeout(ctx, limits.answer)
	defer cancelAsking()
	if _, err := pgstore.SchemaVersion(asking, databaseURL); err != nil { // goose asks for it without a deadline
		return fmt.Errorf("migrate: %w", err)
	}
	migrations, conn, err := open(databaseURL, limits)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	results, err := migrations.Up(ctx)
	if pgstore.IsLockTimeout(err) {
		return fmt.Errorf("migrate: a table was locked for too long, and nothing of this migration happened; run "+
			"`admin migrate` again: %w", err)
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	for _, result := range results {
		log.InfoContext(ctx, "database migrated", "migration", result.Source.Path, "duration", result.Duration)
	}
	if err := pgstore.Secure(ctx, databaseURL); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

func open(databaseURL string, limits timeouts) (*goose.Provider, *sql.DB, error) {
	config, err := pgstore.ConnConfig(databaseURL)
	if err != nil {
		return nil, nil, err
	}
	files, err := fs.Sub(db.Migrations, "migrations")
	if err != nil {
		return nil, nil, err
	}
	conn := stdlib.OpenDB(*config)
	migrations, err := goose.NewProvider(goose.DialectPostgres, conn, files, goose.WithTableName(pgstore.VersionTable),
		goose.WithSessionLocker(locker{limits}), goose.WithDisableGlobalRegistry(true),
		goose.WithSlog(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return migrations, conn, nil
}

// locker is goose's lock with bounded waits.
type locker struct{ limits timeouts }

func (l locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, l.limits.lock)
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
		case <-time.After(min(time.Second, l.limits.lock)):
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
	ctx, cancel := context.WithTimeout(ctx, l.limits.answer)
	defer cancel()
	err = conn.QueryRowContext(ctx, query, lock.DefaultLockID).Scan(&yes)
	return yes, err
}
