package enforce

import (
	"context"

	"github.com/sluicegate/sluice/internal/rules"
)

// EditStore is a store that applies edits to idle buckets.
//
// A store forgets a bucket ten seconds or more after it is full, by the limit of the bucket's last write. A forgotten
// bucket counts as full. An edit that makes buckets fill later must therefore reach idle buckets before they are
// forgotten.
type EditStore interface {
	// ApplyEdits advances all buckets of the edited rules, with pauses that keep checks fast. One process does the work
	// for all that share the store, and another takes over if it ends. After an error some buckets may keep the old
	// limit, and ApplyEdits can be called again.
	ApplyEdits(ctx context.Context, edits []Edit) error
}

// Edit is a change after which the buckets of a rule fill later than before.
type Edit struct {
	Tenant rules.TenantID
	Rule   rules.RuleID
	// ID identifies the edit among those of the rule, in all processes alike.
	ID string
	// ReadAt is that of BucketCheck.
	ReadAt int64
	// Limit returns the limit of a subject's bucket; ok is false to leave the bucket alone.
	Limit func(subject string) (limit Limit, ok bool)
	// Common is the limit of all subjects if it is the same, else nil. Common applies to buckets whose subject is
	// stored as a digest; without it they are left alone.
	Common *Limit
}

// LimitOf returns the limit to advance a bucket by; hashed subjects have the common one.
func (e *Edit) LimitOf(subject string, hashed bool) (limit Limit, ok bool) {
	if !hashed {
		return e.Limit(subject)
	}
	if e.Common == nil {
		return Limit{}, false
	}
	return *e.Common, true
}
