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
}

// Rows is a page of rows. Any slice may be empty.
type Rows struct {
	// At is the database's time at the start of a full read, on its first page only.
	At          time.Time
	Tenants     []rules.Tenant
	Plans       []rules.Plan
	Rules       []rules.Rule
	Overrides   []rules.Override
	Assignments []rules.Assignment
	Keys        []auth.Key
	Gateways    []rules.Gateway
	Steps       []rules.Step
}
