package pgstore_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/adapt"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func (w *world) slow(t *testing.T) {
	t.Helper()
	report := adapt.BackendReport{
		Tenant: w.ours.ID,
		Report: adapt.Report{Backend: "search", Seen: adapt.Seen{Requests: 100}},
	}
	report.Latency[adapt.Bucket(time.Second)] = 100
	if err := w.WriteReports(t.Context(), []adapt.BackendReport{report}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) round(t *testing.T) map[rules.RuleID]int {
	t.Helper()
	rows := snapshot.New(w.poll(t, nil))
	loop := adapt.NewLoop(w.Store, func() *snapshot.Snapshot { return rows }, slog.New(slog.DiscardHandler))
	exec(t, w.url, "DELETE FROM leader") // as if the process before had died long ago
	if err := loop.Round(t.Context()); err != nil {
		t.Fatal(err)
	}
	shares := map[rules.RuleID]int{}
	for _, step := range w.poll(t, nil).Steps {
		if step.EndsAt.After(time.Now()) {
			shares[step.RuleID] = step.Percent
		}
	}
	return shares
}

func TestTheControlLoopStepsRulesThatCanHelpTheBackend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	live, shadow, off := w.adapting(t, "live"), w.adapting(t, "shadow"), w.adapting(t, "off")
	shadow.Mode, off.Active = rules.ModeShadow, false
	must(w.UpdateRule(t.Context(), shadow))(t)
	must(w.UpdateRule(t.Context(), off))(t)
	if shares := w.round(t); len(shares) != 0 {
		t.Errorf("without reports the shares are %v", shares)
	}
	w.slow(t)
	if shares := w.round(t); len(shares) != 1 || shares[live.ID] != 70 {
		t.Errorf("the shares are %v, want 70 %% of rule %d alone", shares, live.ID)
	}
	if shares := w.round(t); shares[live.ID] != 70 {
		t.Errorf("another process steps at once again, to %v", shares)
	}

	exec(t, w.url, "UPDATE rate_limit_step SET stepped_at = stepped_at - interval '1 minute' WHERE tenant_id = $1",
		w.ours.ID)
	if shares := w.round(t); shares[live.ID] != 49 {
		t.Errorf("a minute later the share is %v", shares)
	}

	before := w.polledStep(t, live)
	exec(t, w.url, "DELETE FROM backend_report")
	exec(t, w.url, "UPDATE rate_limit_step SET ends_at = clock_timestamp() + interval '10 seconds' WHERE tenant_id = "+
		"$1", w.ours.ID)
	w.round(t)
	if after := w.polledStep(t, live); !after.InForceSince.Equal(before.InForceSince) {
		t.Errorf("without reports a step was renewed: %+v", after)
	}
	w.slow(t)
	w.round(t)
	if after := w.polledStep(t, live); !after.InForceSince.After(before.InForceSince) || after.Percent != 49 {
		t.Errorf("with reports a step was not renewed: %+v", after)
	}
	exec(t, w.url, "DELETE FROM backend_report")
}

func TestTheControlLoopLeavesATenantInShadowAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.adapting(t, "a")
	tenant := must(w.Tenant(t.Context(), w.ours.ID))(t)
	tenant.InShadow = true
	must(w.UpdateTenant(t.Context(), tenant))(t)
	w.slow(t)
	if shares := w.round(t); len(shares) != 0 {
		t.Errorf("the shares are %v", shares)
	}
	exec(t, w.url, "DELETE FROM backend_report")
}
