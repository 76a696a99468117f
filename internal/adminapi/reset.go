package adminapi

import (
	"context"
	"errors"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

var noMail = httpapi.Conflict.Problem("No mail server is configured, so no link can be sent; ask a platform admin.")

func (s *surface) AskPasswordReset(ctx context.Context,
	request openapi.AskPasswordResetRequestObject,
) (openapi.AskPasswordResetResponseObject, error) {
	q := requestOf(ctx)
	if !s.Gate.SendsMail() {
		return nil, noMail
	}
	if err := s.Gate.AskReset(ctx, request.Body.Email, s.browser(q).IP); err != nil {
		return nil, q.slowDown(err)
	}
	s.noteTyped(q, auth.AccessResetAsked, "", request.Body.Email)
	return openapi.AskPasswordReset204Response{}, nil
}

func (s *surface) FinishPasswordReset(ctx context.Context,
	request openapi.FinishPasswordResetRequestObject,
) (openapi.FinishPasswordResetResponseObject, error) {
	q := requestOf(ctx)
	account, err := s.Gate.Reset(ctx, q.requestID, request.Body.Token, request.Body.Password, s.browser(q))
	if errors.Is(err, rules.ErrNotFound) {
		return nil, usedLink
	}
	if err != nil {
		return nil, err
	}
	s.noteOf(q, auth.AccessPasswordReset, "", account)
	return openapi.FinishPasswordReset204Response{}, nil
}

var usedLink = httpapi.NotFound.Problem(
	"This link was used, is older than an hour, or was replaced by a later one; ask for another.")

func (s *surface) AskAddressProof(ctx context.Context,
	_ openapi.AskAddressProofRequestObject,
) (openapi.AskAddressProofResponseObject, error) {
	q := requestOf(ctx)
	account := q.account()
	switch {
	case !s.Gate.SendsMail():
		return nil, noMail
	case account.Proven():
		return openapi.AskAddressProof204Response{}, nil // there is nothing to prove
	}
	if err := s.Gate.AskProof(ctx, account); err != nil {
		return nil, q.slowDown(err)
	}
	return openapi.AskAddressProof204Response{}, nil
}

func (s *surface) FinishAddressProof(ctx context.Context,
	request openapi.FinishAddressProofRequestObject,
) (openapi.FinishAddressProofResponseObject, error) {
	q := requestOf(ctx)
	account, err := s.Gate.Prove(ctx, q.actor, *q.session, request.Body.Token)
	switch {
	case errors.Is(err, rules.ErrNotFound):
		return nil, usedLink
	case errors.Is(err, auth.ErrOtherAddress):
		return nil, httpapi.Conflict.Problem("The link is for another account; sign in to that one first.")
	case errors.Is(err, rules.ErrExists):
		return nil, httpapi.Conflict.Problem(
			"Another account with this address is verified; ask to be invited with that one.")
	case err != nil:
		return nil, err
	}
	return openapi.FinishAddressProof200JSONResponse{TheAccountJSONResponse: answerAccount(&account)}, nil
}
