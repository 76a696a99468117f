package checkapi

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/adapt"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/checks/door"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules/gateway"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// Config configures a Server; Gap and Tokens are optional.
type Config struct {
	door.Config
	Limiter *enforce.Limiter
	// Gap counts a gap of a proxy's request; it must not block.
	Gap     func(gateway.Gap)
	Reports Reports
	Lessor  *enforce.Lessor
	Tokens  Tokens
	Version string
}

// Reports is an *adapt.Reports.
type Reports interface {
	// Add must not block, and returns the backends whose reports were ignored.
	Add(tenant *snapshot.Tenant, reports []adapt.Report) (ignored []string)
}

type surface struct {
	Config
	telemetry httpapi.Telemetry
	routes    map[string]*route // by path
	alive     []byte            // the answer of healthz
}

type handler func(c *fasthttp.RequestCtx, by caller) error

type caller struct {
	tenant *snapshot.Tenant
	key    *snapshot.Key
}

type route struct {
	// asksForVisitor: any method and all paths below are answered, bodies are ignored, the key may be in X-Sluice-Key,
	// and its refusal is 500.
	asksForVisitor bool

	method, path string
	permission   auth.Permission // "" for health routes, which need no key
	maxBody      int             // bytes
	handler      handler
}

func newSurface(c Config) *surface {
	c.SetDefaults(defaultMaxConnections)
	if c.Gap == nil {
		c.Gap = func(gateway.Gap) {}
	}
	if c.Tokens == nil {
		c.Tokens = noTokens{}
	}
	s := &surface{
		Config: c, telemetry: c.Telemetry(), routes: map[string]*route{}, alive: httpapi.Alive(c.Version),
	}
	const visitors = true
	for _, r := range []route{
		{!visitors, http.MethodPost, "/v1/check", auth.PermissionCheck, checkjson.MaxBody, s.check},
		{!visitors, http.MethodPost, batchPath, auth.PermissionCheck, checkjson.MaxBatchBody, s.checkBatch},
		{!visitors, http.MethodPost, "/v1/settle", auth.PermissionCheck, checkjson.MaxBody, s.settle},
		{!visitors, http.MethodGet, usagePath, auth.PermissionCheck, checkjson.MaxBody, s.usage},
		{!visitors, http.MethodPost, "/v1/report", auth.PermissionReport, checkjson.MaxBody, s.report},
		{!visitors, http.MethodPost, leasesPath, auth.PermissionLease, checkjson.MaxLeaseBody, s.lease},
		{!visitors, http.MethodPost, explainPath, auth.PermissionExplain, checkjson.MaxBody, s.explain},
		{visitors, anyMethod, authorizePath, auth.PermissionCheck, checkjson.MaxBody, s.authorizeRequest},
		{!visitors, http.MethodGet, httpapi.HealthPath, "", checkjson.MaxBody, s.healthz},
		{!visitors, http.MethodGet, httpapi.ReadyPath, "", checkjson.MaxBody, s.readyz},
	} {
		s.routes[r.path] = &r
	}
	return s
}

const (
	batchPath   = "/v1/check/batch"
	usagePath   = "/v1/usage"
	leasesPath  = "/v1/leases"
	explainPath = "/v1/explain"
	anyMethod   = "ANY"
)

func (r *route) readsBody() bool { return r.method == http.MethodPost }

func (r *route) mayAnswerMuch() bool {
	return r.path == batchPath || r.path == usagePath || r.path == leasesPath || r.path == explainPath
}

func (s *surface) routeAt(path []byte) *route {
	if r, found := s.routes[string(path)]; found {
		return r
	}
	if len(path) > len(authorizePath) && path[len(authorizePath)] == '/' &&
		string(path[:len(authorizePath)]) == authorizePath {
		return s.routes[authorizePath]
	}
	return nil
}

const unmatched = "unmatched"

// errTarget ends the connection as net/http does.
var errTarget = badHTTP()

func (s *surface) find(c *fasthttp.RequestCtx) (*route, error) {
	target := c.Request.Header.RequestURI()
	r := s.routeAt(pathOf(&c.Request.Header))
	if r == nil || target[0] != '/' { // net/http also refuses other targets
		if _, err := url.ParseRequestURI(string(target)); err != nil {
			return nil, errTarget
		}
	}
	if r == nil {
		return nil, httpapi.NotFound.Problem("No resource has this path; compare it with the API description.")
	}
	if string(c.Method()) != r.method && r.method != anyMethod && (!c.IsHead() || r.method != http.MethodGet) {
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
