package adminapi

import (
	"context"
	"errors"

	"github.com/oapi-codegen/nullable"

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
	place, err := afterAccount(ctx)
	if err != nil {
		return nil, err
	}
	limit := limitOf(request.Params.Limit)
	accounts, err := s.People.Accounts(ctx, valueOf(request.Params.Q), place, limit+1)
	if err != nil {
		return nil, err
	}
	cursor := next(ctx)
	if len(accounts) > limit {
		accounts = accounts[:limit]
		cursor = nextAccount(ctx, &accounts[limit-1])
	}
	return openapi.ListAccounts200JSONResponse{Items: itemsOf(accounts, showAccount), NextCursor: cursor}, nil
}

func afterAccount(ctx context.Context) (place auth.AccountPlace, err error) {
	parts, err := after(ctx, 2)
	if err != nil || parts[0] == "" {
		return place, err
	}
	id, err := parseInt(parts[1])
	if err != nil {
		return place, errCursor
	}
	return auth.AccountPlace{Email: parts[0], ID: auth.AccountID(id)}, nil
}

func nextAccount(ctx context.Context, last *auth.Account) nullable.Nullable[string] {
	return next(ctx, last.Email, formatInt(int64(last.ID)))
}

func (s *surface) GetAccount(ctx context.Context,
	request openapi.GetAccountRequestObject,
) (openapi.GetAccountResponseObject, error) {
	account, err := s.People.Account(ctx, auth.AccountID(request.AccountId))
	if err != nil {
		return nil, err
	}
	return openapi.GetAccount200JSONResponse{TheAccountJSONResponse: answerAccount(&account)}, nil
}

func (s *surface) UpdateAccount(ctx context.Context,
	request openapi.UpdateAccountRequestObject,
) (openapi.UpdateAccountResponseObject, error) {
	id := auth.AccountID(request.AccountId)
	if request.Body.Proven != nil {
		return s.proveAccount(ctx, request)
	}
	answer, err := s.changeAccount(ctx, id, request.Params.IfMatch, func(a *auth.Account) error {
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
	if err != nil {
		return nil, err
	}
	return openapi.UpdateAccount200JSONResponse{TheAccountJSONResponse: answer}, nil
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
		return nil, httpapi.BodyProblem([]httpapi.FieldError{{
			Pointer: "/proven",
			Detail:  "must be true, and alone: an address is verified once and for all",
		}})
	}
	at, err := expected(request.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	account, err := s.People.ProveAddress(ctx, requestOf(ctx).actor, id, at)
	if errors.Is(err, rules.ErrExists) {
		return nil, httpapi.Conflict.Problem("Another account with this address is verified; invite that one instead.")
	}
	if err != nil {
		return nil, lost(ctx, err, func() (int64, error) {
			account, err := s.People.Account(ctx, id)
			return account.Version, err
		})
	}
	return openapi.UpdateAccount200JSONResponse{TheAccountJSONResponse: answerAccount(&account)}, nil
}

func (s *surface) changeAccount(ctx context.Context, id auth.AccountID, ifMatch string,
	change func(*auth.Account) error,
) (openapi.TheAccountJSONResponse, error) {
	var answer openapi.TheAccountJSONResponse
	at, err := expected(ifMatch)
	if err != nil {
		return answer, err
	}
	read := func() (int64, error) {
		account, err := s.People.Account(ctx, id)
		return account.Version, err
	}
	account, err := s.People.Account(ctx, id)
	if err != nil {
		return answer, err
	}
	if !holds(at, account.Version) {
		return answer, lost(ctx, rules.ErrChanged, read)
	}
	if err := change(&account); err != nil {
		return answer, err
	}
	if wrong := account.Validate(); len(wrong) > 0 {
		return answer, wrong
	}
	if account, err = s.People.UpdateAccount(ctx, requestOf(ctx).actor, account); err != nil {
		return answer, lost(ctx, err, read)
	}
	return answerAccount(&account), nil
}
