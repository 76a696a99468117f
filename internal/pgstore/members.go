package pgstore

import (
	"context"
	"fmt"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// Memberships returns an account's tenants by slug, beginning after one.
func (s *Store) Memberships(ctx context.Context, account auth.AccountID, after string, limit int) ([]auth.Membership,
	error,
) {
	rows, err := ask(ctx, s, everyTenant, func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.MembershipsAfterRow,
		error,
	) {
		return q.MembershipsAfter(ctx, account, after, rowLimit(limit))
	})
	if err != nil {
		return nil, fmt.Errorf("read the memberships of account %d: %w", account, err)
	}
	return each(rows, func(row dbsqlc.MembershipsAfterRow) auth.Membership {
		return auth.Membership{Tenant: tenantFromRow(row.Tenant), Role: row.Role}
	}), nil
}

// RoleIn returns the role that an account has in a tenant.
func (s *Store) RoleIn(ctx context.Context, tenant rules.TenantID, account auth.AccountID) (auth.Role, error) {
	role, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) (auth.Role, error) {
		return q.RoleIn(ctx, tenant, account)
	})
	if err != nil {
		return "", fmt.Errorf("read the role of account %d: %w", account, err)
	}
	return role, nil
}

// Members returns a tenant's members by e-mail address, from a position.
func (s *Store) Members(ctx context.Context, tenant rules.TenantID, after auth.AccountPlace, limit int) ([]auth.Member,
	error,
) {
	rows, err := ask(ctx, s, only(tenant),
		func(ctx context.Context, q *dbsqlc.Queries) ([]dbsqlc.MembersAfterRow, error) {
			return q.MembersAfter(ctx, dbsqlc.MembersAfterParams{
				TenantID: tenant, After: after.Email, AfterID: int64(after.ID), PageSize: rowLimit(limit),
			})
		})
	if err != nil {
		return nil, fmt.Errorf("read members: %w", err)
	}
	return each(rows, func(row dbsqlc.MembersAfterRow) auth.Member { return memberFromRow(dbsqlc.MemberRow(row)) }), nil
}

// Member returns one member of a tenant.
func (s *Store) Member(ctx context.Context, tenant rules.TenantID, account auth.AccountID) (auth.Member, error) {
	member, err := ask(ctx, s, only(tenant), func(ctx context.Context, q *dbsqlc.Queries) (auth.Member, error) {
		return readMember(ctx, q, tenant, account)
	})
	if err != nil {
		return auth.Member{}, fmt.Errorf("read member %d: %w", account, err)
	}
	return member, nil
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
	if err != nil {
		return auth.Member{}, fmt.Errorf("add member %d: %w", account, err)
	}
	return added, nil
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
	if err != nil {
		return auth.Member{}, fmt.Errorf("change the role of member %d: %w", account, err)
	}
	return changed, nil
}

// RemoveMember ends a membership; the account stays. cancels is whether the scheduled changes of the account that wait
// are canceled.
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
	if err != nil {
		return fmt.Errorf("remove member %d: %w", account, err)
	}
	return nil
}

// mayLose returns an error if a member may not lose the role. The tenant is locked, so when two owners remove each
// other the second one fails.
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
	if err != nil {
		return auth.Member{}, err
	}
	return memberFromRow(row), nil
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
