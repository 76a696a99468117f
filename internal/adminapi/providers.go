package adminapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/sluicegate/sluice/internal/adminapi/internal/openapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/oidc"
	"github.com/sluicegate/sluice/internal/rules"
)

func showProvider(p **auth.IdentityProvider) openapi.ProviderName {
	return openapi.ProviderName{Slug: (*p).Slug, Name: (*p).Name}
}

func (s *surface) StartProviderSignIn(ctx context.Context,
	request openapi.StartProviderSignInRequestObject,
) (openapi.StartProviderSignInResponseObject, error) {
	next, err := localPath(request.Body.Next)
	if err != nil {
		return nil, err
	}
	address, err := s.startAt(ctx, request.Provider, oidc.Purpose{Next: next})
	return openapi.StartProviderSignIn200JSONResponse{Body: openapi.Destination{Url: address}}, err
}

func (s *surface) ConfirmAtProvider(ctx context.Context,
	request openapi.ConfirmAtProviderRequestObject,
) (openapi.ConfirmAtProviderResponseObject, error) {
	q := requestOf(ctx)
	next, err := localPath(request.Body.Next)
	if err != nil {
		return nil, err
	}
	provider, err := s.Providers.Get(request.Body.Provider)
	if err != nil {
		return nil, noProvider
	}
	codeShown, err := s.Gate.BeginConfirmAt(ctx, *q.session, provider, valueOf(request.Body.Code), s.browser(q))
	if errors.Is(err, auth.ErrWrongCode) {
		s.note(q, auth.AccessFactorFailed, "confirm")
	}
	if err != nil {
		return nil, q.codeProblem(err)
	}
	address, err := s.startAt(ctx, provider.Slug, oidc.Purpose{Next: next, Confirm: q.session.ID, CodeShown: codeShown})
	return openapi.ConfirmAtProvider200JSONResponse{Body: openapi.Destination{Url: address}}, err
}

func localPath(next *string) (string, error) {
	if path := valueOf(next); path == "" || isLocalPath(path) {
		return path, nil
	}
	return "", wrongBody("/next", "must be a path of this server, such as /profile")
}

var noProvider = httpapi.NotFound.Problem("There is no such provider; it may have been removed.")

func (s *surface) startAt(ctx context.Context, slug string, purpose oidc.Purpose) (string, error) {
	provider, err := s.Providers.Get(slug)
	if err != nil {
		return "", noProvider
	}
	var address, cookie string
	err = requestOf(ctx).slot.Away(ctx, func() (err error) { // a provider may be slow
		address, cookie, err = s.Providers.Start(ctx, slug, purpose)
		return err
	})
	if errors.As(err, new(auth.ProviderError)) {
		return "", httpapi.Unavailable.Problem(provider.Name + " does not answer; try again, or sign in another way.")
	}
	if err != nil {
		return "", err
	}
	requestOf(ctx).setCookie(s.cookie(plainFlow), cookie, oidc.FlowLife)
	return address, nil
}

// isLocalPath reports whether browsers take an address as a path of this server. Browsers take a backslash for a slash,
// and leave out tabs and line breaks.
func isLocalPath(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "" && u.Host == "" && u.User == nil && strings.HasPrefix(address, "/") &&
		!strings.HasPrefix(address, "//") &&
		!strings.ContainsFunc(address, func(r rune) bool { return r == '\\' || r <= ' ' || r == 0x7f })
}

// finishProviderSignIn handles GET /api/v1/auth/{provider}/callback. Every answer leads on to a page of the UI.
func (s *surface) finishProviderSignIn(w http.ResponseWriter, r *http.Request) {
	q, slug := requestOf(r.Context()), httpapi.PathParam(r, "provider")
	var cookie string
	if sent, err := r.Cookie(s.cookie(plainFlow)); err == nil {
		cookie = sent.Value
		q.forgetCookie(s.cookie(plainFlow)) // it works once
	}
	from := s.browser(q)
	finished, err := s.Providers.Finish(r.Context(), slug, cookie, r.URL.Query(), from.IP)
	next := finished.Next
	if err == nil {
		next, err = s.finish(r.Context(), finished, from)
	}
	if err != nil {
		next = s.whyNot(r.Context(), slug, finished.Purpose, err)
	}
	w.Header().Set("Location", next)
	w.WriteHeader(http.StatusSeeOther)
}

func (s *surface) finish(ctx context.Context, finished oidc.Finished, from auth.Browser) (next string, err error) {
	switch {
	case finished.Confirm != 0:
		next, err = s.confirmWith(ctx, finished, from)
	case finished.Session != 0:
		next, err = s.linkWith(ctx, finished, from)
	default:
		next, err = s.signInWith(ctx, finished, from)
	}
	var refused auth.ProviderError
	if errors.As(err, &refused) {
		s.Providers.Note(finished.Identity.Provider.Slug, refused)
	}
	return next, err
}

func (s *surface) signInWith(ctx context.Context, finished oidc.Finished, from auth.Browser) (next string, err error) {
	q := requestOf(ctx)
	entry, err := s.Gate.SignInWith(ctx, q.requestID, finished.Flow, finished.Identity, from)
	var pending auth.SecondFactorError
	if errors.As(err, &pending) {
		q.setCookie(s.cookie(plainPending), pending.Token, auth.PendingLife)
		return signInPage(url.Values{"step": {"code"}}, finished.Next), nil
	}
	if err != nil {
		return "", err
	}
	s.noteOf(q, auth.AccessSignedIn, "provider "+finished.Identity.Provider.Slug, entry.Session.Account)
	s.remember(q, entry)
	if finished.Next == "" {
		return "/", nil
	}
	return finished.Next, nil
}

func (s *surface) linkWith(ctx context.Context, finished oidc.Finished, from auth.Browser) (next string, err error) {
	q, slug := requestOf(ctx), finished.Identity.Provider.Slug
	session, err := s.sessionThatBegan(ctx, finished.Session, from)
	if err != nil {
		return "", err
	}
	by := session.Account.Actor()
	by.RequestID = q.requestID
	if err := s.Gate.Link(ctx, by, session, finished.Flow, finished.Identity, from); err != nil {
		return "", err
	}
	s.noteOf(q, auth.AccessLinked, "provider "+slug, session.Account)
	return "/profile?linked=" + url.QueryEscape(slug), nil
}

func (s *surface) confirmWith(ctx context.Context, finished oidc.Finished, from auth.Browser) (next string, err error) {
	q, slug := requestOf(ctx), finished.Identity.Provider.Slug
	session, err := s.sessionThatBegan(ctx, finished.Confirm, from)
	if err != nil {
		return "", err
	}
	if err := s.Gate.ConfirmAt(ctx, q.requestID, session, finished.CodeShown, finished.Flow,
		finished.Identity); err != nil {
		return "", err
	}
	s.noteOf(q, auth.AccessConfirmed, "provider "+slug, session.Account)
	return confirmPage(url.Values{"provider": {slug}}, finished.Next), nil
}

// sessionThatBegan returns the browser's session, which must be the one that began a flow.
func (s *surface) sessionThatBegan(ctx context.Context, id int64, from auth.Browser) (auth.Session, error) {
	session, err := s.Gate.Authenticate(ctx, from.Session)
	if errors.Is(err, auth.ErrSignedOut) || err == nil && session.ID != id {
		return auth.Session{}, auth.ProviderError{
			Reason: auth.ProviderSessionChanged,
			Detail: "another session is in this browser now",
		}
	}
	return session, err
}

const providerFailed auth.ProviderReason = "error"

// whyNot logs why somebody who came back from a provider may not come in, and returns the page that says so.
func (s *surface) whyNot(ctx context.Context, slug string, purpose oidc.Purpose, err error) string {
	q, refused := requestOf(ctx), auth.ProviderError{Reason: providerFailed}
	switch {
	case errors.As(err, &refused):
	case errors.Is(err, rules.ErrNotFound):
		refused.Reason = auth.ProviderFlowEnded // there is no such provider, or no longer
	default:
		s.Requests.Log.WarnContext(ctx, "a sign-in at a provider was not finished", "request_id", q.requestID,
			"provider", slug, "reason", err)
	}
	if _, err := s.Providers.Get(slug); err != nil {
		slug = "unknown" // and not what somebody wrote into the path
	}
	s.note(q, auth.AccessSignInFailed, "provider "+slug+": "+string(refused.Reason))
	query := url.Values{"failed": {string(refused.Reason)}, "provider": {slug}}
	switch {
	case purpose.Confirm != 0:
		return confirmPage(query, purpose.Next)
	case purpose.Session != 0:
		return "/profile?" + query.Encode()
	}
	return signInPage(query, purpose.Next)
}

func confirmPage(query url.Values, next string) string {
	if next != "" {
		query.Set("next", next)
	}
	return "/confirmed?" + query.Encode()
}

// signInPage returns the address of the sign-in page that leads on to a path. The path's fragment, which has the token
// of an invitation, stays one.
func signInPage(query url.Values, next string) string {
	path, fragment, hasFragment := strings.Cut(next, "#")
	if path != "" {
		query.Set("next", path)
	}
	page := "/sign-in?" + query.Encode()
	if hasFragment {
		page += "#" + fragment
	}
	return page
}

func (s *surface) signOutPath(session *auth.Session) string {
	provider, err := s.Providers.Get(session.Provider)
	if err != nil || !provider.SignsOut {
		return ""
	}
	return location("auth/%s/sign-out", provider.Slug)
}

func (s *surface) signOutAtProvider(w http.ResponseWriter, r *http.Request) {
	next, err := s.Providers.SignOutURL(r.Context(), httpapi.PathParam(r, "provider"))
	if err != nil || next == "" {
		next = "/sign-in" // what could not be reached is shown to platform admins
	}
	w.Header().Set("Location", next)
	w.WriteHeader(http.StatusSeeOther)
}

func (s *surface) SignInByLink(ctx context.Context,
	request openapi.SignInByLinkRequestObject,
) (openapi.SignInByLinkResponseObject, error) {
	q := requestOf(ctx)
	entry, err := s.Gate.SignInByLink(ctx, request.Body.Token, s.browser(q))
	if errors.Is(err, rules.ErrNotFound) {
		s.note(q, auth.AccessSignInFailed, "link")
		return nil, httpapi.NotFound.Problem(
			"This link was used, or is older than 15 minutes; run admin sign-in-link again.")
	}
	var pending auth.SecondFactorError
	if errors.As(err, &pending) {
		q.setCookie(s.cookie(plainPending), pending.Token, auth.PendingLife)
		return openapi.SignInByLink202JSONResponse{Body: openapi.PendingSignIn{ExpiresAt: pending.ExpiresAt.UTC()}}, nil
	}
	if err != nil {
		return nil, err
	}
	s.noteOf(q, auth.AccessSignedIn, "link", entry.Session.Account)
	answer, err := s.welcome(ctx, entry)
	return openapi.SignInByLink200JSONResponse{SignedInJSONResponse: answer}, err
}
