package checkjson

import (
	"strconv"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// OnePlan returns the pointer to the plan in a body of one check.
func OnePlan(int) string { return "/plan" }

// BatchPlan returns the pointer to the plan of the i-th check in a batch.
func BatchPlan(i int) string { return "/checks/" + strconv.Itoa(i) + "/plan" }

// ChoosePlans refuses an unknown plan, because another one would hide the caller's mistake.
func ChoosePlans(tenant *snapshot.Tenant, checks []enforce.Check, pointer func(i int) string) error {
	var unknown []httpapi.FieldError
	for i := range checks {
		unknown = choosePlan(tenant, &checks[i], pointer, i, unknown)
	}
	return httpapi.BodyProblem(unknown)
}

// ChooseLeasePlans is ChoosePlans for a request for leases.
func ChooseLeasePlans(tenant *snapshot.Tenant, checks []enforce.LesseeCheck) error {
	var unknown []httpapi.FieldError
	for i := range checks {
		unknown = choosePlan(tenant, &checks[i].Check, leasePlan, i, unknown)
	}
	return httpapi.BodyProblem(unknown)
}

func choosePlan(
	tenant *snapshot.Tenant, check *enforce.Check, pointer func(i int) string, i int, unknown []httpapi.FieldError,
) []httpapi.FieldError {
	plan, err := tenant.PlanOf(&check.Request)
	if err != nil {
		unknown = append(unknown, httpapi.FieldError{
			Pointer: pointer(i),
			Detail:  "is not a plan of this tenant; leave it out to use the user's own",
		})
	}
	check.EffectivePlan = plan
	return unknown
}

func leasePlan(i int) string { return "/checks/" + strconv.Itoa(i) + "/check/plan" }
