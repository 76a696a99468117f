package enforce

import (
	"context"

	"github.com/sluicegate/sluice/internal/rules"
)

// EditStore is a store that applies edits to idle buckets.
//
// A full bucket is forgotten after ten seconds or more, by the limit of its last write, and then counts as full. An
// edit that makes buckets fill later must reach them before.
type EditStore interface {
	// ApplyEdits advances all buckets of the edited rules, with pauses for checks, in one process at a time.
	ApplyEdits(ctx context.Context, edits []Edit) error
}

// Edit makes the buckets of a rule fill later.
type Edit struct {
	Tenant rules.TenantID
	Rule   rules.RuleID
	ID     string
	ReadAt int64
	Limit  func(subject string) (limit Limit, ok bool)
	// Common is the limit of all subjects, or nil; only it reaches subjects stored as digests.
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
