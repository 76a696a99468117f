package adminapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/shares"
)

// access is the least that a caller must be to call an operation.
type access string

// Who may call; the words are those of x-least-role. A viewer's operations change nothing: that is what
// lets them go on in a suspended tenant.
const (
	anyone         access = "anyone"
	aCaller        access = "caller"  // an account or an API key
	anAccount      access = "account" // a person
	aViewer        access = "viewer"
	anEditor       access = "editor"
	anOwner        access = "owner"
	aPlatformAdmin access = "platform"
)

// apiRequest is a request with its caller, tenant and places. It travels in the context.
type apiRequest struct {
	w         http.ResponseWriter
	r         *http.Request
	requestID string
	session   *auth.Session // of the person who asks; nil for an API key, and for nobody
	key       *auth.Key     // that asks; nil for a person
	actor     rules.Actor
	tenant    rules.Tenant // that the path names
	role      auth.Role    // of the caller in it
	// isUnattended marks what happens without a person's act: a check during a long answer whether its caller
	// may still read, and a stream that a browser resumes by itself. It does not count as use of the session.
	isUnattended bool
	// admitAgain finds out anew whether the caller may still do this, for what takes long.
	admitAgain func() error
	began      time.Time
	places     places
	door       door // that places.running was taken from
}

type apiRequestKey struct{}

func requestOf(ctx context.Context) *apiRequest { return ctx.Value(apiRequestKey{}).(*apiRequest) }

// isPlatformAdmin says whether the caller stands above tenants.
func (q *apiRequest) isPlatformAdmin() bool {
	return q.session != nil && q.session.Account.PlatformAdmin
}

// account is the person who asks, of whom there must be one.
func (q *apiRequest) account() auth.Account { return q.session.Account }

// store writes in the name of the caller.
func (s *surface) store(ctx context.Context) Writer {
	return s.As(requestOf(ctx).actor)
}

// acting is store for a caller who asked for something that the changed rows alone do not say.
func (s *surface) acting(ctx context.Context, act string) Writer {
	actor := requestOf(ctx).actor
	actor.Act = act
	return s.As(actor)
}

// guard lets a request through to its handler if its caller may call it and it is as openapi.yaml says.
func (s *surface) guard(rt route, o *operation) httpapi.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		q := &apiRequest{w: w, r: s.asSender(rt, r), requestID: httpapi.RequestID(w), began: time.Now(), isUnattended: r.Header.Get(lastEventID) != ""}
		defer q.places.release()
		if err := s.check(q, rt, o); err != nil {
			s.pauseRefusal(q.r.Context(), q, err)
			s.handlerFailed(w, r, err)
			return nil
		}
		q.r = q.r.WithContext(q.context())
		rt.handler(w, q.r)
		return nil
	}
}

// context returns the context for the handler: it carries the apiRequest and its caller.
func (q *apiRequest) context() context.Context {
	ctx := context.WithValue(q.r.Context(), apiRequestKey{}, q)
	if q.actor.ID == "" {
		return ctx // anybody
	}
	return shares.With(ctx, q.caller())
}

// check judges a request by its origin first, then by its caller, and by its content last. A file may
// take minutes to arrive, in which its sender may have lost their session, key or role, or the tenant may
// have been suspended; so it looks again. The request keeps the places that it takes here until its end.
func (s *surface) check(q *apiRequest, rt route, o *operation) error {
	if err := s.origins.Check(q.r); err != nil {
		return httpapi.Forbidden.Problem("A browser sent this from a page of another site; open Sluice itself.")
	}
	door := s.doorOf(rt, o)
	if err := door.arrive(q); err != nil {
		return err
	}
	if err := s.admit(q, rt); err != nil {
		return err
	}
	q.admitAgain = func() error { return s.admit(q.again(), rt) }
	if err := s.transfer(q, o); err != nil {
		return err
	}
	if err := o.checkAddress(q.r); err != nil {
		return err
	}
	body, err := o.read(q.w, q.r)
	if err == nil && o.isUpload() {
		err = q.admitAgain()
	}
	if err != nil {
		return err
	}
	// The place is taken after the body has arrived, so that a slow network holds none, and before the body is parsed.
	if err := door.enter(q); err != nil {
		return err
	}
	return o.checkBody(q.r, body)
}

// again returns the same request with its caller not identified yet.
func (q *apiRequest) again() *apiRequest {
	return &apiRequest{w: q.w, r: q.r, requestID: q.requestID, isUnattended: true}
}

// admit finds out who asks and whether they may.
func (s *surface) admit(q *apiRequest, rt route) error {
	if rt.least == anyone {
		return nil
	}
	if err := s.identify(q); err != nil {
		return err
	}
	if q.session == nil && (rt.least == anAccount || rt.least == aPlatformAdmin) {
		return httpapi.Forbidden.Problem("This is for people: sign in instead of sending an API key.")
	}
	if strings.Contains(rt.path, "{tenant}") {
		if err := s.enter(q); err != nil {
			return err
		}
	}
	return q.judge(rt.least)
}

// enter finds the tenant that the path names and the caller's role in it. To others it does not exist.
func (s *surface) enter(q *apiRequest) error {
	ctx := q.r.Context()
	tenant, err := s.Stores.TenantBySlug(ctx, httpapi.PathParam(q.r, "tenant"))
	if errors.Is(err, rules.ErrNotFound) {
		return noTenant
	}
	if err != nil {
		return fmt.Errorf("find the tenant: %w", err)
	}
	q.tenant = tenant
	switch {
	case q.key != nil && q.key.TenantID == tenant.ID:
		q.role = auth.Editor
	case q.key != nil:
		return noTenant
	case q.isPlatformAdmin():
		q.role = auth.Owner
	default:
		q.role, err = s.People.RoleIn(ctx, tenant.ID, q.account().ID)
		if errors.Is(err, rules.ErrNotFound) {
			return noTenant
		}
		if err != nil {
			return fmt.Errorf("find the caller's role: %w", err)
		}
	}
	return nil
}

var noTenant = httpapi.NotFound.Problem("There is no such tenant, or none that you are a member of.")

// judge says whether the caller may do what takes so much.
func (q *apiRequest) judge(least access) error {
	if q.isPlatformAdmin() {
		return nil
	}
	if q.tenant.Suspended && (q.key != nil || least != aViewer) {
		return httpapi.Suspended.Problem("The tenant is suspended; only platform admins change it until they lift that.")
	}
	switch least {
	case aPlatformAdmin:
		return httpapi.Forbidden.Problem("Only platform admins may do this.")
	case aViewer, anEditor, anOwner:
		if !q.role.May(auth.Role(least)) {
			return httpapi.Forbidden.Problem(fmt.Sprintf("Your role here is %s; this takes one that is at least %s.", q.role, least))
		}
	}
	return nil
}
