package checkapi

import (
	"net/http"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/snapshot"
)

// healthz handles GET /healthz.
func (s *surface) healthz(c *fasthttp.RequestCtx, _ *snapshot.Tenant) error {
	c.Response.Header.Set("Cache-Control", "no-store")
	write(c, http.StatusOK, jsonType, s.alive)
	return nil
}

// readyz handles GET /readyz.
func (s *surface) readyz(c *fasthttp.RequestCtx, _ *snapshot.Tenant) error {
	now := s.Readiness()
	c.Response.Header.Set("Cache-Control", "no-store")
	write(c, now.Status(), jsonType, now.AppendJSON(nil))
	return nil
}
