package checkjson

import (
	"strconv"
	"strings"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/snapshot"
)

// OnePlan says where the plan stands in a body of one check.
func OnePlan(int) string { return "/plan" }

// BatchPlan says where the plan of the i-th check stands in the body of a batch.
func BatchPlan(i int) string { return "/checks/" + strconv.Itoa(i) + "/plan" }

// ChoosePlans sets the plan that each check is judged on. It refuses a plan that does not exist: judging the check on
// another one would hide the caller's mistake. It also refuses to reserve where buckets are spread.
func ChoosePlans(tenant *snapshot.Tenant, checks []enforce.Check, pointer func(i int) string) error {
	var unknown []httpapi.FieldError
	for i := range checks {
		unknown = choosePlan(tenant, &checks[i], pointer, i, unknown)
	}
	return httpapi.BodyProblem(unknown)
}

// ChooseLeasePlans is ChoosePlans for the checks of a request for leases.
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
	if check.Reserve && tenant.Tenant.Spread {
		unknown = append(unknown, httpapi.FieldError{
			Pointer: strings.TrimSuffix(pointer(i), "plan") + "reserve",
			Detail:  "is not possible in a tenant whose buckets are spread; leave it out",
		})
	}
	return unknown
}

// leasePlan says where the plan of the i-th check stands in a request for leases.
func leasePlan(i int) string { return "/checks/" + strconv.Itoa(i) + "/check/plan" }
