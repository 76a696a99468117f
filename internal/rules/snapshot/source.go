package snapshot

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

// Source delivers rows to the Watcher.
type Source interface {
	// Read visits pages of one consistent view: every row, including removals, that is newer than its tenant's revision
	// in the map, or all rows without one. Changed Tenants come first.
	//
	// Read also visits empty Rows, whenever the database has answered, because the caller may give up after seconds
	// without a visit.
	Read(ctx context.Context, newerThan map[rules.TenantID]int64, visit func(Rows) error) error
	// Digests returns the source's time at its start, and digests that differ if any row was added, changed or deleted,
	// with or without a new revision.
	Digests(ctx context.Context) (at time.Time, digests map[rules.TenantID]Digest, err error)
}

// Digest stands for all rows of a tenant.
type Digest struct {
	Revision  int64 // the tenant's
	Rows, Sum int64
}

// Rows is a page of rows. Any slice may be empty.
type Rows struct {
	Tenants     []rules.Tenant
	Plans       []rules.Plan
	Rules       []rules.Rule
	Overrides   []rules.Override
	Assignments []rules.Assignment
	Keys        []auth.Key
	Gateways    []rules.Gateway
	Steps       []rules.Step
}
