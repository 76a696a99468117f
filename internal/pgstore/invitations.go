package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
)

// Invite replaces the open invitation of the same address.
func (s *Store) Invite(ctx context.Context, by rules.Actor, invitation auth.Invitation,
	token auth.Digest,
) (created auth.Invitation, err error) {
	tenant := invitation.TenantID
	err = s.inTenantAs(ctx, by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		inviter, err := accountOf(by)
		if err != nil {
			return err
		}
		if inviter != nil {
			if may, err := q.MayInvite(ctx, tenant, *inviter); err != nil {
				return err
			} else if !may {
				return fmt.Errorf("account %d may no longer invite: %w", *inviter, rules.ErrNotFound)
			}
		}
		isMember, err := q.HasMemberWithEmail(ctx, tenant, invitation.Email)
		if err != nil {
			return err
		}
		if isMember {
			return fmt.Errorf("a member with this e-mail address %w", rules.ErrExists)
		}
		members, err := capacityOfThing(ctx, q, tenant, rules.ThingMembers)
		if err == nil {
			err = members.Room(1) // for the new member
		}
		if err != nil {
			return err
		}
		if err := q.RevokeInvitationsOf(ctx, tenant, invitation.Email); err != nil {
			return err
		}
		row, err := q.CreateInvitation(ctx, dbsqlc.CreateInvitationParams{
			TenantID: tenant, Email: invitation.Email, Role: invitation.Role, TokenDigest: token[:],
			InvitedBy: invitation.InvitedBy, InvitedByAccount: (*int64)(inviter), ExpiresAt: invitation.ExpiresAt,
			ByMail: invitation.ByMail,
		})
		if err != nil {
			return err
		}
		created = invitationFromRow(row)
		if !invitation.ByMail {
			return nil
		}
		mail, err := queueMail(ctx, q, auth.Mail{
			Tenant: tenant, Kind: auth.MailInvitation, To: created.Email, Invitation: created.ID,
			GiveUpAt: created.ExpiresAt,
		}, auth.TenantMail)
		created.Mail = &mail
		return err
	})
	return created, wrap(err, "invite to tenant %d", tenant)
}

func accountOf(by rules.Actor) (*auth.AccountID, error) {
	if by.Kind != rules.ActorAccount {
		return nil, nil //nolint:nilnil // nil means none: a command has no account
	}
	id, err := strconv.ParseInt(by.ID, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read the actor's account: %w", err)
	}
	return (*auth.AccountID)(&id), nil
}

// Invitations returns a tenant's open invitations, the latest first, before an id.
func (s *Store) Invitations(ctx context.Context, tenant rules.TenantID, before int64, limit int) ([]auth.Invitation,
	error,
) {
	q := s.queriesFor(classRead, only(tenant))
	rows, err := q.InvitationsBefore(ctx, tenant, before, rowLimit(limit))
	invitations := each(rows, invitationFromRow)
	if err == nil {
		err = addMail(ctx, q, tenant, invitations)
	}
	return invitations, wrap(err, "read invitations")
}

func addMail(ctx context.Context, q *dbsqlc.Queries, tenant rules.TenantID, invitations []auth.Invitation) error {
	ids := each(invitations, func(i auth.Invitation) int64 { return i.ID })
	rows, err := q.MailOfInvitations(ctx, tenant, ids)
	if err != nil {
		return err
	}
	for _, row := range rows {
		mail := mailFromRow(row)
		for i := range invitations {
			if invitations[i].ID == mail.Invitation {
				invitations[i].Mail = &mail
			}
		}
	}
	return nil
}

// RevokeInvitation ends an open invitation.
func (s *Store) RevokeInvitation(ctx context.Context, by rules.Actor, tenant rules.TenantID, id int64) error {
	err := s.inTenantAs(ctx, by, tenant, func(ctx context.Context, q *dbsqlc.Queries) error {
		return foundOne(q.RevokeInvitation(ctx, tenant, id))
	})
	return wrap(err, "revoke invitation %d", id)
}

// InvitationOf returns the open invitation with a token, and its tenant.
func (s *Store) InvitationOf(ctx context.Context, token auth.Digest) (auth.Invitation, rules.Tenant, error) {
	row, err := s.queriesFor(classRead, everyTenant).InvitationByToken(ctx, token[:])
	return invitationFromRow(row.Invitation), tenantFromRow(row.Tenant), wrap(err, "read an invitation by its token")
}

// Accept makes an account a member by an invitation to its address.
func (s *Store) Accept(ctx context.Context, by rules.Actor, token auth.Digest,
	account auth.AccountID,
) (member auth.Member, err error) {
	open, _, err := s.InvitationOf(ctx, token)
	if err != nil {
		return auth.Member{}, err
	}
	reach := only(open.TenantID)
	if open.ByMail {
		reach = everyTenant // the account is nobody's
	}
	err = s.inTenantReaching(ctx, reach, by, open.TenantID, func(ctx context.Context, q *dbsqlc.Queries) error {
		if err := mayAccept(ctx, q, open); err != nil {
			return err
		}
		address, err := q.AddressOf(ctx, account)
		if err != nil {
			return err
		}
		if !auth.SameAddress(address, open.Email) {
			return auth.ErrOtherAddress
		}
		if open.ByMail {
			if _, err := q.ProveAccount(ctx, account); err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
		}
		member, err = useInvitation(ctx, q, open, account)
		return err
	})
	return member, wrap(err, "accept invitation %d", open.ID)
}

// AcceptAsNew creates an account for the invited address and makes it a member.
func (s *Store) AcceptAsNew(ctx context.Context, by rules.Actor, token auth.Digest, account auth.Account,
	passwordHash string,
) (member auth.Member, err error) {
	open, _, err := s.InvitationOf(ctx, token)
	if err != nil {
		return auth.Member{}, err
	}
	account.Email, account.PlatformAdmin = open.Email, false
	if !open.ByMail {
		account.UnprovenIn = open.TenantID
	}
	actor := account.Actor()
	actor.RequestID = by.RequestID
	err = s.inTenantReaching(ctx, everyTenant, actor, open.TenantID,
		func(ctx context.Context, q *dbsqlc.Queries) error {
			if err := mayAccept(ctx, q, open); err != nil {
				return err
			}
			created, err := createInvited(ctx, q, account, passwordHash)
			if err != nil {
				return err
			}
			actor.ID = created.Actor().ID // assigned just now
			if err := q.SetActor(ctx, actorSetting(actor)); err != nil {
				return err
			}
			member, err = useInvitation(ctx, q, open, created.ID)
			return err
		})
	return member, wrap(err, "accept invitation %d", open.ID)
}

// createInvited gives an unproven account, which belongs to the tenant that invited it, to the person who accepts. The
// former holder's sessions, links, identities, second factor and recovery codes are deleted.
func createInvited(ctx context.Context, q *dbsqlc.Queries, account auth.Account, passwordHash string) (auth.Account,
	error,
) {
	if !account.Proven() {
		row, err := q.UnprovenAccount(ctx, int64(account.UnprovenIn), account.Email)
		switch {
		case err == nil && row.DisabledAt == nil:
			if row, err = q.TakeOverAccount(ctx, account.Name, passwordHash, row.AccountID); err != nil {
				return auth.Account{}, err
			}
			return accountFromRow(row), endAccess(ctx, q, row.AccountID)
		case err != nil && !errors.Is(err, pgx.ErrNoRows):
			return auth.Account{}, err
		}
	}
	row, err := createAccount(ctx, q, account, passwordHash)
	return accountFromRow(row), err
}

func mayAccept(ctx context.Context, q *dbsqlc.Queries, invitation auth.Invitation) error {
	if _, err := q.OpenInvitation(ctx, invitation.TenantID, invitation.ID); err != nil {
		return err
	}
	tenant, err := q.Tenant(ctx, invitation.TenantID)
	if err == nil && tenant.SuspendedAt != nil {
		err = auth.ErrSuspended
	}
	return err
}

func useInvitation(ctx context.Context, q *dbsqlc.Queries, invitation auth.Invitation,
	account auth.AccountID,
) (auth.Member, error) {
	tenant := invitation.TenantID
	if err := q.UseInvitation(ctx, int64(account), tenant, invitation.ID); err != nil {
		return auth.Member{}, err
	}
	role, err := q.RoleIn(ctx, tenant, account)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = q.CreateMember(ctx, tenant, account, invitation.Role)
	case err == nil && !role.May(invitation.Role):
		err = q.ChangeRole(ctx, invitation.Role, tenant, account)
	}
	if err != nil {
		return auth.Member{}, err
	}
	return readMember(ctx, q, tenant, account)
}

func invitationFromRow(row dbsqlc.Invitation) auth.Invitation {
	return auth.Invitation{
		ID:         row.InvitationID,
		TenantID:   row.TenantID,
		Email:      row.Email,
		Role:       row.Role,
		InvitedBy:  row.InvitedBy,
		CreatedAt:  row.CreatedAt.UTC(),
		ExpiresAt:  row.ExpiresAt.UTC(),
		AcceptedAt: orZero(row.AcceptedAt),
		RevokedAt:  orZero(row.RevokedAt),
		ByMail:     row.ByMail,
	}
}
