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

// Sink stores blocks and counts.
type Sink interface {
	// WriteTraffic writes blocks, all or none. A block whose writer and number are stored already succeeds without
	// effect. Blocks of tenants that have turned recording off are skipped.
	WriteTraffic(ctx context.Context, blocks []Block) error
	// WriteUserMonths adds to the stored counts. A batch whose writer and number are stored already succeeds without
	// effect. Tenants that have turned recording off are skipped.
	WriteUserMonths(ctx context.Context, writer string, number int64, counts []UserMonth) error
	// TrafficUsage returns the usage of these tenants, the bytes of all tenants, and their number.
	TrafficUsage(ctx context.Context, of []rules.TenantID) (usage []Usage, all int64, tenants int, err error)
}

// Range selects blocks of a tenant with checks from Since until before Until.
type Range struct {
	Since, Until time.Time
	// LeastStratum and MostStratum bound the strata; 0 means no bound.
	LeastStratum, MostStratum int
}

// Summary describes a range.
type Summary struct {
	Blocks  int
	Level   int // the highest of its blocks
	Strata  [Strata]int64
	Counts  // of the range's blocks
	Checks  int64
	Bytes   int64
	Oldest  time.Time // in the range; zero if it is empty
	Newest  time.Time
	Minutes int64 // with blocks
}

// ChecksFrom returns the number of checks in a level's sample.
func (s *Summary) ChecksFrom(level int) (checks int64) {
	for _, n := range s.Strata[level:] {
		checks += n
	}
	return checks
}

// Store reads the recorded traffic of one tenant.
type Store interface {
	// Blocks iterates over a range in order of First, in bounded memory. Ends after an error.
	Blocks(ctx context.Context, tenant rules.TenantID, of Range) iter.Seq2[Block, error]
	// BlocksOfUser returns the latest blocks with a user that together have this many checks, in order of First, and
	// the time since which they are complete: the range's start, or later if there are more. A store reads a bounded
	// number of blocks.
	BlocksOfUser(ctx context.Context, tenant rules.TenantID, user string, of Range, checks int64) (since time.Time,
		blocks iter.Seq2[Block, error], err error)
	// Latest returns the beginning of the latest blocks that together have this many checks, or during which this many
	// were seen; the range's start if there are fewer. A store reads a bounded number of blocks, so the time may be
	// later.
	Latest(ctx context.Context, tenant rules.TenantID, of Range, checks, seen int64) (time.Time, error)
	Summary(ctx context.Context, tenant rules.TenantID, of Range) (Summary, error)
	UsageOf(ctx context.Context, tenant rules.TenantID) (Usage, error)
}
