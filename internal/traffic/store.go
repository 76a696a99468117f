package traffic

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// ErrRefused means that nothing was written, because a Sink can never store a block.
var ErrRefused = errors.New("refused")

// Sink stores blocks and counts.
type Sink interface {
	// WriteTraffic writes blocks, all or none. A stored writer and number succeeds without effect, like blocks of
	// tenants that have turned recording off.
	WriteTraffic(ctx context.Context, blocks []Block) error
	// WriteUserMonths adds to the stored counts. A stored writer and number succeeds without effect, and tenants that
	// have turned recording off are skipped.
	WriteUserMonths(ctx context.Context, writer string, number int64, counts []UserMonth) error
	TrafficUsage(ctx context.Context, of []rules.TenantID) (usage []Usage, all int64, tenants int, err error)
}

// Range selects a tenant's blocks with checks from Since until before Until.
type Range struct {
	Since, Until              time.Time
	LeastStratum, MostStratum int // 0: no bound
}

// Summary describes a Range.
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
	// Blocks iterates in order of First, in bounded memory, and ends after an error.
	Blocks(ctx context.Context, tenant rules.TenantID, of Range) iter.Seq2[Block, error]
	// BlocksOfUser returns the latest blocks with so many checks of a user, in order of First, and the time since which
	// they are complete. A store reads a bounded number of blocks.
	BlocksOfUser(ctx context.Context, tenant rules.TenantID, user string, of Range, checks int64) (since time.Time,
		blocks iter.Seq2[Block, error], err error)
	// Latest returns the beginning of the latest blocks with so many checks, or during which so many were seen; the
	// range's start if there are fewer. A store reads a bounded number of blocks, so the time may be later.
	Latest(ctx context.Context, tenant rules.TenantID, of Range, checks, seen int64) (time.Time, error)
	Summary(ctx context.Context, tenant rules.TenantID, of Range) (Summary, error)
	UsageOf(ctx context.Context, tenant rules.TenantID) (Usage, error)
}
