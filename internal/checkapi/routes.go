package checkapi

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// Config is what the surface stands on. All but Observer, KeyUsed and Now must be given.
type Config struct {
	// Snapshots has the rules; a *snapshot.Watcher is one.
	Snapshots Snapshots
	Limiter   *enforce.Limiter
	// Readiness must answer from memory, at once.
	Readiness func() Readiness
	Log       *slog.Logger
	// Observer is told of every request; nil is nobody.
	Observer httpapi.Observer
	// KeyUsed is told each time that a key proves itself; it must not wait. nil is nobody.
	KeyUsed func(key *snapshot.Key, at time.Time)
	// Now judges when keys expire and stamps X-RateLimit-Reset; nil is time.Now.
	Now func() time.Time
	// MaxConnections caps the open connections; 0 is DefaultMaxConnections.
	MaxConnections int
}

// Snapshots has the latest rules in memory, or nil while none were ever loaded.
type Snapshots interface {
	Snapshot() *snapshot.Snapshot
}

// surface has the handlers.
type surface struct {
	Config
	routes map[string]*route // by path
}

// handler answers a request of a tenant, or returns the error to answer it with. The caller sees a *httpapi.Problem as
// it is. The tenant is nil on routes without a permission.
type handler func(c *fasthttp.RequestCtx, tenant *snapshot.Tenant) error

// route is how one path is answered. HEAD goes where GET does.
type route struct {
	method, path string
	permission   auth.Permission // "" for health routes: no key is needed, and a body is not read
	maxBody      int             // bytes
	handler      handler
}

func newSurface(c Config) *surface {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.KeyUsed == nil {
		c.KeyUsed = func(*snapshot.Key, time.Time) {}
	}
	s := &surface{Config: c, routes: map[string]*route{}}
	for _, r := range []route{
		{http.MethodPost, "/v1/check", auth.PermissionCheck, maxBody, s.check},
		{http.MethodPost, batchPath, auth.PermissionCheck, maxBatchBody, s.checkBatch},
		{http.MethodPost, "/v1/explain", auth.PermissionExplain, maxBody, s.explain},
		{http.MethodGet, healthPath, "", maxBody, s.healthz},
		{http.MethodGet, readyPath, "", maxBody, s.readyz},
	} {
		s.routes[r.path] = &r
	}
	return s
}

const (
	batchPath  = "/v1/check/batch"
	healthPath = "/healthz"
	readyPath  = "/readyz"
)

// unmatched is what logs and metrics call requests without a route, so that nobody can make up names.
const unmatched = "unmatched"

// errTarget refuses a target that is no URL. As net/http does, the server ends the connection, too.
var errTarget = badHTTP()

// find returns the route of a request.
func (s *surface) find(c *fasthttp.RequestCtx) (*route, error) {
	target := c.Request.Header.RequestURI()
	r, found := s.routes[string(pathOf(&c.Request.Header))]
	if !found || target[0] != '/' { // what net/http cannot parse is refused, too
		if _, err := url.ParseRequestURI(string(target)); err != nil {
			return nil, errTarget
		}
	}
	if !found {
		return nil, httpapi.NotFound.Problem("No resource has this path; compare it with the API description.")
	}
	if string(c.Method()) != r.method && (!c.IsHead() || r.method != http.MethodGet) {
		return nil, r.refuseMethod(c)
	}
	return r, nil
}

func (r *route) refuseMethod(c *fasthttp.RequestCtx) error {
	allow := r.method
	if allow == http.MethodGet {
		allow = strings.Join([]string{http.MethodGet, http.MethodHead}, ", ")
	}
	c.Response.Header.Set("Allow", allow)
	return httpapi.WrongMethod.Problem("Use one of: " + allow + ".")
}
