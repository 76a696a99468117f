package checkapi

import (
	"net/http"

	"github.com/valyala/fasthttp"
)

func (s *surface) healthz(c *fasthttp.RequestCtx, _ caller) error {
	c.Response.Header.Set("Cache-Control", "no-store")
	write(c, http.StatusOK, jsonType, s.alive)
	return nil
}

func (s *surface) readyz(c *fasthttp.RequestCtx, _ caller) error {
	now := s.Readiness()
	c.Response.Header.Set("Cache-Control", "no-store")
	write(c, now.Status(), jsonType, now.AppendJSON(nil))
	return nil
}
