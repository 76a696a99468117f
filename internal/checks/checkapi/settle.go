package checkapi

import (
	"errors"
	"net/http"
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
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
