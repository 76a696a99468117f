package adminapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluicegate/sluice/internal/httpapi"
)

// freshProof is x-fresh-proof: which requests need a sign-in within auth.FreshFor, because somebody may have found an
// open browser.
type freshProof struct {
	always bool
	// when has, by JSON pointer, the value that demands a fresh session; anyValue: any value there does.
	when map[string]any
}

const anyValue = "any"

func readFreshProof(mark any) (f freshProof, err error) {
	switch mark := mark.(type) {
	case nil:
	case map[string]any:
		f.when = mark
	default:
		f.always = mark == "always"
		if !f.always {
			err = fmt.Errorf("x-fresh-proof is %v, want always, or values by JSON pointer", mark)
		}
	}
	return f, err
}

func (o *operation) wantsFreshProof(body any) bool {
	return o.fresh.always || slices.ContainsFunc(slices.Collect(maps.Keys(o.fresh.when)), func(pointer string) bool {
		value, ok := valueAt(body, pointer)
		return ok && (o.fresh.when[pointer] == anyValue || value == o.fresh.when[pointer])
	})
}

func valueAt(value any, pointer string) (any, bool) {
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		object, _ := value.(map[string]any)
		inner, ok := object[name]
		if !ok {
			return nil, false
		}
		value = inner
	}
	return value, true
}

func (s *surface) requireFreshProof(q *apiRequest) error {
	if q.session == nil || q.session.IsFresh(s.Now()) {
		return nil
	}
	return httpapi.NotFresh.Problem(
		"Sign in again to do this, by POST /api/v1/session/confirm or /api/v1/session/confirm/provider; then send " +
			"the request again.")
}

// requireFactor leaves a person's own account reachable, for enrolment.
func (s *surface) requireFactor(q *apiRequest, rt route) error {
	if q.session == nil || rt.least == anAccount || q.session.HasTwoFactors() {
		return nil
	}
	switch {
	case s.Gate.RequiresSecondFactor(&q.session.Account):
		return httpapi.NeedsFactor.Problem("This installation requires a second factor; set one up on your profile.")
	case q.tenant.Settings.RequireSecondFactor:
		return httpapi.NeedsFactor.Problem("This tenant requires a second factor; set one up on your profile.")
	}
	return nil
}
