package checkapi

import (
	"net/http"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/checks/checkjson"
)

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
