package checkapi

import (
	"bytes"
	"net/http"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

// An unknown user has the limits of the plan in the query, or of the default plan.
func (s *surface) usage(c *fasthttp.RequestCtx, by caller) error {
	_, query, _ := bytes.Cut(c.Request.Header.RequestURI(), []byte("?"))
	userID, named, err := checkjson.DecodeUsage(string(query))
	if err != nil {
		return err
	}
	asked := []enforce.Check{{Request: rules.Request{UserID: userID, Plan: named}}}
	if err := checkjson.ChoosePlans(by.tenant, asked, func(int) string { return "/query/plan" }); err != nil {
		return err
	}
	plan := asked[0].EffectivePlan
	limits, hasMore, err := s.Limiter.Usage(c, by.tenant, userID, plan)
	if err != nil {
		s.Log.Debug("the buckets of a user could not be read", "tenant", by.tenant.Tenant.Slug, "error", err)
		return httpapi.Unavailable.Problem("The store of buckets did not answer in time. Nothing was taken; try again.")
	}
	x := scratchOf(c)
	x.answer = checkjson.AppendUsage(x.answer[:0], userID, plan, limits, hasMore)
	c.Response.Header.Set("Cache-Control", "no-store")
	write(c, http.StatusOK, jsonType, x.answer)
	return nil
}
