package traffic

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// ErrRefused means that a Sink can never store a block. Nothing was written.
var ErrRefused = errors.New("refused")

// Sink is where the Recorder writes.
type Sink interface {
	// WriteTraffic writes blocks, all or none. A block whose writer and number were written before is a success without
	// effect. Blocks of tenants that have switched recording off meanwhile are left out.
	WriteTraffic(ctx context.Context, blocks []Block) error
	// WriteUserMonths adds to what was counted before. A batch whose writer and number were written before is a success
	// without effect. Tenants that have switched recording off meanwhile are left out.
	WriteUserMonths(ctx context.Context, writer string, number int64, counts []UserMonth) error
	// TrafficUsage returns what tenants use, and what all tenants use together.
	TrafficUsage(ctx context.Context, of []rules.TenantID) (usage []Usage, all int64, tenants int, err error)
}

// Range selects blocks of one tenant that have checks from Since on and before Until.
type Range struct {
	Since, Until time.Time
	// LeastStratum leaves out the strata below it, and MostStratum those above it; 0 leaves out none.
	LeastStratum, MostStratum int
}

// Summary describes what a range has.
type Summary struct {
	Blocks  int
	Level   int // the highest of its blocks
	Strata  [Strata]int64
	Counts  // in the range's blocks
	Checks  int64
	Bytes   int64
	Oldest  time.Time // of the range; zero if it has nothing
	Newest  time.Time
	Minutes int64 // that have blocks
}

// ChecksFrom returns how many checks the sample of a level has.
func (s *Summary) ChecksFrom(level int) (checks int64) {
	for _, n := range s.Strata[level:] {
		checks += n
	}
	return checks
}

// Store reads recorded traffic of one tenant.
type Store interface {
	// Blocks returns the blocks of a range in order of First, in bounded memory. It ends after an error.
	Blocks(ctx context.Context, tenant rules.TenantID, of Range) iter.Seq2[Block, error]
	// BlocksOfUser returns the latest blocks of a range with a user that have so many checks together, in order of First, and since
	// when there are no others. That is the range's start if all have fewer. A store looks at a bounded number of blocks, so it may be later.
	BlocksOfUser(ctx context.Context, tenant rules.TenantID, user string, of Range, checks int64) (since time.Time, blocks iter.Seq2[Block, error], err error)
	// Latest returns when the latest blocks of a range begin that have so many checks together, or at whose time so many were seen;
	// the range's start if all have fewer. A store looks at a bounded number of blocks, so it may be later.
	Latest(ctx context.Context, tenant rules.TenantID, of Range, checks, seen int64) (time.Time, error)
	// Summary describes the blocks of a range without reading them.
	Summary(ctx context.Context, tenant rules.TenantID, of Range) (Summary, error)
	// UsageOf returns what a tenant has recorded.
	UsageOf(ctx context.Context, tenant rules.TenantID) (Usage, error)
}
