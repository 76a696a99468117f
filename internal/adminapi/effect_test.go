package adminapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/traffic"
)

type effect struct {
	IsRecording bool `json:"is_recording"`
	Since       *time.Time
	NewlyDenied struct{ Value float64 } `json:"newly_denied"`
	Users       []struct {
		UserID      string `json:"user_id"`
		NewlyDenied int64  `json:"newly_denied"`
	}
}

func TestAnEffectIsWhatTheLimitWouldHaveDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	viewer, owner := w.person(w.acme, auth.Viewer), w.person(w.acme, auth.Owner)
	const path = "/api/v1/tenants/acme/effect"
	question := map[string]any{"rules": []any{map[string]any{"key_pattern": "user:{user_id}", "name": "tight", "rate_per_second": 0.001, "burst_capacity": 2}}}
	if got := read[effect](t, w.want(w.send(viewer, "POST", path, question), http.StatusOK)); got.IsRecording || got.Since != nil {
		t.Errorf("nothing is recorded, and the effect is %+v", got)
	}
	tenant := w.want(w.send(owner, "GET", "/api/v1/tenants/acme", nil), http.StatusOK)
	w.want(w.send(owner, "PATCH", "/api/v1/tenants/acme", map[string]any{"settings": map[string]any{"record_days": 7}}, "If-Match", tenant.header.Get("ETag")), http.StatusOK)
	block := traffic.Block{Tenant: w.acme.ID, Writer: "w", Number: 1, First: time.Now().Add(-time.Minute), Last: time.Now().Add(-time.Minute)}
	block.SetRuns([]traffic.Run{{UserID: "42", Endpoint: "/a", Cost: 1_000_000, Times: []uint32{0, 1, 2, 3, 4}}})
	if err := w.store.WriteTraffic(w.ctx(), []traffic.Block{block}); err != nil {
		t.Fatal(err)
	}
	got := read[effect](t, w.want(w.send(viewer, "POST", path, question), http.StatusOK))
	if !got.IsRecording || got.Since == nil || got.NewlyDenied.Value != 3 || len(got.Users) != 1 || got.Users[0].UserID != "42" {
		t.Errorf("the effect is %+v", got)
	}
	w.want(w.send(w.person(w.other, auth.Owner), "POST", path, question), http.StatusNotFound)
	question["rules"].([]any)[0].(map[string]any)["burst_capacity"] = 0
	w.want(w.send(viewer, "POST", path, question), http.StatusBadRequest)
}
