package pgstore

import (
	"context"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// Memberships returns an account's tenants by slug, beginning after one.
func (s *Store) Memberships(ctx context.Context, account auth.AccountID, after string, limit int) ([]auth.Membership,
	error,
) {
	rows, err := s.queriesFor(classRead, everyTenant).MembershipsAfter(ctx, account, after, rowLimit(limit))
	return each(rows, func(row dbsqlc.MembershipsAfterRow) auth.Membership {
		return auth.Membership{Tenant: tenantFromRow(row.Tenant), Role: row.Role}
	}), wrap(err, "read the memberships of account %d", account)
}

// RoleIn returns the role that an account has in a tenant.
func (s *Store) RoleIn(ctx context.Context, tenant rules.TenantID, account auth.AccountID) (auth.Role, error) {
	role, err := s.queriesFor(classRead, only(tenant)).RoleIn(ctx, tenant, account)
	return role, wrap(err, "read the role of account %d", account)
}

// Members returns a tenant's members by e-mail address, from a position.
func (s *Store) Members(ctx context.Context, tenant rules.TenantID, after auth.AccountPlace, limit int) ([]auth.Member,
	error,
) {
	rows, err := s.queriesFor(classRead, only(tenant)).MembersAfter(ctx, dbsqlc.MembersAfterParams{
		TenantID: tenant, After: after.Email, AfterID: int64(after.ID), PageSize: rowLimit(limit),
	})
	return each(rows, func(row dbsqlc.MembersAfterRow) auth.Member { return memberFromRow(dbsqlc.MemberRow(row)) }),
		wrap(err, "read members")
}

// Member returns one member of a tenant.
func (s *Store) Member(ctx context.Context, tenant rules.TenantID, account auth.AccountID) (auth.Member, error) {
	member, err := readMember(ctx, s.queriesFor(classRead, only(tenant)), tenant, account)
	return member, wrap(err, "read member %d", account)
}

// AddMember makes an account a member.
func (s *Store) AddMember(ctx context.Context, by rules.Actor, tenant rules.TenantID, account auth.AccountID,
	role auth.Role,
) (added auth.Member, err error) {
	err = s.inTenantAs(ctx, by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		if _, err := q.AddressOf(ctx, account); err != nil {
			return err
		}
		if err := q.CreateMember(ctx, tenant, account, role); err != nil {
			return err
		}
		added, err = readMember(ctx, q, tenant, account)
		return err
	})
	return added, wrap(err, "add member %d", account)
}

// ChangeRole gives a member another role.
func (s *Store) ChangeRole(ctx context.Context, by rules.Actor, member auth.Member) (changed auth.Member, err error) {
	tenant, account := member.TenantID, member.Account.ID
	err = s.inTenantAs(ctx, by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := mayLose(ctx, q, tenant, account, rules.Expected(member.Version), member.Role); err != nil {
			return err
		}
		if err := q.ChangeRole(ctx, member.Role, tenant, account); err != nil {
			return err
		}
		if member.Role != auth.Owner {
			if err := q.RevokeInvitationsBy(ctx, tenant, int64(account)); err != nil {
				return err
			}
		}
		changed, err = readMember(ctx, q, tenant, account)
		return err
	})
	return changed, wrap(err, "change the role of member %d", account)
}

// RemoveMember ends a membership, and with cancels the account's waiting scheduled changes; the account stays.
func (s *Store) RemoveMember(
	ctx context.Context, by rules.Actor, tenant rules.TenantID, account auth.AccountID, expected rules.Expected,
	cancels bool,
) error {
	err := s.inTenantAs(ctx, by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := mayLose(ctx, q, tenant, account, expected, ""); err != nil {
			return err
		}
		if err := q.RemoveMember(ctx, tenant, account); err != nil {
			return err
		}
		if cancels {
			if err := q.CancelScheduledBy(ctx, tenant, scheduledKind, int64(account)); err != nil {
				return err
			}
		}
		return q.RevokeInvitationsBy(ctx, tenant, int64(account))
	})
	return wrap(err, "remove member %d", account)
}

// mayLose is asked while the tenant is locked, so when two owners remove each other the second one fails.
func mayLose(ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID, account auth.AccountID,
	expected rules.Expected, role auth.Role,
) error {
	stored, err := readMember(ctx, q, tenant, account)
	if err == nil {
		err = expect(expected, stored.Version)
	}
	switch {
	case err != nil:
		return err
	case stored.Role != auth.Owner || role == auth.Owner:
		return nil
	}
	others, err := q.HasOtherOwner(ctx, tenant, account)
	if err == nil && !others {
		err = auth.ErrLastOwner
	}
	return err
}

func readMember(ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID, account auth.AccountID) (auth.Member,
	error,
) {
	row, err := q.Member(ctx, tenant, account)
	return memberFromRow(row), err
}

func memberFromRow(row dbsqlc.MemberRow) auth.Member {
	return auth.Member{
		TenantID: row.Member.TenantID,
		Account: accountFromRow(dbsqlc.Account{
			AccountID: row.AccountID, Email: row.Email, Name: row.Name, IsPlatformAdmin: row.IsPlatformAdmin,
			CreatedAt: row.AccountCreatedAt, DisabledAt: row.DisabledAt, Version: row.AccountVersion,
			UnprovenIn:     row.UnprovenIn,
			SecondFactorAt: row.SecondFactorAt,
		}),
		Role:      row.Member.Role,
		GrantedBy: row.Member.GrantedBy,
		CreatedAt: row.Member.CreatedAt.UTC(),
		Version:   row.Member.Version,
	}
}
