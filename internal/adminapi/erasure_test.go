package adminapi_test

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestAUserIsExportedAndErased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	by := w.person(w.acme, auth.Owner)
	rule := read[struct {
		ID int64 `json:"rule_id,string"`
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
	}
	before := read[data](t, w.exported(by, its+"/data"))
	if len(before.Overrides) != 1 || len(before.Audit) != 1 {
		t.Errorf("before: %+v", before)
	}
	refused := w.want(w.send(by, "POST", its+"/erase", map[string]string{"confirm": "malory"}), http.StatusBadRequest)
	if !strings.Contains(refused.body, "/confirm") {
		t.Errorf("another id is answered with %s", refused.body)
	}
	type erasure struct {
		ID         string     `json:"receipt_id"`
		FinishedAt *time.Time `json:"finished_at"`
		Steps      []struct {
			Name string `json:"name"`
			Rows int    `json:"rows"`
		} `json:"steps"`
	}
	accepted := w.want(w.send(by, "POST", its+"/erase", map[string]string{"confirm": "mallory"}), http.StatusAccepted)
	address := accepted.header.Get("Location")
	begun := read[erasure](t, w.get(by, address))
	if receipt := read[erasure](t, accepted); begun.FinishedAt != nil || receipt.ID != begun.ID {
		t.Errorf("the answer is %+v, and at %s is %+v", receipt, address, begun)
	}
	fill := func(context.Context, rules.TenantID, string) (int64, error) { return 3, nil }
	runner := jobs.New(w.store, []jobs.Kind{w.store.ErasureWork(fill)}, slog.New(slog.DiscardHandler))
	var receipt erasure
	for turn := 0; receipt.FinishedAt == nil && turn < 100; turn++ {
		if err := runner.Round(w.ctx()); err != nil {
			t.Fatal(err)
		}
		runner.Wait()
		receipt = read[erasure](t, w.get(by, address))
	}
	if receipt.FinishedAt == nil || receipt.Steps[1].Name != "overrides" || receipt.Steps[1].Rows != 1 {
		t.Errorf("the receipt is %+v", receipt)
	}
	w.want(w.send(by, "GET", strings.Replace(address, "erased", "raised", 1), nil), http.StatusNotFound)
	after := read[data](t, w.exported(by, its+"/data"))
	if len(after.Overrides) != 0 || len(after.Audit) != 0 {
		t.Errorf("after: %+v", after)
	}
	log := w.get(by, "/api/v1/tenants/acme/audit").body
	if strings.Contains(log, "mallory") || !strings.Contains(log, receipt.ID) {
		t.Errorf("the log is %s", log)
	}
}
