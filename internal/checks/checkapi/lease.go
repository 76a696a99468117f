package checkapi

import (
	"net/http"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/checks/checkjson"
)

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
