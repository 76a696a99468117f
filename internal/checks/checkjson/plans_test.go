package checkjson

import (
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

func TestTheNamedPlanStaysBesideTheEffectiveOne(t *testing.T) {
	t.Parallel()
	tenant := snapshot.New(snapshot.Rows{
		Tenants: []rules.Tenant{{
			ID: 1, Slug: "acme", Settings: rules.DefaultSettings(), DefaultPlan: "free",
			Revision: 1,
		}},
		Plans: []rules.Plan{{TenantID: 1, Name: "free", Revision: 1}, {TenantID: 1, Name: "pro", Revision: 1}},
	}).Tenant(1)
	checks := []enforce.Check{{}, {Request: rules.Request{Plan: "pro"}}}
	if err := ChoosePlans(tenant, checks, BatchPlan); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ named, effective string }{{"", "free"}, {"pro", "pro"}} {
		if got := checks[i]; got.Plan != want.named || got.EffectivePlan != want.effective {
			t.Errorf("check %d names %q and is judged on %q, want %+v", i, got.Plan, got.EffectivePlan, want)
		}
	}
}
