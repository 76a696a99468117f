package auth

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// invitationLife is how long an invitation can be accepted.
const invitationLife = 7 * 24 * time.Hour

// Invite makes an invitation to a tenant. With Options.Mail its link is sent to the address, and the token is "", so that
// the inviter cannot act for the invitee. Without mail it returns the token for the link, which is never shown again.
// The invitation that the address may have had is revoked. It is rules.FieldErrors, ErrTooMuchMail, or rules.ErrExists if
// a member has the address.
func (g *Gate) Invite(ctx context.Context, by rules.Actor, invitation Invitation) (_ Invitation, token string, err error) {
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
		token = "" // and its digest is replaced when the mail is sent
	}
	return created, token, nil
}

// Invitation returns the open invitation with a token and its tenant, or rules.ErrNotFound.
func (g *Gate) Invitation(ctx context.Context, token string) (Invitation, rules.Tenant, error) {
	if len(token) != tokenLength {
		return Invitation{}, rules.Tenant{}, rules.ErrNotFound
	}
	return g.store.InvitationOf(ctx, digestOf(token))
}

// Accept makes the account of a session a member, or raises its role. It is rules.ErrNotFound if the
// invitation is not open any more, and ErrOtherAddress unless the account has its address: the tenant's
// owner has invited a person, and somebody else may have got hold of the link. It is ErrSuspended while the
// tenant is.
func (g *Gate) Accept(ctx context.Context, by rules.Actor, session Session, token string) (Member, error) {
	return g.store.Accept(ctx, by, digestOf(token), session.Account.ID)
}

// AcceptAsNew makes an account of the invited address, signs it in, and makes it a member. It is
// rules.FieldErrors on name and password, rules.ErrNotFound if the invitation is not open any more, and
// rules.ErrExists if the address has an account, who should sign in and accept, and ErrSuspended while the
// tenant is suspended. A link that came by mail proves the address. Another one proves only that the inviter meant its
// holder, so the account is unproven, whoever has the address elsewhere.
func (g *Gate) AcceptAsNew(ctx context.Context, requestID, token, name, password string, from Browser) (Member, Entry, error) {
	invitation, tenant, err := g.Invitation(ctx, token)
	switch {
	case err != nil:
		return Member{}, Entry{}, err
	case g.options.NoPasswords:
		return Member{}, Entry{}, ErrPasswordsOff
	case tenant.Suspended:
		return Member{}, Entry{}, ErrSuspended // before hashing; the store looks again
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
