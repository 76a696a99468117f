package adminapi

import (
	"errors"
	"slices"
	"strings"

	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/rules"
)

type refusals struct {
	wrong []httpapi.FieldError // in the body
	lost  []httpapi.FieldError // rules that others changed
	taken []httpapi.FieldError // parts that clash with what is stored
}

func (r *refusals) add(pointer string, err error) {
	var fields rules.FieldErrors
	refuse := func(of *[]httpapi.FieldError, detail string) {
		*of = append(*of, httpapi.FieldError{Pointer: pointer, Detail: detail})
	}
	switch {
	case errors.As(err, &fields):
		r.wrong = append(r.wrong, pointers(pointer, fields)...)
	case errors.Is(err, rules.ErrExists):
		refuse(&r.taken, "is not empty: a rule with this pattern, plan and name exists")
	case errors.Is(err, rules.ErrScheduledOverlap):
		refuse(&r.taken, "has another change that is scheduled for a part of this time")
	case errors.Is(err, rules.ErrNotFound):
		refuse(&r.lost, "was removed by somebody else")
	default:
		refuse(&r.lost, "was changed by somebody else")
	}
}

// problem adds lost to the answer for rules that others changed, and answers clashes with taken.
func (r *refusals) problem(lost, taken string) error {
	for _, fields := range [][]httpapi.FieldError{r.wrong, r.lost, r.taken} {
		slices.SortStableFunc(fields, func(a, b httpapi.FieldError) int {
			return strings.Compare(a.Pointer, b.Pointer)
		})
	}
	const most = httpapi.MaxFieldErrors
	switch {
	case len(r.wrong) > 0:
		return httpapi.BodyProblem(r.wrong)
	case len(r.lost) > 0:
		return httpapi.Changed.Problem(readAgain+" "+lost, r.lost[:min(len(r.lost), most)]...)
	case len(r.taken) > 0:
		return httpapi.Conflict.Problem(taken, r.taken[:min(len(r.taken), most)]...)
	}
	return nil
}
