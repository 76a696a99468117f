package adminapi

import (
	"context"
	"errors"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func showAccount(a *auth.Account) openapi.Account {
	return openapi.Account{
		AccountId: openapi.ID(a.ID), Email: a.Email, Name: a.Name, PlatformAdmin: a.PlatformAdmin,
		Disabled: !a.DisabledAt.IsZero(), Proven: a.Proven(), SecondFactor: a.HasSecondFactor(),
		CreatedAt: a.CreatedAt.UTC(), Version: a.Version,
	}
}

func answerAccount(a *auth.Account) openapi.TheAccountJSONResponse {
	return openapi.TheAccountJSONResponse{
		Body: showAccount(a), Headers: openapi.TheAccountResponseHeaders{ETag: etag(a.Version)},
	}
}

func (s *surface) ListAccounts(ctx context.Context,
	request openapi.ListAccountsRequestObject,
) (openapi.ListAccountsResponseObject, error) {
	accounts, cursor, err := list(ctx, request.Params.Limit,
		func(after auth.AccountPlace, limit int) ([]auth.Account, error) {
			return s.People.Accounts(ctx, valueOf(request.Params.Q), after, limit)
		}, (*auth.Account).Place)
	return openapi.ListAccounts200JSONResponse{Items: itemsOf(accounts, showAccount), NextCursor: cursor}, err
}

func (s *surface) GetAccount(ctx context.Context,
	request openapi.GetAccountRequestObject,
) (openapi.GetAccountResponseObject, error) {
	account, err := s.People.Account(ctx, auth.AccountID(request.AccountId))
	return openapi.GetAccount200JSONResponse{TheAccountJSONResponse: answerAccount(&account)}, err
}

func (s *surface) UpdateAccount(ctx context.Context,
	request openapi.UpdateAccountRequestObject,
) (openapi.UpdateAccountResponseObject, error) {
	id := auth.AccountID(request.AccountId)
	if request.Body.Proven != nil {
		return s.proveAccount(ctx, request)
	}
	answer, err := s.changeAccount(ctx, id, func(a *auth.Account) error {
		q := requestOf(ctx)
		if valueOf(request.Body.PlatformAdmin) && !a.PlatformAdmin {
			if err := q.mustBePerson("make a platform admin"); err != nil {
				return err
			}
		}
		if request.Body.Disabled != nil && !*request.Body.Disabled && !a.DisabledAt.IsZero() {
			if err := q.mustBePerson("enable an account"); err != nil {
				return err
			}
		}
		set(&a.PlatformAdmin, request.Body.PlatformAdmin)
		if disable := request.Body.Disabled; disable != nil && *disable != !a.DisabledAt.IsZero() {
			a.DisabledAt = s.Now()
			if !*disable {
				a.DisabledAt = never
			}
		}
		if a.PlatformAdmin && !a.Proven() {
			return httpapi.Conflict.Problem("The account's address is not verified; verify that first.")
		}
		if q.session != nil && id == q.account().ID && (!a.PlatformAdmin || !a.DisabledAt.IsZero()) {
			return httpapi.Conflict.Problem("You cannot take your own access away; another platform admin can.")
		}
		return nil
	})
	return openapi.UpdateAccount200JSONResponse{TheAccountJSONResponse: answer}, err
}

func (s *surface) EndAccountSessions(ctx context.Context,
	request openapi.EndAccountSessionsRequestObject,
) (openapi.EndAccountSessionsResponseObject, error) {
	account, err := s.People.Account(ctx, auth.AccountID(request.AccountId))
	if err != nil {
		return nil, err
	}
	q := requestOf(ctx)
	if err := s.People.SignOutAccount(ctx, q.actor, account.ID); err != nil {
		return nil, err
	}
	by := "by a platform admin"
	if q.key != nil {
		by = "by a service key"
	}
	s.Access.Note(auth.AccessEvent{
		Kind: auth.AccessSessionsEnded, Account: account.ID, Who: account.Email, Detail: by, RequestID: q.requestID,
	})
	return openapi.EndAccountSessions204Response{}, nil
}

func (s *surface) proveAccount(ctx context.Context,
	request openapi.UpdateAccountRequestObject,
) (openapi.UpdateAccountResponseObject, error) {
	body, id := request.Body, auth.AccountID(request.AccountId)
	if err := requestOf(ctx).mustBePerson("vouch for an address"); err != nil {
		return nil, err
	}
	if !*body.Proven || body.PlatformAdmin != nil || body.Disabled != nil {
		return nil, wrongBody("/proven", "must be true, and alone: an address is verified once and for all")
	}
	account, err := s.People.ProveAddress(ctx, requestOf(ctx).actor, id, requestOf(ctx).ifMatch)
	if errors.Is(err, rules.ErrExists) {
		return nil, httpapi.Conflict.Problem("Another account with this address is verified; invite that one instead.")
	}
	return openapi.UpdateAccount200JSONResponse{TheAccountJSONResponse: answerAccount(&account)},
		lost(ctx, err, s.accountVersion(ctx, id))
}

func (s *surface) accountVersion(ctx context.Context, id auth.AccountID) func() (int64, error) {
	return func() (int64, error) {
		account, err := s.People.Account(ctx, id)
		return account.Version, err
	}
}

func (s *surface) changeAccount(
	ctx context.Context, id auth.AccountID, change func(*auth.Account) error,
) (answer openapi.TheAccountJSONResponse, err error) {
	account, err := s.People.Account(ctx, id)
	if err != nil {
		return answer, err
	}
	if !holds(requestOf(ctx).ifMatch, account.Version) {
		return answer, lost(ctx, rules.ErrChanged, s.accountVersion(ctx, id))
	}
	if err := change(&account); err != nil {
		return answer, err
	}
	if wrong := account.Validate(); len(wrong) > 0 {
		return answer, wrong
	}
	account, err = s.People.UpdateAccount(ctx, requestOf(ctx).actor, account)
	return answerAccount(&account), lost(ctx, err, s.accountVersion(ctx, id))
}
