package checkapi

import (
	"net"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/shares"
)

// Routes are all routes, as "POST /v1/check".
func Routes() []string {
	var all []string
	for _, r := range newSurface(Config{}).routes {
		method := r.method
		if method == anyMethod { // described as one
			method = http.MethodGet
		}
		all = append(all, method+" "+r.path)
	}
	return all
}

// SetMaxHeld sets how many bytes large requests may hold, in all and of one tenant.
func (s *Server) SetMaxHeld(all, share int) {
	s.bodies = shares.NewBudget(shares.BudgetLimits{Bytes: all, PerTenant: share})
}

// Held returns how many bytes large requests hold.
func (s *Server) Held() int { return s.bodies.Held() }

// Capture has a handler see the requests of a path that were read, instead of its own.
func (s *Server) Capture(path string, see func(*fasthttp.RequestCtx)) {
	s.surface.routes[path].handler = func(c *fasthttp.RequestCtx, _ caller) error {
		see(c)
		return nil
	}
}

// ServeConn answers one connection until it ends.
func (s *Server) ServeConn(c net.Conn) { s.newConn(c, time.Now()).serve() }

// DenialOf is denialOf.
var DenialOf = denialOf
