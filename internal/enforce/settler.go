package enforce

import (
	"context"

	"github.com/sluicegate/sluice/internal/rules"
)

// Settler is a store whose idle buckets can be settled.
//
// A store forgets a bucket ten seconds or more after it is full, by the limit that the bucket had when it was last written. A
// forgotten bucket counts as full. So an edit that makes buckets fill later must reach idle buckets before they are
// forgotten; other edits need not.
type Settler interface {
	// Settle settles all buckets of the edited rules, as a look does, with pauses that keep checks fast. Of the processes
	// that share the store one does the work while the others wait; if it ends, another takes over. After an error some
	// buckets may not be settled, and Settle can be called again.
	Settle(ctx context.Context, edits []Edit) error
}

// Edit is a change after which the buckets of a rule fill later than before.
type Edit struct {
	Tenant   rules.TenantID
	IsSpread bool // the tenant's buckets have shards
	Rule     rules.RuleID
	// ID tells the edit from others of the rule, in all processes alike.
	ID string
	// ReadAt is as in BucketCheck.
	ReadAt int64
	// Limit returns the limit of a subject's bucket; ok is false if the bucket is to be left alone.
	Limit func(subject string) (limit Limit, ok bool)
	// Common is the limit of all subjects if they have the same, else nil. Buckets whose subject the store only knows by a
	// digest are settled to it, or left alone.
	Common *Limit
}

// LimitOf returns the limit to settle a bucket to; hashed subjects have the common one.
func (e *Edit) LimitOf(subject string, hashed bool) (limit Limit, ok bool) {
	if !hashed {
		return e.Limit(subject)
	}
	if e.Common == nil {
		return Limit{}, false
	}
	return *e.Common, true
}
