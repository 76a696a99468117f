package checkapi

import (
	"net"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/shares"
)

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

func (s *Server) SetMaxHeld(all, share int) {
	s.bodies = shares.NewBudget(shares.BudgetLimits{Bytes: all, PerTenant: share})
}

func (s *Server) Held() int { return s.bodies.Held() }

func (s *Server) Capture(path string, see func(*fasthttp.RequestCtx)) {
	s.surface.routes[path].handler = func(c *fasthttp.RequestCtx, _ caller) error {
		see(c)
		return nil
	}
}

func (s *Server) ServeConn(c net.Conn) { s.newConn(c, time.Now()).serve() }

var DenialOf = denialOf
