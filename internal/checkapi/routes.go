package checkapi

import (
	"net/http"
	"time"

	"github.com/gorilla/mux"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// Config is what the surface stands on. All but KeyUsed and Now must be given.
type Config struct {
	// Snapshots has the rules; a *rules.Watcher is one.
	Snapshots Snapshots
	Limiter   *enforce.Limiter
	// Readiness must answer from memory, at once.
	Readiness func() Readiness
	// Requests surrounds every route.
	Requests *httpapi.Requests
	// KeyUsed is told each time that a key proves itself; it must not wait. nil is nobody.
	KeyUsed func(key *rules.Key, at time.Time)
	// Now judges when keys expire and stamps X-RateLimit-Reset; nil is time.Now.
	Now func() time.Time
}

// Snapshots has the latest rules in memory, or nil while none were ever loaded.
type Snapshots interface {
	Snapshot() *rules.Snapshot
}

// NewHandler returns the whole surface.
func NewHandler(c Config) http.Handler {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.KeyUsed == nil {
		c.KeyUsed = func(*rules.Key, time.Time) {}
	}
	s := &surface{Config: c}
	// A path that is not clean is not a route: redirecting a POST would ask callers to send it twice.
	router := mux.NewRouter().SkipClean(true)
	route := func(path string, handler httpapi.Handler, methods ...string) http.Handler {
		surrounded := c.Requests.Route(path, handler)
		router.Handle(path, surrounded).Methods(methods...)
		return surrounded
	}

	check := route(checkPath, s.check, http.MethodPost)
	route("/v1/check/batch", s.checkBatch, http.MethodPost)
	route("/v1/explain", s.explain, http.MethodPost)
	route("/healthz", s.healthz, http.MethodGet, http.MethodHead)
	route("/readyz", s.readyz, http.MethodGet, http.MethodHead)

	httpapi.AnswerUnmatched(router, c.Requests)
	return &routes{router, check}
}

const checkPath = "/v1/check"

// routes are all routes. Nearly every request is a check, and goes past the router, which would copy it twice to
// keep the parameters of a path that has none.
type routes struct {
	*mux.Router
	check http.Handler
}

func (t *routes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.URL.Path == checkPath {
		t.check.ServeHTTP(w, r)
		return
	}
	t.Router.ServeHTTP(w, r)
}

// surface has the handlers.
type surface struct{ Config }
