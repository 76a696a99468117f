package auth

import (
	"context"
	"errors"
	"slices"

	"github.com/sluicegate/sluice/internal/rules"
)

// BeginConfirmAt begins step-up authentication at a provider, with a code for an account with a second factor. Returns
// rules.FieldErrors if no identity of the provider is linked, ErrNeedsCode, ErrWrongCode or TooSoonError.
func (g *Gate) BeginConfirmAt(ctx context.Context, session Session, provider *IdentityProvider, code string,
	from Browser,
) (codeShown bool, err error) {
	account := session.Account
	linked, err := g.store.Identities(ctx, account.ID)
	if err != nil {
		return false, err
	}
	if !slices.ContainsFunc(linked, func(i LinkedIdentity) bool { return i.Issuer == provider.Issuer }) {
		return false, rules.FieldErrors{{Field: "provider", Message: "is not linked with your account"}}
	}
	switch {
	case !account.HasSecondFactor():
		return false, nil
	case code == "":
		return false, ErrNeedsCode
	}
	hash, err := g.store.PasswordHash(ctx, account.ID)
	if err != nil {
		return false, err
	}
	if err := g.useCode(ctx, &account, hash, code, from); err != nil {
		return false, err
	}
	return true, nil
}

// ConfirmAt completes step-up authentication at a provider. Mistakes that the user can fix are returned as
// ProviderError.
func (g *Gate) ConfirmAt(ctx context.Context, requestID string, session Session, codeShown bool, flow Digest,
	identity Identity,
) error {
	if err := identity.judge(); err != nil {
		return err
	}
	if err := g.useFlow(ctx, flow); err != nil {
		return err
	}
	if session.Account.HasSecondFactor() && !codeShown {
		return ProviderError{ProviderFlowEnded, "the account has got a second factor since, whose code was not shown"}
	}
	account, _, err := g.store.AccountOf(ctx, identity.Provider.Issuer, identity.Subject)
	if err != nil && !errors.Is(err, rules.ErrNotFound) {
		return err
	}
	if err != nil || account.ID != session.Account.ID {
		return ProviderError{ProviderOtherAccount, identity.describe() + " was to confirm a session of " +
			session.Account.Email}
	}
	if _, err := g.syncAccount(ctx, identity.actor(requestID), account, &identity); err != nil {
		return err
	}
	return g.store.ConfirmSession(ctx, session.ID)
}
