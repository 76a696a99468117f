package rules

import (
	"context"
	"errors"
)

// ErrNotFound is what a store answers for a row that does not exist or belongs to another tenant;
// the two cannot be told apart.
var ErrNotFound = errors.New("not found")

// Source is where the Watcher reads from.
type Source interface {
	// Read visits every row that is newer than the given revision of its tenant, removals
	// included, in pages of one consistent view of the database. A tenant that is missing from the
	// map is read whole, so Read with a nil map reads everything. The Tenants of all that changed
	// come first. Read stops at the first error of visit and returns it.
	Read(ctx context.Context, newerThan map[TenantID]int64, visit func(Rows) error) error
}

// Rows is one page of what a check depends on. Any of its slices may be empty.
type Rows struct {
	Tenants     []Tenant
	Plans       []Plan
	Rules       []Rule
	Overrides   []Override
	Assignments []Assignment
	Keys        []Key
}
