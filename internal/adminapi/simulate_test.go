package adminapi_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/sluicegate/sluice/internal/auth"
)

func TestTheEditorsPictureIsASimulation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	viewer := w.person(w.acme, auth.Viewer)
	simulate := func(cost, atMs float64, burst int) answer {
		return w.send(viewer, "POST", "/api/v1/tenants/acme/simulate", map[string]any{
			"rules": []any{map[string]any{
				"key_pattern": "user:{user_id}", "rate_per_second": 1, "burst_capacity": burst,
			}},
			"arrivals": []any{map[string]any{"at_ms": 0}, map[string]any{"at_ms": atMs, "cost": cost}},
		})
	}
	got := read[struct {
		FirstDenialMs *float64 `json:"first_denial_ms"`
		LongestWaitMs float64  `json:"longest_wait_ms"`
		Decisions     []struct{ Allowed bool }
		Tiers         []struct{ Levels []struct{ Tokens float64 } }
	}](t, w.want(simulate(2, 500, 2), http.StatusOK))
	if got.FirstDenialMs == nil || *got.FirstDenialMs != 500 || got.LongestWaitMs != 500 || len(got.Decisions) != 2 ||
		!got.Decisions[0].Allowed || got.Decisions[1].Allowed || got.Tiers[0].Levels[0].Tokens != 2 {
		t.Errorf("the simulation is %+v", got)
	}
	for want, wrong := range map[string]answer{
		"/arrivals/1/cost":        simulate(1e10, 0, 2),
		"/arrivals/1/at_ms":       simulate(1, 1e12, 2),
		"/rules/0/burst_capacity": simulate(1, 1, 0),
	} {
		if fields := pointersOf(t, w.want(wrong, http.StatusBadRequest)); !slices.Equal(fields, []string{want}) {
			t.Errorf("the mistake is about %q, want %q", fields, want)
		}
	}
}
