package adminapi

import (
	"context"
	"errors"

	"github.com/oapi-codegen/nullable"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/oidc"
)

func (s *surface) showIdentity(i *auth.LinkedIdentity) openapi.Identity {
	shown := openapi.Identity{
		IdentityId: openapi.ID(i.ID), Provider: nullable.NewNullNullable[openapi.ProviderName](), Issuer: i.Issuer,
		Email:     i.Email,
		CreatedAt: i.CreatedAt.UTC(), LastUsedAt: timeOrNull(i.LastUsedAt),
	}
	if provider := s.Providers.OfIssuer(i.Issuer); provider != nil {
		shown.Provider.Set(showProvider(&provider))
	}
	return shown
}

func (s *surface) ListIdentities(ctx context.Context,
	_ openapi.ListIdentitiesRequestObject,
) (openapi.ListIdentitiesResponseObject, error) {
	identities, err := s.Gate.Identities(ctx, requestOf(ctx).account().ID)
	return openapi.ListIdentities200JSONResponse{Items: itemsOf(identities, s.showIdentity)}, err
}

func (s *surface) LinkIdentity(ctx context.Context,
	request openapi.LinkIdentityRequestObject,
) (openapi.LinkIdentityResponseObject, error) {
	address, err := s.startAt(ctx, request.Body.Provider, oidc.Purpose{Session: requestOf(ctx).session.ID})
	return openapi.LinkIdentity200JSONResponse{Body: openapi.Destination{Url: address}}, err
}

func (s *surface) UnlinkIdentity(ctx context.Context,
	request openapi.UnlinkIdentityRequestObject,
) (openapi.UnlinkIdentityResponseObject, error) {
	q := requestOf(ctx)
	err := s.Gate.Unlink(ctx, q.actor, *q.session, int64(request.IdentityId), s.Providers.List(), s.browser(q))
	if errors.Is(err, auth.ErrLastWayIn) {
		return nil, httpapi.Conflict.Problem(
			"You could not sign in without it; link another one or set a password first.")
	}
	if err != nil {
		return nil, err
	}
	s.note(q, auth.AccessUnlinked, "")
	return openapi.UnlinkIdentity204Response{}, nil
}

func (s *surface) ListIdentityProviders(ctx context.Context,
	_ openapi.ListIdentityProvidersRequestObject,
) (openapi.ListIdentityProvidersResponseObject, error) {
	requestOf(ctx).slot.Release() // providers may be slow, and this reads nothing else
	return openapi.ListIdentityProviders200JSONResponse{Items: itemsOf(s.Providers.Status(ctx), showProviderStatus)},
		nil
}

func showProviderStatus(p *oidc.Status) openapi.IdentityProvider {
	return openapi.IdentityProvider{
		Slug: p.Slug, Name: p.Name, Issuer: p.Issuer, RedirectUrl: p.RedirectURL,
		EmailDomains: append([]string{}, p.EmailDomains...), RequiredClaim: orNull(p.NeedsClaim),
		CreatesAccounts: p.CreatesAccounts, GivesRoles: len(p.Grants) > 0, SecondFactor: p.CountsAsTwoFactors,
		SecondFactorClaim: orNull(p.FactorClaim), SignOut: p.SignsOut,
		Problem: orNull(p.Problem), CheckedAt: timeOrNull(p.CheckedAt), Failures: itemsOf(p.Failures, showFailure),
	}
}

func showFailure(f *oidc.Failure) openapi.ProviderFailure {
	return openapi.ProviderFailure{At: f.At, Count: f.Count, Reason: string(f.Reason), Detail: f.Detail}
}
