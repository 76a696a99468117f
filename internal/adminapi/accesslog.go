package adminapi

import (
	"errors"
	"net/http"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// note must be called by every handler that lets somebody in, hands something out or changes how somebody gets in.
func (s *surface) note(q *apiRequest, kind auth.AccessKind, detail string) {
	var account auth.Account
	if q.session != nil {
		account = q.session.Account
	}
	s.noteOf(q, kind, detail, account)
}

func (s *surface) noteOf(q *apiRequest, kind auth.AccessKind, detail string, account auth.Account) {
	event := s.accessEvent(q, kind, detail)
	event.Account, event.Who = account.ID, account.Email
	switch {
	case q.key != nil:
		event.KeyID, event.Who = q.key.ID, q.actor.Name
	case q.refused != nil:
		event.KeyID = q.refused.ID
		event.TenantID, event.Tenant = s.tenantOf(q.refused)
	}
	s.Access.Note(event)
}

func (s *surface) tenantOf(key *auth.Key) (rules.TenantID, string) {
	if key.TenantID == 0 {
		return 0, ""
	}
	tenant := s.Snapshots.Snapshot().Tenant(key.TenantID)
	if tenant == nil {
		return 0, "" // removed meanwhile
	}
	return key.TenantID, tenant.Tenant.Slug
}

func (s *surface) noteTyped(q *apiRequest, kind auth.AccessKind, detail, email string) {
	event := s.accessEvent(q, kind, detail)
	event.Typed = email
	s.Access.Note(event)
}

func (s *surface) accessEvent(q *apiRequest, kind auth.AccessKind, detail string) auth.AccessEvent {
	return auth.AccessEvent{
		Kind: kind, TenantID: q.tenant.ID, Tenant: q.tenant.Slug, Detail: detail,
		IP: clientIP(q.r, s.TrustedProxies), UserAgent: q.r.UserAgent(), RequestID: q.requestID,
	}
}

// noteRefusal logs a refused key for its own tenant, wherever it was sent.
func (s *surface) noteRefusal(q *apiRequest, rt route, err error) {
	var problem *httpapi.Problem
	if !errors.As(asProblem(err), &problem) {
		return
	}
	switch operation := rt.method + " " + rt.path; {
	case q.isOutside:
		s.note(q, auth.AccessOutside, operation)
	case problem.Status == http.StatusForbidden:
		s.note(q, auth.AccessDenied, operation)
	case problem.Status == http.StatusUnauthorized && s.credential(q.r) != "":
		s.note(q, auth.AccessRefused, operation)
	}
}

func (s *surface) noteSignIn(q *apiRequest, email string, entry *auth.Entry, err error) {
	switch {
	case err == nil:
		s.noteOf(q, auth.AccessSignedIn, "password", entry.Session.Account)
	case errors.As(err, new(auth.SecondFactorError)): // FinishSignIn says how it ends
	case errors.Is(err, auth.ErrWrongPassword):
		s.noteTyped(q, auth.AccessSignInFailed, "password", email)
	case errors.As(err, new(auth.TooSoonError)):
		s.noteTyped(q, auth.AccessSignInTooSoon, "password", email)
	}
}

func (s *surface) noteFactor(q *apiRequest, entry *auth.Entry, err error) {
	switch {
	case err == nil:
		s.noteOf(q, auth.AccessSignedIn, "second factor", entry.Session.Account)
	case errors.Is(err, auth.ErrWrongCode):
		s.noteOf(q, auth.AccessFactorFailed, "sign-in", entry.Session.Account)
	case errors.As(err, new(auth.TooSoonError)):
		s.noteOf(q, auth.AccessSignInTooSoon, "second factor", entry.Session.Account)
	}
}
