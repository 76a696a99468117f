package adminapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

const maxMemberships = 100

func (s *surface) GetSession(ctx context.Context, _ openapi.GetSessionRequestObject) (openapi.GetSessionResponseObject,
	error,
) {
	body, err := s.showSession(ctx, requestOf(ctx).session)
	return openapi.GetSession200JSONResponse{TheSessionJSONResponse: openapi.TheSessionJSONResponse{
		Body: body, Headers: openapi.TheSessionResponseHeaders{ETag: etag(body.Account.Version)},
	}}, err
}

func (s *surface) SignIn(ctx context.Context, request openapi.SignInRequestObject) (openapi.SignInResponseObject,
	error,
) {
	q := requestOf(ctx)
	from := s.browser(q)
	from.Tenant = valueOf(request.Body.Tenant)
	entry, err := s.Gate.SignIn(ctx, request.Body.Email, request.Body.Password, from)
	s.noteSignIn(q, request.Body.Email, &entry, err)
	var pending auth.SecondFactorError
	switch {
	case errors.As(err, &pending):
		q.setCookie(s.cookie(plainPending), pending.Token, auth.PendingLife)
		return openapi.SignIn202JSONResponse{Body: openapi.PendingSignIn{ExpiresAt: pending.ExpiresAt.UTC()}}, nil
	case errors.Is(err, auth.ErrWrongPassword):
		return nil, elsewhere(from, httpapi.Unauthorized.Problem(
			"There is no account with this address and password, or it is disabled."))
	case errors.As(err, new(auth.TooSoonError)):
		return nil, elsewhere(from, asProblem(q.slowDown(err)))
	case err != nil:
		return nil, err
	}
	answer, err := s.welcome(ctx, entry)
	return openapi.SignIn200JSONResponse{SignedInJSONResponse: answer}, err
}

// elsewhere names tenants' own sign-in pages. Everybody gets the same answer, which reveals no accounts.
func elsewhere(from auth.Browser, refusal error) error {
	var problem *httpapi.Problem
	if from.Tenant != "" || !errors.As(refusal, &problem) {
		return refusal
	}
	return problem.Problem(problem.Detail +
		" People who joined by a link sign in at their tenant's address, such as /sign-in/acme.")
}

func (q *apiRequest) slowDown(err error) error {
	var tooSoon auth.TooSoonError
	if errors.As(err, &tooSoon) {
		setSeconds(q.w.Header(), "Retry-After", wholeSeconds(tooSoon.Wait))
	}
	return err
}

func (s *surface) welcome(ctx context.Context, entry auth.Entry) (openapi.SignedInJSONResponse, error) {
	q := requestOf(ctx)
	body, err := s.showSession(ctx, &entry.Session)
	if err != nil {
		return openapi.SignedInJSONResponse{}, err
	}
	s.remember(q, entry)
	return openapi.SignedInJSONResponse{
		Body: body, Headers: openapi.SignedInResponseHeaders{ETag: etag(body.Account.Version)},
	}, nil
}

func (s *surface) remember(q *apiRequest, entry auth.Entry) {
	q.setCookie(s.cookie(plainSession), entry.Token, 0)
	s.verified.add(digestOfCredential(entry.Token))
	q.setCookie(s.cookie(plainDevice), entry.Device, deviceLife)
}

func (s *surface) showSession(ctx context.Context, session *auth.Session) (openapi.Session, error) {
	memberships, err := s.People.Memberships(ctx, session.Account.ID, "", maxMemberships+1)
	if err != nil {
		return openapi.Session{}, err
	}
	hasMore := len(memberships) > maxMemberships
	memberships = memberships[:min(len(memberships), maxMemberships)]
	return openapi.Session{
		SessionId: openapi.ID(session.ID), Account: showAccount(&session.Account),
		Memberships: itemsOf(memberships, func(m *auth.Membership) openapi.Membership {
			return openapi.Membership{
				Tenant: openapi.TenantName{Slug: m.Tenant.Slug, Name: m.Tenant.Name},
				Role:   openapi.Role(m.Role), Suspended: m.Tenant.Suspended,
				Enforcement:          openapi.Enforcement(m.Tenant.Enforcement()),
				SecondFactorRequired: m.Tenant.Settings.RequireSecondFactor,
			}
		}),
		HasMoreMemberships: hasMore, CheckUrl: orNull(s.CheckURL),
		SecondFactorRequired: s.Gate.RequiresSecondFactor(&session.Account), TwoFactors: session.HasTwoFactors(),
		HasPassword: session.Account.HasPassword && s.Gate.TakesPasswords(), SignOutUrl: orNull(s.signOutPath(session)),
	}, nil
}

func (s *surface) SignOut(ctx context.Context, _ openapi.SignOutRequestObject) (openapi.SignOutResponseObject, error) {
	q := requestOf(ctx)
	if err := s.Gate.SignOut(ctx, *q.session); err != nil {
		return nil, err
	}
	s.note(q, auth.AccessSignedOut, "")
	q.forgetCookie(s.cookie(plainSession))
	return openapi.SignOut204Response{}, nil
}

func (s *surface) ListSessions(ctx context.Context,
	_ openapi.ListSessionsRequestObject,
) (openapi.ListSessionsResponseObject, error) {
	own := requestOf(ctx).session
	sessions, err := s.Gate.Sessions(ctx, own.Account.ID)
	return openapi.ListSessions200JSONResponse{Items: itemsOf(sessions, func(one *auth.Session) openapi.SessionItem {
		return openapi.SessionItem{
			SessionId: openapi.ID(one.ID), Current: one.ID == own.ID, CreatedAt: one.CreatedAt.UTC(),
			LastSeenAt: one.LastSeenAt.UTC(), UserAgent: one.UserAgent, Ip: orNullIf(one.IP.IsValid(), one.IP.String()),
		}
	})}, err
}

func (s *surface) SignOutEverywhere(ctx context.Context,
	_ openapi.SignOutEverywhereRequestObject,
) (openapi.SignOutEverywhereResponseObject, error) {
	q := requestOf(ctx)
	if _, err := s.People.EndSessions(ctx, q.account().ID); err != nil {
		return nil, err
	}
	s.note(q, auth.AccessSessionsEnded, "")
	q.forgetCookie(s.cookie(plainSession))
	return openapi.SignOutEverywhere204Response{}, nil
}

func (s *surface) EndSession(ctx context.Context,
	request openapi.EndSessionRequestObject,
) (openapi.EndSessionResponseObject, error) {
	if err := s.People.EndSession(ctx, requestOf(ctx).account().ID, int64(request.SessionId)); err != nil {
		return nil, err
	}
	s.note(requestOf(ctx), auth.AccessSessionsEnded, "")
	return openapi.EndSession204Response{}, nil
}

func (s *surface) UpdateOwnAccount(ctx context.Context,
	request openapi.UpdateOwnAccountRequestObject,
) (openapi.UpdateOwnAccountResponseObject, error) {
	answer, err := s.changeAccount(ctx, requestOf(ctx).account().ID, func(a *auth.Account) error {
		set(&a.Name, request.Body.Name)
		return nil
	})
	return openapi.UpdateOwnAccount200JSONResponse{TheAccountJSONResponse: answer}, err
}

func (s *surface) ChangePassword(ctx context.Context,
	request openapi.ChangePasswordRequestObject,
) (openapi.ChangePasswordResponseObject, error) {
	q := requestOf(ctx)
	entry, err := s.Gate.ChangePassword(ctx, *q.session, request.Body.CurrentPassword, request.Body.NewPassword,
		s.browser(q))
	switch {
	case errors.Is(err, auth.ErrWrongPassword):
		s.note(q, auth.AccessPasswordFailed, "")
		return nil, wrongBody("/current_password", "is not your password")
	case errors.Is(err, rules.ErrChanged):
		return nil, wrongBody("/current_password", "was changed a moment ago")
	case err != nil:
		return nil, q.slowDown(err)
	}
	s.note(q, auth.AccessPasswordChanged, "")
	s.remember(q, entry)
	return openapi.ChangePassword204Response{}, nil
}

func (s *surface) LookAtInvitation(ctx context.Context,
	request openapi.LookAtInvitationRequestObject,
) (openapi.LookAtInvitationResponseObject, error) {
	invitation, tenant, err := s.Gate.Invitation(ctx, request.Body.Token)
	if err != nil {
		return nil, invitationProblem(err)
	}
	return openapi.LookAtInvitation200JSONResponse{
		Tenant: openapi.TenantName{Slug: tenant.Slug, Name: tenant.Name},
		Email:  invitation.Email, Role: openapi.Role(invitation.Role), InvitedBy: invitation.InvitedBy,
		ExpiresAt: invitation.ExpiresAt.UTC(), Proves: invitation.ByMail,
	}, nil
}

func (s *surface) AcceptInvitation(ctx context.Context,
	request openapi.AcceptInvitationRequestObject,
) (openapi.AcceptInvitationResponseObject, error) {
	answer, err := s.accept(ctx, request.Body)
	if err != nil {
		return nil, invitationProblem(err)
	}
	return openapi.AcceptInvitation200JSONResponse{SignedInJSONResponse: answer}, nil
}

func (s *surface) accept(ctx context.Context, body *openapi.InvitationAcceptance) (openapi.SignedInJSONResponse,
	error,
) {
	q := requestOf(ctx)
	session, err := s.Gate.Authenticate(ctx, s.browser(q).Session)
	switch {
	case errors.Is(err, auth.ErrSignedOut):
		_, entry, err := s.Gate.AcceptAsNew(ctx, q.requestID, body.Token, valueOf(body.Name), valueOf(body.Password),
			s.browser(q))
		if err != nil {
			return openapi.SignedInJSONResponse{}, err
		}
		s.noteOf(q, auth.AccessInvited, "", entry.Session.Account)
		return s.welcome(ctx, entry)
	case err != nil:
		return openapi.SignedInJSONResponse{}, err
	}
	actor := session.Account.Actor()
	actor.RequestID = q.requestID
	if _, err := s.Gate.Accept(ctx, actor, session, body.Token); err != nil {
		return openapi.SignedInJSONResponse{}, err
	}
	s.noteOf(q, auth.AccessInvited, "", session.Account)
	shown, err := s.showSession(ctx, &session)
	return openapi.SignedInJSONResponse{
		Body: shown, Headers: openapi.SignedInResponseHeaders{ETag: etag(session.Account.Version)},
	}, err
}

func invitationProblem(err error) error {
	switch {
	case errors.Is(err, rules.ErrNotFound):
		return httpapi.NotFound.Problem("This invitation is no longer open; ask for a new one.")
	case errors.Is(err, auth.ErrSuspended):
		return httpapi.Suspended.Problem("The tenant is suspended; the invitation can be accepted once it is resumed.")
	case errors.Is(err, auth.ErrOtherAddress):
		return httpapi.Conflict.Problem(
			"The invitation is for another address; sign out first, or ask for one to your address.")
	case errors.Is(err, auth.ErrUnproven):
		return httpapi.Conflict.Problem(
			"You joined your tenant by a link, so this account can join no other until its address is verified; sign " +
				"out to join with another account.")
	case errors.Is(err, rules.ErrExists):
		return httpapi.Conflict.Problem("The invited address has an account already; sign in to it first.")
	}
	return err
}

func setSeconds(h http.Header, name string, seconds int64) { h.Set(name, formatInt(seconds)) }
