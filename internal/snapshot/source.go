package snapshot

import (
	"context"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/rules"
)

// Source is where the Watcher reads from.
type Source interface {
	// Read visits every row that is newer than the given revision of its tenant, removals
	// included, in pages of one consistent view of the database. A tenant that is missing from the
	// map is read whole, so Read with a nil map reads everything. The Tenants of all that changed
	// come first. Read stops at the first error of visit and returns it.
	//
	// A visit is a sign of life as well, and who reads may give up when none comes for seconds. So
	// visit is called, if need be with empty Rows, whenever the database has answered.
	Read(ctx context.Context, newerThan map[rules.TenantID]int64, visit func(Rows) error) error
}

// Rows is one page of what a check depends on. Any of its slices may be empty.
type Rows struct {
	// At is the database's time when it began to read everything. Only the first page of such a read has it.
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
