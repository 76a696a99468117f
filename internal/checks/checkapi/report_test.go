package checkapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluicegate/sluice/internal/adapt"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

const reportKey = "slk_report_" + secret

func (h *harness) Add(tenant *snapshot.Tenant, reports []adapt.Report) (ignored []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range reports {
		if !tenant.HasBackend(reports[i].Backend) {
			ignored = append(ignored, reports[i].Backend)
			continue
		}
		h.reports = append(h.reports, reports[i])
	}
	return ignored
}

func adapting(r *rules.Rule) {
	r.Adapt = rules.Adapt{Backend: "search", FloorPercent: 20, ErrorPercent: 1}
}

func TestServicesReportWhatTheySaw(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), with(limit(t, 1, "global", 10, 50), adapting))
	h.want(h.postAs(reportKey, "/v1/report", `{"reports":[
		{"backend":"search","requests":1000,"errors":3,"latency_ms":{"100":900,"300":95,"1000":4,"inf":1}},
		{"backend":"serch","requests":1},
		{"backend":"search","requests":0}]}`), http.StatusOK, `{"accepted":2,"ignored":["serch"]}`)
	want := adapt.Report{Backend: "search", Seen: adapt.Seen{Requests: 1000, Errors: 3}}
	for bucket, n := range map[int]int64{11: 900, 14: 95, 17: 4, 28: 1} {
		want.Latency[bucket] = n
	}
	if len(h.reports) != 2 || h.reports[0] != want {
		t.Errorf("read %+v, want %+v", h.reports, want)
	}
}

func TestReportsNeedThePermissionReport(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings())
	body := `{"reports":[{"backend":"search","requests":1}]}`
	for key, status := range map[string]int{reportKey: 200, fullKey: 403, "": 401, "slk_suspended_" + secret: 403} {
		if w := h.postAs(key, "/v1/report", body); w.Code != status {
			t.Errorf("with the key %q: %d %s", key, w.Code, w.Body)
		}
	}
}

func TestWrongReportsAreRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), with(limit(t, 1, "global", 10, 50), adapting))
	one := func(fields string) string { return `{"reports":[{"backend":"search","requests":5},{` + fields + `}]}` }
	for body, pointer := range map[string]string{
		`{}`:                                                             "/reports",
		`{"reports":{}}`:                                                 "/reports",
		`{"reports":[],"extra":1}`:                                       "/extra",
		`{"reports":[7]}`:                                                "/reports/0",
		one(`"requests":5`):                                              "/reports/1/backend",
		one(`"backend":"","requests":5`):                                 "/reports/1/backend",
		one(`"backend":"a b","requests":5`):                              "/reports/1/backend",
		one(`"backend":"search"`):                                        "/reports/1/requests",
		one(`"backend":"s","requests":-1`):                               "/reports/1/requests",
		one(`"backend":"s","requests":1.5`):                              "/reports/1/requests",
		one(`"backend":"s","requests":"1"`):                              "/reports/1/requests",
		one(`"backend":"s","requests":1e3`):                              "/reports/1/requests",
		one(`"backend":"s","requests":2e9`):                              "/reports/1/requests",
		one(`"backend":"s","requests":null`):                             "/reports/1/requests",
		one(`"backend":"s","requests":1,"errors":2`):                     "/reports/1/errors",
		one(`"backend":"s","requests":1,"latency_ms":{"100":1,"300":1}`): "/reports/1/latency_ms",
		one(`"backend":"s","requests":1,"latency_ms":{"250":1}`):         "/reports/1/latency_ms/250",
		one(`"backend":"s","requests":1,"latency_ms":{"100":-1}`):        "/reports/1/latency_ms/100",
		one(`"backend":"s","requests":1,"latency_ms":[1]`):               "/reports/1/latency_ms",
		one(`"backend":"s","requests":1,"p99":1`):                        "/reports/1/p99",
		one(`"backend":"` + strings.Repeat("s", 65) + `","requests":1`):  "/reports/1/backend",
		`{"reports":[` + strings.Repeat(`{"backend":"s","requests":1},`, 100) +
			`{"backend":"s","requests":1}]}`: "/reports",
	} {
		w := h.postAs(reportKey, "/v1/report", body)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), fmt.Sprintf("%q", pointer)) {
			t.Errorf("%.80s: %d %s, want %s", body, w.Code, w.Body, pointer)
		}
	}
	if len(h.reports) > 0 {
		t.Errorf("%d reports of wrong bodies count", len(h.reports))
	}
}
