package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

var _ auth.IdentityStore = (*Store)(nil)

// AccountOf returns the account that an identity signs in to, and its password's hash.
func (s *Store) AccountOf(ctx context.Context, issuer, subject string) (auth.Account, string, error) {
	row, err := s.queriesFor(classRead, everyTenant).AccountOfIdentity(ctx, issuer, subject)
	return accountFromRow(row.Account), row.Account.PasswordHash, wrap(err, "read the account of an identity")
}

// CreateWithIdentity makes an account and its identity.
func (s *Store) CreateWithIdentity(ctx context.Context, by rules.Actor, account auth.Account, passwordHash string,
	identity auth.LinkedIdentity,
) (created auth.Account, err error) {
	err = s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		row, err := createAccount(ctx, q, account, passwordHash)
		if err != nil {
			return err
		}
		created = accountFromRow(row)
		return createIdentity(ctx, q, created.ID, identity)
	})
	return created, wrap(err, "create an account for an identity")
}

func createIdentity(ctx context.Context, q *dbsqlc.Queries, account auth.AccountID,
	identity auth.LinkedIdentity,
) error {
	return q.CreateIdentity(ctx, dbsqlc.CreateIdentityParams{
		AccountID: account, Issuer: identity.Issuer, Subject: identity.Subject, Email: identity.Email,
		LastUsedAt: orNull(identity.LastUsedAt.Truncate(time.Minute)),
	})
}

// Link adds an identity to an account.
func (s *Store) Link(ctx context.Context, by rules.Actor, account auth.AccountID, identity auth.LinkedIdentity) error {
	err := s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		return createIdentity(ctx, q, account, identity)
	})
	return wrap(err, "link an identity with account %d", account)
}

// Unlink locks the account, so that of two who remove its last two identities the second fails.
func (s *Store) Unlink(ctx context.Context, by rules.Actor, account auth.AccountID, identity int64, needsOther bool,
	issuers []string,
) error {
	err := s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		if _, err := q.LockAccount(ctx, account); err != nil {
			return err
		}
		if err := foundOne(q.DeleteIdentity(ctx, account, identity)); err != nil || !needsOther {
			return err
		}
		has, err := q.HasIdentityOf(ctx, account, issuers)
		if err == nil && !has {
			err = auth.ErrLastWayIn
		}
		return err
	})
	return wrap(err, "unlink identity %d of account %d", identity, account)
}

// Identities returns the identities of an account, the oldest first.
func (s *Store) Identities(ctx context.Context, account auth.AccountID) ([]auth.LinkedIdentity, error) {
	rows, err := s.queriesFor(classRead, everyTenant).Identities(ctx, account)
	return each(rows, func(row dbsqlc.AccountIdentity) auth.LinkedIdentity {
		return auth.LinkedIdentity{
			ID: row.IdentityID, Issuer: row.Issuer, Subject: row.Subject, Email: row.Email,
			CreatedAt: row.CreatedAt.UTC(), LastUsedAt: orZero(row.LastUsedAt),
		}
	}), wrap(err, "read the identities of account %d", account)
}

// IdentityUsed notes a sign-in.
func (s *Store) IdentityUsed(ctx context.Context, identity auth.LinkedIdentity) error {
	err := s.queriesFor(classWrite, everyTenant).IdentityUsed(ctx, identity.Email, identity.Issuer, identity.Subject)
	return wrap(err, "note the use of an identity")
}

// UseFlow notes that a sign-in was used, and forgets some that have expired.
func (s *Store) UseFlow(ctx context.Context, flow auth.Digest, until time.Time) error {
	err := s.inTransaction(ctx, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := q.ForgetUsedSignIns(ctx); err != nil {
			return err
		}
		return q.UseSignIn(ctx, flow[:], until)
	})
	return wrap(err, "note a sign-in at a provider")
}

// GrantedRoles returns the roles of an account that groups may give.
func (s *Store) GrantedRoles(ctx context.Context, account auth.AccountID, issuer string,
	slugs []string,
) ([]auth.GrantedRole, error) {
	rows, err := s.queriesFor(classRead, everyTenant).GrantedRoles(ctx, account, slugs, issuer)
	return each(rows, func(row dbsqlc.GrantedRolesRow) auth.GrantedRole {
		return auth.GrantedRole{Tenant: row.TenantID, Slug: row.Slug, Role: auth.Role(row.Role), Issuer: row.GrantedBy}
	}), wrap(err, "read the roles of account %d", account)
}

// GrantRole makes the role of an account in a tenant what the groups of an issuer say.
func (s *Store) GrantRole(ctx context.Context, by rules.Actor, account auth.AccountID, granted auth.GrantedRole) error {
	tenant := granted.Tenant
	err := s.inTenantAs(ctx, by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		stored, err := readMember(ctx, q, tenant, account)
		switch {
		case errors.Is(err, pgx.ErrNoRows) && granted.Role == "":
			return nil
		case errors.Is(err, pgx.ErrNoRows):
			return q.CreateGrantedMember(ctx, dbsqlc.CreateGrantedMemberParams{
				TenantID: tenant, AccountID: account, Role: granted.Role, GrantedBy: granted.Issuer,
			})
		case err != nil || stored.GrantedBy != granted.Issuer || stored.Role == granted.Role:
			return err
		}
		if err := mayLose(ctx, q, tenant, account, rules.AnyVersion, granted.Role); err != nil {
			return err
		}
		if granted.Role == "" {
			err = q.RemoveMember(ctx, tenant, account)
		} else {
			err = q.ChangeGrantedRole(ctx, granted.Role, tenant, account)
		}
		if err != nil || granted.Role == auth.Owner {
			return err
		}
		return q.RevokeInvitationsBy(ctx, tenant, int64(account))
	})
	return wrap(err, "grant account %d a role", account)
}

// GrantAdmin makes an account a platform admin, or no longer one.
func (s *Store) GrantAdmin(ctx context.Context, by rules.Actor, account auth.AccountID, issuer string,
	isAdmin bool,
) error {
	err := s.inTransactionAs(ctx, by, func(ctx context.Context, q *dbsqlc.Queries) error {
		stored, err := q.LockAccount(ctx, account)
		if err != nil || stored.IsPlatformAdmin == isAdmin || !isAdmin && stored.AdminBy != issuer {
			return err
		}
		if isAdmin {
			return q.GrantAdmin(ctx, true, issuer, account)
		}
		if err := mayLoseAccess(ctx, q, stored, false); err != nil {
			return err
		}
		if err := q.GrantAdmin(ctx, false, "", account); err != nil {
			return err
		}
		return q.RevokeInvitationsOfAccount(ctx, account)
	})
	return wrap(err, "grant account %d the platform", account)
}
