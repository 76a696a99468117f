package snapshot

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

// Source delivers rows to the Watcher.
type Source interface {
	// Read visits every row, including removals, that is newer than the given revision of its tenant, in pages of one
	// consistent view. A tenant that is missing from the map is read in full; a nil map reads everything. Changed
	// Tenants come first. Read returns the first error of visit.
	//
	// The caller may give up when no visit happens for seconds. Read therefore calls visit, with empty Rows if need be,
	// whenever the database has answered.
	Read(ctx context.Context, newerThan map[rules.TenantID]int64, visit func(Rows) error) error
	// Digests returns a digest of each tenant's rows in one consistent view, and the source's time at its start. Two
	// equal ones mean that no row was added, changed or deleted in between, with or without a new revision.
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
