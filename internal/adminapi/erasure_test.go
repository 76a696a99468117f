package adminapi_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
)

func TestAUserIsExportedAndErased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	rule := read[struct {
		ID int64 `json:"rule_id"`
	}](t, w.want(w.send(by, "POST", "/api/v1/tenants/acme/rules", map[string]any{
		"key_pattern": "user:{user_id}", "rate_per_second": 10, "burst_capacity": 50,
	}), http.StatusCreated))
	const its = "/api/v1/tenants/acme/users/mallory"
	w.want(w.send(by, "PUT", "/api/v1/tenants/acme/rules/"+strconv.FormatInt(rule.ID, 10)+"/overrides/mallory",
		map[string]any{
			"rate_per_second": 100, "burst_capacity": 500, "reason": "she asked",
		}, "If-None-Match", "*"), http.StatusCreated)
	w.refresh()
	type data struct {
		Overrides []any `json:"overrides"`
		Audit     []any `json:"audit"`
		Complete  bool  `json:"complete"`
	}
	before := read[data](t, w.want(w.send(by, "GET", its+"/data", nil), http.StatusOK))
	if len(before.Overrides) != 1 || len(before.Audit) != 1 || !before.Complete {
		t.Errorf("before: %+v", before)
	}
	refused := w.want(w.send(by, "POST", its+"/erase", map[string]string{"confirm": "malory"}), http.StatusBadRequest)
	if !strings.Contains(refused.body, "/confirm") {
		t.Errorf("another id is answered with %s", refused.body)
	}
	receipt := read[struct {
		ID        string `json:"receipt_id"`
		Overrides int    `json:"overrides"`
		Buckets   int    `json:"buckets"`
	}](t, w.want(w.send(by, "POST", its+"/erase", map[string]string{"confirm": "mallory"}), http.StatusOK))
	if receipt.Overrides != 1 || receipt.Buckets == 0 {
		t.Errorf("the receipt is %+v", receipt)
	}
	after := read[data](t, w.want(w.send(by, "GET", its+"/data", nil), http.StatusOK))
	if len(after.Overrides) != 0 || len(after.Audit) != 0 {
		t.Errorf("after: %+v", after)
	}
	log := w.want(w.send(by, "GET", "/api/v1/tenants/acme/audit", nil), http.StatusOK).body
	if strings.Contains(log, "mallory") || !strings.Contains(log, receipt.ID) {
		t.Errorf("the log is %s", log)
	}
}

// TestAnErasureMayOutliveTheDeadlineOfRequests erases while another request, which began later, is ended by it.
func TestAnErasureMayOutliveTheDeadlineOfRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *adminapi.Config) { c.Requests.Deadline = 2 * time.Second })
	by := w.person(w.acme, auth.Owner)
	g := newGreedy(w, "violation_minute")
	const its = "/api/v1/tenants/acme/users/mallory"
	erased := make(chan answer, 1)
	go func() { erased <- w.send(by, "POST", its+"/erase", map[string]string{"confirm": "mallory"}) }()
	g.await(1)
	w.want(w.send(by, "GET", its+"/data", nil), http.StatusServiceUnavailable)
	g.end()
	w.want(<-erased, http.StatusOK)
}
