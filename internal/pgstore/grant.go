package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Grant gives a role the rights that the programs need, and revokes all others: it can only append to the audit logs
// and the security log. The role must not own the tables, since owners may do everything. Run Grant again for tables of
// later migrations.
func Grant(ctx context.Context, databaseURL, role string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeouts[classBulk])
	defer cancel()
	conn, err := connect(ctx, databaseURL)
	if err != nil {
		return fmt.Errorf("grant to %s: %w", role, err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return grant(ctx, tx, role) })
	if err != nil {
		return fmt.Errorf("grant to %s: %w", role, err)
	}
	return nil
}

func grant(ctx context.Context, tx pgx.Tx, role string) error {
	if _, err := tx.Exec(ctx, grantLock); err != nil {
		return fmt.Errorf("wait for another process that grants: %w", err)
	}
	var mayAll bool
	err := tx.QueryRow(ctx, `SELECT rolsuper OR EXISTS (
			SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
				AND pg_has_role(pg_roles.oid, relowner, 'MEMBER'))
		FROM pg_roles WHERE rolname = $1`, role).Scan(&mayAll)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return errors.New("there is no such role; create it first")
	case err != nil:
		return err
	case mayAll:
		return errors.New("the role owns tables or is a superuser, so it could change the audit log; use another role")
	}
	name := pgx.Identifier{role}.Sanitize()
	for _, statement := range []string{
		"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM " + name,
		"GRANT USAGE ON SCHEMA public TO " + name,
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO " + name,
		"REVOKE UPDATE, DELETE ON audit_event, platform_audit_event, access_event FROM " + name,
		"REVOKE INSERT, UPDATE, DELETE ON " + VersionTable + " FROM " + name,
		"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO " + name,
		"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO " + name,
	} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	var tenantRole string
	if err := tx.QueryRow(ctx, findTenantRole).Scan(&tenantRole); err != nil {
		return fmt.Errorf("look for the role for tenants: %w", err)
	}
	if err := keepFromInheriting(ctx, tx, role, tenantRole); err != nil {
		return err
	}
	return letBecomeTenant(ctx, tx, role, tenantRole)
}
