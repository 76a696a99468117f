package checkapi

import (
	"net/http"

	"github.com/valyala/fasthttp"

	"github.com/sluicegate/sluice/internal/checkjson"
)

// report handles POST /v1/report: what a service saw of the backends behind rules that adapt. It waits for no store.
func (s *surface) report(c *fasthttp.RequestCtx, by caller) error {
	x := scratchOf(c)
	x.read(c.PostBody())
	reports := checkjson.DecodeReports(&x.reader)
	if err := x.reader.Close(); err != nil {
		return err
	}
	ignored := s.Reports.Add(by.tenant, reports)
	x.answer = checkjson.AppendReported(x.answer[:0], reports, ignored)
	write(c, http.StatusOK, jsonType, x.answer)
	return nil
}
