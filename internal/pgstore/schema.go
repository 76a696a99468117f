package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluicegate/sluice/db"
)

const (
	// VersionTable is where goose keeps which migrations were applied.
	VersionTable = "schema_version"
	// unreleasedTable was VersionTable before the first release, whose migrations became one.
	unreleasedTable = "goose_db_version"
)

var (
	// ErrSchemaBehind means that the database must be migrated first.
	ErrSchemaBehind = errors.New("run `admin migrate`")
	// ErrUnreleased means that a version from before the first release made the database, which cannot be migrated.
	ErrUnreleased = errors.New("the database was made by a version from before the first release, and there is no " +
		"migration from it; use an empty database")
)

// CheckSchema returns an error, which says what to run, if a schema is older than this binary needs. A newer schema is
// fine, as during a rollout.
func CheckSchema(ctx context.Context, databaseURL string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeouts[classRead])
	defer cancel()
	wanted, err := latestMigration()
	if err != nil {
		return fmt.Errorf("check the schema: %w", err)
	}
	conn, err := connect(ctx, databaseURL)
	if err != nil {
		return fmt.Errorf("check the schema: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	current, err := schemaVersion(ctx, conn)
	if err != nil {
		return fmt.Errorf("check the schema: %w", err)
	}
	if current < wanted {
		return fmt.Errorf("the database schema is at version %d and this binary needs %d: %w", current, wanted,
			ErrSchemaBehind)
	}
	if err := checkTenantRole(ctx, conn); err != nil {
		return fmt.Errorf("check the roles: %w", err)
	}
	return nil
}

func latestMigration() (latest int64, err error) {
	files, err := fs.Glob(db.Migrations, "migrations/*.sql")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		number, _, _ := strings.Cut(path.Base(file), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("the migration %s has no number: %w", file, err)
		}
		latest = max(latest, version)
	}
	return latest, nil
}

// checkTenantRole returns an error, which says what to run, unless this login can work for one tenant and for all.
func checkTenantRole(ctx context.Context, conn *pgx.Conn) error {
	var login, role string
	var may, inherits bool
	err := conn.QueryRow(ctx, `SELECT current_user, r.rolname, pg_has_role(r.rolname, `+mayBecome+`),
			pg_has_role(r.rolname, 'USAGE') AND row_security_active('public.tenant')
		FROM (`+findTenantRole+`) AS r`).Scan(&login, &role, &may, &inherits)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("the database has no role for tenants: %w", ErrSchemaBehind)
	case err != nil:
		return err
	case !may:
		return fmt.Errorf("role %[1]s may not become %[2]s: %[3]w with --grant-to %[1]s, or GRANT %[2]s TO %[1]s",
			login, role, ErrSchemaBehind)
	case inherits:
		return fmt.Errorf("role %[1]s inherits the restrictions of %[2]s: %[3]w with --grant-to %[1]s", login, role,
			ErrSchemaBehind)
	}
	return nil
}

// SchemaVersion returns the version of a database's schema; 0 is that of an empty database.
func SchemaVersion(ctx context.Context, databaseURL string) (version int64, err error) {
	conn, err := connect(ctx, databaseURL)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	return schemaVersion(ctx, conn)
}

// schemaVersion does not create the table, unlike goose, because a process's role may lack the right.
func schemaVersion(ctx context.Context, conn *pgx.Conn) (version int64, err error) {
	var migrated, unreleased bool
	err = conn.QueryRow(ctx, "SELECT to_regclass('"+VersionTable+"') IS NOT NULL, to_regclass('"+unreleasedTable+"') "+
		"IS NOT NULL").
		Scan(&migrated, &unreleased)
	switch {
	case err != nil:
		return 0, err
	case unreleased && !migrated:
		return 0, ErrUnreleased
	case !migrated:
		return 0, nil
	}
	err = conn.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+VersionTable+" WHERE is_applied").Scan(
		&version)
	return version, err
}

// IsLockTimeout reports whether a statement gave up on a lock.
func IsLockTimeout(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == stateLockTimeout
}

// ConnConfig returns how to connect to a database, with what its URL leaves open.
func ConnConfig(databaseURL string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("read SLUICE_DATABASE_URL: %w", err)
	}
	setDefaults(config)
	return config, nil
}

func connect(ctx context.Context, databaseURL string) (*pgx.Conn, error) {
	config, err := ConnConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	return conn, explain(err)
}
