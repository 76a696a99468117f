package checkapi_test

import (
	"testing"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
)

func TestASpreadTenantCannotReserve(t *testing.T) {
	t.Parallel()
	h := newHarness(t, rules.DefaultSettings(), limit(t, 12, "user:{user_id}", 0.001, 50))
	h.snapshot = h.snapshot.With(snapshot.Rows{Tenants: []rules.Tenant{
		{ID: 1, Slug: "one", DefaultPlan: "free", Settings: rules.DefaultSettings(), Spread: true, Revision: 2},
	}})
	h.wantRefused(h.post("/v1/check", `{"user_id":"42","reserve":true}`), "/reserve")
	h.wantRefused(h.post("/v1/check/batch", `{"checks":[{"user_id":"42"},{"user_id":"42","reserve":true}]}`), "/checks/1/reserve")
	if w := h.post("/v1/check", `{"user_id":"42"}`); w.Code != 200 {
		t.Errorf("a check that does not reserve: %d %s", w.Code, w.Body)
	}
}
