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

// visit is what one request is about. It travels in the request's context.
type visit struct {
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

type visitKey struct{}

func visitOf(ctx context.Context) *visit { return ctx.Value(visitKey{}).(*visit) }

// isPlatformAdmin says whether the caller stands above tenants.
func (v *visit) isPlatformAdmin() bool { return v.session != nil && v.session.Account.PlatformAdmin }

// account is the person who asks, of whom there must be one.
func (v *visit) account() auth.Account { return v.session.Account }

// store writes in the name of the caller.
func (s *surface) store(ctx context.Context) Writer {
	return s.As(visitOf(ctx).actor)
}

// acting is store for a caller who asked for something that the changed rows alone do not say.
func (s *surface) acting(ctx context.Context, act string) Writer {
	actor := visitOf(ctx).actor
	actor.Act = act
	return s.As(actor)
}

// guard lets a request through to its handler if its caller may call it and it is as openapi.yaml says.
func (s *surface) guard(rt route, o *operation) httpapi.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		v := &visit{w: w, r: s.asSender(rt, r), requestID: httpapi.RequestID(w), began: time.Now(), isUnattended: r.Header.Get(lastEventID) != ""}
		defer v.places.release()
		if err := s.check(v, rt, o); err != nil {
			s.pauseRefusal(v.r.Context(), v, err)
			s.handlerFailed(w, r, err)
			return nil
		}
		v.r = v.r.WithContext(v.context())
		rt.handler(w, v.r)
		return nil
	}
}

// context is the request's, with the visit and in the name of its caller.
func (v *visit) context() context.Context {
	ctx := context.WithValue(v.r.Context(), visitKey{}, v)
	if v.actor.ID == "" {
		return ctx // anybody
	}
	return shares.With(ctx, v.caller())
}

// check judges a request by its origin first, then by its caller, and by its content last. A file may
// take minutes to arrive, in which its sender may have lost their session, key or role, or the tenant may
// have been suspended; so it looks again. The request keeps the places that it takes here until its end.
func (s *surface) check(v *visit, rt route, o *operation) error {
	if err := s.origins.Check(v.r); err != nil {
		return httpapi.Forbidden.Problem("A browser sent this from a page of another site; open Sluice itself.")
	}
	door := s.doorOf(rt, o)
	if err := door.arrive(v); err != nil {
		return err
	}
	if err := s.admit(v, rt); err != nil {
		return err
	}
	v.admitAgain = func() error { return s.admit(v.again(), rt) }
	if err := s.transfer(v, o); err != nil {
		return err
	}
	if err := o.checkAddress(v.r); err != nil {
		return err
	}
	body, err := o.read(v.w, v.r)
	if err == nil && o.isUpload() {
		err = v.admitAgain()
	}
	if err != nil {
		return err
	}
	// The place is taken after the body has arrived, so that a slow network holds none, and before the body is parsed.
	if err := door.enter(v); err != nil {
		return err
	}
	return o.checkBody(v.r, body)
}

// again returns a visit of the same request whose caller is not identified yet.
func (v *visit) again() *visit {
	return &visit{w: v.w, r: v.r, requestID: v.requestID, isUnattended: true}
}

// admit finds out who asks and whether they may.
func (s *surface) admit(v *visit, rt route) error {
	if rt.least == anyone {
		return nil
	}
	if err := s.identify(v); err != nil {
		return err
	}
	if v.session == nil && (rt.least == anAccount || rt.least == aPlatformAdmin) {
		return httpapi.Forbidden.Problem("This is for people: sign in instead of sending an API key.")
	}
	if strings.Contains(rt.path, "{tenant}") {
		if err := s.enter(v); err != nil {
			return err
		}
	}
	return v.judge(rt.least)
}

// enter finds the tenant that the path names and the caller's role in it. To others it does not exist.
func (s *surface) enter(v *visit) error {
	ctx := v.r.Context()
	tenant, err := s.Stores.TenantBySlug(ctx, httpapi.PathParam(v.r, "tenant"))
	if errors.Is(err, rules.ErrNotFound) {
		return noTenant
	}
	if err != nil {
		return fmt.Errorf("find the tenant: %w", err)
	}
	v.tenant = tenant
	switch {
	case v.key != nil && v.key.TenantID == tenant.ID:
		v.role = auth.Editor
	case v.key != nil:
		return noTenant
	case v.isPlatformAdmin():
		v.role = auth.Owner
	default:
		v.role, err = s.People.RoleIn(ctx, tenant.ID, v.account().ID)
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
func (v *visit) judge(least access) error {
	if v.isPlatformAdmin() {
		return nil
	}
	if v.tenant.Suspended && (v.key != nil || least != aViewer) {
		return httpapi.Suspended.Problem("The tenant is suspended; only platform admins change it until they lift that.")
	}
	switch least {
	case aPlatformAdmin:
		return httpapi.Forbidden.Problem("Only platform admins may do this.")
	case aViewer, anEditor, anOwner:
		if !v.role.May(auth.Role(least)) {
			return httpapi.Forbidden.Problem(fmt.Sprintf("Your role here is %s; this takes one that is at least %s.", v.role, least))
		}
	}
	return nil
}
