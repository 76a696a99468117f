package enforce

import (
	"context"

	"github.com/sluicegate/sluice/internal/rules"
)

// Settler is a store whose idle buckets can be settled.
//
// A store forgets a bucket ten seconds after it is full, and reckons when that is by the limit that the
// bucket had when it was last written. An edit that makes buckets fill later must therefore reach those
// that nobody asks for, before they are forgotten: a forgotten bucket is a full one. An edit that lets
// them fill as early as before, or earlier, need not.
type Settler interface {
	// Settle settles all buckets of the edited rules, as a look with a cost of 0 does. It takes its time, so
	// as not to slow checks. Of processes that share the store one does the work while the others wait; if
	// that one ends, another takes over. An error means that some buckets may not have been settled, and that
	// Settle can be called again.
	Settle(ctx context.Context, edits []Edit) error
}

// Edit is a change after which the buckets of a rule fill later than before.
type Edit struct {
	Tenant rules.TenantID
	Rule   rules.RuleID
	// ID tells the edit from others of the rule, and is the same in all processes.
	ID string
	// ReadAt is as in Ask.
	ReadAt int64
	// Limit returns the present limit of a subject's bucket; ok is false if the bucket is to be left alone.
	Limit func(subject string) (limit Limit, ok bool)
	// Common is the limit of all subjects, if they have the same; else nil. Buckets whose subject the store keeps
	// only a digest of are settled to it, or left alone.
	Common *Limit
}

// LimitOf returns the limit to settle a bucket to. A hashed subject is not known.
func (e *Edit) LimitOf(subject string, hashed bool) (limit Limit, ok bool) {
	if !hashed {
		return e.Limit(subject)
	}
	if e.Common == nil {
		return Limit{}, false
	}
	return *e.Common, true
}
