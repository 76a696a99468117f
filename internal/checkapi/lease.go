package checkapi

import (
	"net/http"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/checkjson"
)

// lease handles POST /v1/leases: tokens for a client that decides checks in its own process, and its report of what it did
// with those that it had.
func (s *surface) lease(c *fasthttp.RequestCtx, by caller) error {
	x := scratchOf(c)
	x.read(c.PostBody())
	request := checkjson.DecodeLeases(&x.reader, by.tenant.Tenant.ID)
	if err := x.reader.Close(); err != nil {
		return err
	}
	if err := checkjson.ChooseLeasePlans(by.tenant, request.Checks); err != nil {
		return err
	}
	answer := s.Lessor.Lease(c, by.tenant, &request)
	x.answer = checkjson.AppendLeases(x.answer[:0], &answer)
	write(c, http.StatusOK, jsonType, x.answer)
	return nil
}
