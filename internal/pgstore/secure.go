package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Row-level security has two policies on each table with a column tenant_id. every_row lets all roles see all rows;
// one_tenant restricts the tenant role to the tenant in the setting sluice.tenant.
//
// The owner of the tables is exempt, because pg_dump refuses tables that it may see only in part, and because the
// functions that make partitions run as the owner.
//
// Secure is no migration, because roles are no part of a database: a dump restored on another server comes without its
// tenant role.

const (
	findTenantRole = `SELECT r.rolname FROM pg_policy AS p JOIN pg_roles AS r ON r.oid = ANY (p.polroles)
		WHERE p.polrelid = to_regclass('public.tenant') AND p.polname = 'one_tenant'`

	// With a shared role, a login of one database could read another database of the server.
	nameTenantRole = `SELECT coalesce((` + findTenantRole +
		`), (left(current_database(), 56) || '_tenant')::name::text)`

	// Partitions are reached through their parent alone, so they need no policies and get no grants.
	findTenantTables = `SELECT c.oid::regclass::text FROM pg_class AS c
		JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		ORDER BY 1`

	findPolicies = `SELECT c.relrowsecurity,
			EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid AND polname = 'every_row'),
			EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid AND polname = 'one_tenant')
		FROM pg_class AS c WHERE c.oid = $1::text::regclass`

	// The cast is on the setting, so that indexes that begin with tenant_id serve the condition. PostgreSQL leaves the
	// setting at '' after a transaction that set it.
	oneTenant = `CREATE POLICY one_tenant ON %s AS RESTRICTIVE TO %s
		USING (tenant_id = nullif(current_setting('sluice.tenant', true), '')::bigint)`

	// Concurrent grants fail on the same catalog rows.
	grantLock = "SELECT pg_advisory_xact_lock(hashtext('sluice grant'))"

	stateDuplicateObject       = "42710"
	stateInsufficientPrivilege = "42501"
)

// Secure creates the tenant role, and sets the policies of each tenant's tables, one table at a time so that writers
// wait briefly.
func Secure(ctx context.Context, databaseURL string) (err error) {
	conn, err := connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	var role string
	if err := conn.QueryRow(ctx, nameTenantRole).Scan(&role); err != nil {
		return err
	}
	if err := createTenantRole(ctx, conn, role); err != nil {
		return err
	}
	names, err := conn.Query(ctx, findTenantTables)
	if err != nil {
		return err
	}
	tables, err := pgx.CollectRows(names, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, table := range tables {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return secureTable(ctx, tx, table, role) })
		if err != nil {
			return fmt.Errorf("secure the rows of table %s: %w", table, err)
		}
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return grantToTenantRole(ctx, tx, role, tables) })
	if err != nil {
		return fmt.Errorf("grant to %s: %w", role, err)
	}
	// The role that migrates may run commands too. Without the right to grant this, CheckSchema reports the missing
	// grant.
	_ = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var self string
		if err := tx.QueryRow(ctx, "SELECT current_user").Scan(&self); err != nil {
			return err
		}
		return letBecomeTenant(ctx, tx, self, role)
	})
	return nil
}

func createTenantRole(ctx context.Context, conn *pgx.Conn, role string) error {
	const find = `SELECT rolcanlogin OR rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = $1`
	var unfit bool
	err := conn.QueryRow(ctx, find, role).Scan(&unfit)
	if errors.Is(err, pgx.ErrNoRows) {
		_, err = conn.Exec(ctx, "CREATE ROLE "+quoteName(role)+" NOLOGIN")
		var refusal *pgconn.PgError
		switch {
		case errors.As(err, &refusal) && refusal.Code == stateInsufficientPrivilege:
			return fmt.Errorf("row-level security needs a role, and this login may not create roles. Let one that "+
				"may run "+
				"CREATE ROLE %[1]s NOLOGIN; GRANT %[1]s TO %[2]s WITH ADMIN OPTION; then run `admin migrate` again: "+
				"%[3]w",
				quoteName(role), quoteName(conn.Config().User), err)
		case errors.As(err, &refusal) && (refusal.Code == stateDuplicateObject || refusal.Code == stateUniqueViolation):
			return nil // another migration was faster
		}
	}
	if err != nil {
		return fmt.Errorf("create role %s: %w", role, err)
	}
	if unfit {
		return fmt.Errorf("role %s is to be restricted by row-level security, but it may log in, is a superuser or "+
			"has BYPASSRLS; "+
			"rename it, and run `admin migrate` again", role)
	}
	return nil
}

// The lock timeout is short, because other statements queue behind a waiting lock.
func secureTable(ctx context.Context, tx pgx.Tx, table, role string) error {
	if _, err := tx.Exec(ctx, grantLock); err != nil {
		return fmt.Errorf("wait for another process that migrates: %w", err)
	}
	var enabled, everyRow, restricted bool
	if err := tx.QueryRow(ctx, findPolicies, table).Scan(&enabled, &everyRow, &restricted); err != nil {
		return err
	}
	statements := []string{"SET LOCAL lock_timeout = '2s'"}
	if !everyRow {
		statements = append(statements, fmt.Sprintf("CREATE POLICY every_row ON %s USING (true)", table))
	}
	if !restricted {
		statements = append(statements, fmt.Sprintf(oneTenant, table, quoteName(role)))
	}
	if !enabled {
		statements = append(statements, fmt.Sprintf("ALTER TABLE %s ENABLE ROW LEVEL SECURITY", table))
	}
	_, err := tx.Exec(ctx, strings.Join(statements, "; "))
	if IsLockTimeout(err) {
		return fmt.Errorf("the table was locked for too long; run `admin migrate` again: %w", err)
	}
	return err
}

// grantToTenantRole revokes all other rights. In the table account, which belongs to no tenant, the role may read names
// and addresses but no password hashes.
func grantToTenantRole(ctx context.Context, tx pgx.Tx, role string, tables []string) error {
	if _, err := tx.Exec(ctx, grantLock); err != nil {
		return fmt.Errorf("wait for another process that grants: %w", err)
	}
	to := quoteName(role)
	statements := []string{
		"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM " + to,
		"GRANT USAGE ON SCHEMA public TO " + to,
		"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO " + to,
		"GRANT SELECT, INSERT, UPDATE, DELETE ON " + strings.Join(tables, ", ") + " TO " + to,
		"REVOKE UPDATE, DELETE ON audit_event FROM " + to,
		"REVOKE INSERT, DELETE ON tenant FROM " + to,
		"REVOKE INSERT, UPDATE, DELETE ON tenant_capacity, tenant_use FROM " + to, // a tenant does not raise its own
		"REVOKE INSERT, UPDATE, DELETE ON access_event FROM " + to,
		"GRANT SELECT (account_id, email, name, is_platform_admin, disabled_at, created_at, version, unproven_in, " +
			"second_factor_at) ON account TO " + to,
		"GRANT UPDATE (updated_at) ON account TO " + to, // to lock a row FOR SHARE
		"GRANT INSERT ON platform_audit_event TO " + to, // by the trigger that logs a suspension
		"GRANT SELECT ON api_process, leader TO " + to,
		"GRANT EXECUTE ON FUNCTION erase_user_from_audit, packed_audit_of TO " + to,
	}
	_, err := tx.Exec(ctx, strings.Join(statements, "; "))
	return err
}

func letBecomeTenant(ctx context.Context, tx pgx.Tx, login, role string) error {
	var may, membershipsInherit bool
	err := tx.QueryRow(ctx, "SELECT pg_has_role($1::name, $2::name, "+mayBecome+"), "+inheritedByMembership, login,
		role).
		Scan(&may, &membershipsInherit)
	if err != nil || may {
		return err
	}
	statement := "GRANT " + quoteName(role) + " TO " + quoteName(login)
	if membershipsInherit {
		statement += " WITH INHERIT FALSE, SET TRUE"
	}
	return changeRole(ctx, tx, statement)
}

// A login that inherits the tenant role's restriction would see no row in the scope of every tenant. Since PostgreSQL
// 16 a membership says so, before that a role.
func keepFromInheriting(ctx context.Context, tx pgx.Tx, login, role string) error {
	var membershipsInherit, inherits bool
	var others int
	err := tx.QueryRow(ctx, "SELECT "+inheritedByMembership+`, rolinherit,
			(SELECT count(*) FROM pg_auth_members AS m WHERE m.member = r.oid AND m.roleid <> $2::text::regrole)
		FROM pg_roles AS r WHERE rolname = $1`, login, quoteName(role)).Scan(&membershipsInherit, &inherits, &others)
	switch {
	case err != nil || membershipsInherit || !inherits:
		return err
	case others > 0:
		return fmt.Errorf("role %[1]s inherits the rights of other roles, and would inherit the restrictions of "+
			"%[2]s with them; grant "+
			"%[1]s itself what it needs of those roles, and run ALTER ROLE %[1]s NOINHERIT", quoteName(login),
			quoteName(role))
	}
	return changeRole(ctx, tx, "ALTER ROLE "+quoteName(login)+" NOINHERIT")
}

func changeRole(ctx context.Context, tx pgx.Tx, statement string) error {
	_, err := tx.Exec(ctx, statement)
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && refusal.Code == stateInsufficientPrivilege {
		return fmt.Errorf("this login may not change roles. Let one that may run %s; then run `admin migrate` again: "+
			"%w", statement, err)
	}
	return err
}

const (
	inheritedByMembership = "current_setting('server_version_num')::integer >= 160000"
	// Before PostgreSQL 16 every member had the right to SET ROLE.
	mayBecome = "CASE WHEN " + inheritedByMembership + " THEN 'SET' ELSE 'MEMBER' END"
)

func quoteName(name string) string { return pgx.Identifier{name}.Sanitize() }
