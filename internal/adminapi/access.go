package adminapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/shares"
)

// access is the least that a caller must be to use an operation, in the words of x-least-role.
type access string

// A viewer's operations change nothing, so people may use them in a suspended tenant.
const (
	anyone         access = "anyone"
	aCaller        access = "caller"  // an account or an API key
	anAccount      access = "account" // a person
	aViewer        access = "viewer"
	anEditor       access = "editor"
	anOwner        access = "owner"
	aPlatformAdmin access = "platform"
)

type apiRequest struct {
	w         http.ResponseWriter
	r         *http.Request
	route     route
	operation *operation
	requestID string
	identity
	// isUnattended marks a check during a long answer, or a stream that a browser resumes, which are no use of the
	// session.
	isUnattended   bool
	began          time.Time
	transfer       shares.Slot // of a file or stream
	slot           shares.Slot // of the request's class
	body           []byte
	value          any            // of a JSON body
	ifMatch        rules.Expected // of an operation that requires an If-Match
	idempotent     auth.IdempotentRequest
	idempotencyKey string
}

type identity struct {
	session   *auth.Session // of a person; nil for API keys and anonymous callers
	key       *auth.Key     // nil for a person; a service key has no tenant
	refused   *auth.Key     // the key whose secret is right, but that is refused
	isOutside bool          // refused is in force, but not from this network
	actor     rules.Actor
	tenant    rules.Tenant // named by the path
	role      auth.Role    // of the caller in the tenant
}

type apiRequestKey struct{}

func requestOf(ctx context.Context) *apiRequest { return ctx.Value(apiRequestKey{}).(*apiRequest) }

func (q *apiRequest) isPlatform() bool {
	return q.session != nil && q.session.Account.PlatformAdmin || q.key != nil && q.key.TenantID == 0
}

func (q *apiRequest) account() auth.Account { return q.session.Account }

func (s *surface) store(ctx context.Context) pgstore.Writer {
	return s.As(requestOf(ctx).actor)
}

// acting is store for a change that its rows alone do not explain.
func (s *surface) acting(ctx context.Context, act string) pgstore.Writer {
	actor := requestOf(ctx).actor
	actor.Act = act
	return s.As(actor)
}

// enter finds the tenant in the path and the caller's role in it. Without a role the tenant does not exist.
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

func roleOf(key *auth.Key) auth.Role {
	if role := key.Role(); role != "" {
		return role
	}
	return auth.Viewer
}

// anyArea is the x-permission of operations that take any permission of the admin API.
const anyArea auth.Permission = "any"

func (q *apiRequest) judge(least access, area auth.Permission, reads bool) error {
	if q.tenant.Suspended && !q.isPlatform() && (q.key != nil || least != aViewer) {
		return httpapi.Suspended.Problem(
			"The tenant is suspended: its API keys are refused and its members can only read. Ask a platform admin " +
				"to resume it.")
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
			return httpapi.Forbidden.Problem(fmt.Sprintf("Your role here is %s; this needs at least %s.", q.role,
				least))
		}
	}
	return nil
}

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
		return httpapi.Forbidden.Problem(fmt.Sprintf("Use an API key with the permission %s or %s.", area,
			auth.PermissionRead))
	default:
		return httpapi.Forbidden.Problem(fmt.Sprintf("Use an API key with the permission %s.", area))
	}
	return nil
}

// mustBePerson guards acts that loosen security, or that no key may give.
func (q *apiRequest) mustBePerson(act string) error {
	if q.key == nil {
		return nil
	}
	return httpapi.Forbidden.Problem("An API key cannot " + act + "; sign in as a person to do it.")
}

// mayGive refuses a key that would give another one more than it has.
func (q *apiRequest) mayGive(other *auth.Key) error {
	if q.key == nil {
		return nil
	}
	if unless := q.key.MayGive(other); unless != "" {
		return httpapi.Forbidden.Problem(
			"An API key can only make keys that may do no more than itself: " + unless + ".")
	}
	return nil
}

// mayGiveRole is mayGive for a member's role. Owners are made by people.
func (q *apiRequest) mayGiveRole(role auth.Role) error {
	if role == auth.Owner {
		return q.mustBePerson("make an owner")
	}
	if q.key == nil || q.key.Role().May(role) {
		return nil
	}
	return httpapi.Forbidden.Problem(
		"An API key can only give roles that may do no more than itself; give it the permission manage for " +
			string(role) + ".")
}
