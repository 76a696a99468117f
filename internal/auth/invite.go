package auth

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

const invitationLife = 7 * 24 * time.Hour

// Invite invites an address, and returns no token with Options.Mail, so that the inviter cannot act for the invitee.
// Returns rules.FieldErrors, ErrTooMuchMail, or rules.ErrExists if a member has the address.
func (g *Gate) Invite(ctx context.Context, by rules.Actor, invitation Invitation) (_ Invitation, token string,
	err error,
) {
	if wrong := invitation.Validate(); len(wrong) > 0 {
		return Invitation{}, "", wrong
	}
	token, digest := newToken()
	invitation.InvitedBy, invitation.ByMail = by.Name, g.options.Mail
	invitation.ExpiresAt = g.options.Now().Add(invitationLife)
	created, err := g.store.Invite(ctx, by, invitation, digest)
	if err != nil {
		return Invitation{}, "", err
	}
	if invitation.ByMail {
		token = "" // sending the mail replaces the digest
	}
	return created, token, nil
}

// Invitation returns the open invitation of a token and its tenant, or rules.ErrNotFound.
func (g *Gate) Invitation(ctx context.Context, token string) (Invitation, rules.Tenant, error) {
	if len(token) != tokenLength {
		return Invitation{}, rules.Tenant{}, rules.ErrNotFound
	}
	return g.store.InvitationOf(ctx, digestOf(token))
}

// Accept makes the session's account a member, or raises its role. Returns rules.ErrNotFound if the invitation is not
// open, ErrSuspended, or ErrOtherAddress unless the account has the invited address.
func (g *Gate) Accept(ctx context.Context, by rules.Actor, session Session, token string) (Member, error) {
	return g.store.Accept(ctx, by, digestOf(token), session.Account.ID)
}

// AcceptAsNew creates an account with the invited address, which only a mailed link proves, and signs it in. Returns
// rules.FieldErrors on name and password, rules.ErrNotFound if the invitation is not open, rules.ErrExists if the
// address has an account, and ErrSuspended.
func (g *Gate) AcceptAsNew(ctx context.Context, requestID, token, name, password string, from Browser) (Member, Entry,
	error,
) {
	invitation, tenant, err := g.Invitation(ctx, token)
	switch {
	case err != nil:
		return Member{}, Entry{}, err
	case g.options.NoPasswords:
		return Member{}, Entry{}, ErrPasswordsOff
	case tenant.Suspended:
		return Member{}, Entry{}, ErrSuspended // before hashing; the store checks again
	}
	account := Account{Email: invitation.Email, Name: name}
	wrong := append(account.Validate(), wrongPassword("password", password, account.Email)...)
	if len(wrong) > 0 {
		return Member{}, Entry{}, wrong
	}
	hash, err := g.hasher.hash(ctx, password)
	if err != nil {
		return Member{}, Entry{}, err
	}
	member, err := g.store.AcceptAsNew(ctx, rules.Actor{RequestID: requestID}, digestOf(token), account, hash)
	if err != nil {
		return Member{}, Entry{}, err
	}
	entry, err := g.enter(ctx, member.Account, hash, from)
	return member, entry, err
}
