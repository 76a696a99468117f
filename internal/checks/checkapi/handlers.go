package checkapi

import (
	"bytes"
	"errors"
	"net/http"
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

func (s *surface) settle(c *fasthttp.RequestCtx, by caller) error {
	id, with, err := checkjson.DecodeSettlement(c.PostBody())
	if err != nil {
		return err
	}
	with.Key, with.MayRefund = by.key.ID, slices.Contains(by.key.Permissions, auth.PermissionRefund)
	settled, err := s.Limiter.SettleReservation(c, by.tenant, id, with)
	switch {
	case errors.Is(err, enforce.ErrRefundForbidden):
		return httpapi.Forbidden.Problem(
			"Another API key reserved this; use that key, or one with the permission refund, to give back.")
	case err != nil:
		s.Log.Debug("a reservation was not settled", "tenant", by.tenant.Tenant.Slug, "error", err)
		return httpapi.Unavailable.Problem(
			"The store of buckets did not answer in time; the reservation may be settled. Send the request again.")
	}
	x := scratchOf(c)
	x.answer = checkjson.AppendSettled(x.answer[:0], settled, with)
	write(c, http.StatusOK, jsonType, x.answer)
	return nil
}

func (s *surface) report(c *fasthttp.RequestCtx, by caller) error {
	reports, err := checkjson.DecodeReports(c.PostBody())
	if err != nil {
		return err
	}
	ignored := s.Reports.Add(by.tenant, reports)
	x := scratchOf(c)
	x.answer = checkjson.AppendReported(x.answer[:0], reports, ignored)
	write(c, http.StatusOK, jsonType, x.answer)
	return nil
}

func (s *surface) lease(c *fasthttp.RequestCtx, by caller) error {
	request, err := checkjson.DecodeLeases(c.PostBody(), by.tenant.Tenant.ID)
	if err != nil {
		return err
	}
	if err := checkjson.ChooseLeasePlans(by.tenant, request.Checks); err != nil {
		return err
	}
	answer := s.Lessor.Lease(c, by.tenant, &request)
	x := scratchOf(c)
	x.answer = checkjson.AppendLeases(x.answer[:0], &by.tenant.Tenant, &request, &answer)
	write(c, http.StatusOK, jsonType, x.answer)
	return nil
}

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
