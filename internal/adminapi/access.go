package adminapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/meter"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/shares"
)

// access is the least that a caller must be to use an operation.
type access string

// Levels of access, in the words of x-least-role. A viewer's operations change nothing, so they work in a suspended
// tenant too.
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
	session   *auth.Session // of a person; nil for API keys and anonymous callers
	key       *auth.Key     // nil for a person; a service key has no tenant
	refused   *auth.Key     // whose secret the caller has, and that is not let in
	isOutside bool          // refused is in force, and its networks are others
	actor     rules.Actor
	tenant    rules.Tenant // named by the path
	role      auth.Role    // of the caller in the tenant
	// isUnattended marks work without a person's act: a check during a long answer whether its caller may still read,
	// and a stream that a browser resumes. It does not count as use of the session.
	isUnattended bool
	// admitAgain repeats authentication and authorization, during long answers.
	admitAgain func() error
	// nextPage is admitAgain for the next part of a long answer, which it paces by the caller's allowances.
	nextPage func() error
	began    time.Time
	purse    purse
	places   places
	door     door // of places.running
	// once is what the store knows of a request with an Idempotency-Key, which is onceSecret.
	once       auth.Once
	onceSecret string
}

type apiRequestKey struct{}

func requestOf(ctx context.Context) *apiRequest { return ctx.Value(apiRequestKey{}).(*apiRequest) }

// isPlatform reports whether the caller acts in every tenant: a platform admin or a service key.
func (q *apiRequest) isPlatform() bool {
	return q.session != nil && q.session.Account.PlatformAdmin || q.key != nil && q.key.TenantID == 0
}

// account returns the caller's account. The caller must be a person.
func (q *apiRequest) account() auth.Account { return q.session.Account }

// store returns the Writer in the name of the caller.
func (s *surface) store(ctx context.Context) Writer {
	return s.As(requestOf(ctx).actor)
}

// acting is store for a change that its rows alone do not explain.
func (s *surface) acting(ctx context.Context, act string) Writer {
	actor := requestOf(ctx).actor
	actor.Act = act
	return s.As(actor)
}

// guard calls the handler if the caller may use the operation and the request conforms to openapi.yaml.
func (s *surface) guard(rt route, o *operation) httpapi.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		r, work := s.measured(r)
		w = paced{w, r.Context()}
		q := &apiRequest{w: w, r: s.asSender(rt, r), requestID: httpapi.RequestID(w), began: time.Now(), isUnattended: r.Header.Get(lastEventID) != ""}
		q.purse.meter = work
		defer q.places.release()
		defer func() {
			work.End()
			s.pay(q.r.Context(), q)
		}()
		if err := s.check(q, rt, o); err != nil {
			s.noteRefusal(q, rt, err)
			s.pauseRefusal(q.r.Context(), q, err)
			s.handlerFailed(w, r, err)
			return nil
		}
		if o.isFile {
			s.note(q, auth.AccessExported, rt.path)
		}
		q.r = q.r.WithContext(q.context())
		if q.onceSecret == "" {
			rt.handler(w, q.r)
			return nil
		}
		if err := s.handleOnce(w, q, rt, o); err != nil {
			s.handlerFailed(w, r, err)
		}
		return nil
	}
}

// context returns the context for the handler: it carries the apiRequest and its caller.
func (q *apiRequest) context() context.Context {
	ctx := context.WithValue(q.r.Context(), apiRequestKey{}, q)
	if q.actor.ID == "" {
		return ctx // anonymous
	}
	return shares.With(ctx, q.caller())
}

// check judges a request's origin, then its caller, then its content. A file may take minutes to arrive, so its sender
// is judged again afterwards. The request keeps the places that it takes here until its end.
func (s *surface) check(q *apiRequest, rt route, o *operation) error {
	if err := s.origins.Check(q.r); err != nil {
		return httpapi.Forbidden.Problem("A browser sent this from a page of another site; open Sluice itself.")
	}
	if err := s.mayBegin(q.r.Context(), q, rt); err != nil {
		return err
	}
	door := s.doorOf(rt, o)
	if err := door.arrive(q); err != nil {
		return err
	}
	err := s.admit(q, rt, o)
	if err := cmp.Or(err, s.mayGoOn(q.r.Context(), q, rt)); err != nil { // a refusal is paid for too
		return err
	}
	q.nextPage = func() error {
		if err := s.pace(q.r.Context(), q); err != nil {
			return err
		}
		return q.admitAgain()
	}
	q.admitAgain = func() error { return s.admit(q.again(), rt, o) }
	if err := s.transfer(q, o); err != nil {
		return err
	}
	if err := o.checkAddress(q.r); err != nil {
		return err
	}
	arrived := meter.Wait(q.r.Context())
	body, err := o.read(q.w, q.r)
	arrived()
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
	if err := s.stillMay(q.r.Context(), q); err != nil {
		return err
	}
	if err := q.mayRepeat(rt, body); err != nil {
		return err
	}
	value, err := o.checkBody(q.r, body)
	if err != nil {
		return err
	}
	if o.wantsFreshProof(value) {
		return s.needsFreshProof(q)
	}
	return nil
}

// again returns the same request with its caller not identified yet.
func (q *apiRequest) again() *apiRequest {
	return &apiRequest{w: q.w, r: q.r, requestID: q.requestID, isUnattended: true}
}

// admit authenticates and authorizes the caller.
func (s *surface) admit(q *apiRequest, rt route, o *operation) error {
	if rt.least == anyone {
		return nil
	}
	if err := s.identify(q); err != nil {
		return err
	}
	if q.key != nil && o.permission == "" {
		return httpapi.Forbidden.Problem("This is for people: sign in instead of sending an API key.")
	}
	if strings.Contains(rt.path, "{tenant}") {
		if err := s.enter(q); err != nil {
			return err
		}
	}
	if err := s.needsFactor(q, rt); err != nil {
		return err
	}
	reads := rt.method == http.MethodGet || rt.least == aViewer
	return q.judge(rt.least, o.permission, reads)
}

// enter finds the tenant in the path and the caller's role in it. Without a role the answer is that the tenant does not
// exist.
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
	case q.key != nil && q.key.TenantID != tenant.ID && !q.isPlatform():
		return noTenant
	case q.key != nil:
		q.role = roleOf(q.key)
	case q.isPlatform():
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

var noTenant = httpapi.NotFound.Problem("There is no such tenant, or you are not a member of it.")

// roleOf returns what the API shows as a key's role.
func roleOf(key *auth.Key) auth.Role {
	if role := key.Role(); role != "" {
		return role
	}
	return auth.Viewer
}

// anyArea is the x-permission of operations that take any permission of the admin API.
const anyArea auth.Permission = "any"

// judge returns an error unless the caller has the access: a person by role, a key by permission.
func (q *apiRequest) judge(least access, area auth.Permission, reads bool) error {
	if q.tenant.Suspended && !q.isPlatform() && (q.key != nil || least != aViewer) {
		return httpapi.Suspended.Problem("The tenant is suspended; until it is resumed only platform admins can change it.")
	}
	if q.key != nil {
		return q.judgeKey(least, area, reads)
	}
	if q.isPlatform() {
		return nil
	}
	switch least {
	case aPlatformAdmin:
		return httpapi.Forbidden.Problem("Only platform admins may do this.")
	case aViewer, anEditor, anOwner:
		if !q.role.May(auth.Role(least)) {
			return httpapi.Forbidden.Problem(fmt.Sprintf("Your role here is %s; this needs at least %s.", q.role, least))
		}
	}
	return nil
}

// judgeKey is judge for a key.
func (q *apiRequest) judgeKey(least access, area auth.Permission, reads bool) error {
	switch {
	case least == aPlatformAdmin && !q.isPlatform():
		return httpapi.Forbidden.Problem("Only platform admins and service keys may do this.")
	case area == anyArea:
		if !slices.ContainsFunc(auth.ServicePermissions, q.key.Has) {
			return httpapi.Forbidden.Problem("Use an API key with the permission manage, or one of its parts.")
		}
	case reads && q.key.MayRead(area), q.key.Has(area):
	case reads && area != auth.PermissionRead:
		return httpapi.Forbidden.Problem(fmt.Sprintf("Use an API key with the permission %s or %s.", area, auth.PermissionRead))
	default:
		return httpapi.Forbidden.Problem(fmt.Sprintf("Use an API key with the permission %s.", area))
	}
	return nil
}

// mayGive returns an error if the caller is a key that would give another one more than it has.
func (q *apiRequest) mayGive(other *auth.Key) error {
	if q.key == nil {
		return nil
	}
	if missing := q.key.MayGive(other); missing != "" {
		return httpapi.Forbidden.Problem("An API key can only make keys that may do no more than itself; this one lacks the " + missing + ".")
	}
	return nil
}

// mayGiveRole is mayGive for a member's role.
func (q *apiRequest) mayGiveRole(role auth.Role) error {
	if q.key == nil || q.key.Role().May(role) {
		return nil
	}
	return httpapi.Forbidden.Problem("An API key can only give roles that may do no more than itself; give it the permission manage for " + string(role) + ".")
}
