package replay

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/traffic"
)

// Source provides the data of a replay.
type Source interface {
	traffic.Store
	History(ctx context.Context, tenant rules.TenantID, since time.Time) (*History, error)
}

// Load reads all input of a replay but its blocks, which are read while it runs.
func Load(
	ctx context.Context, source Source, tenant rules.TenantID, since, until time.Time, candidate *Candidate,
	draw traffic.Draw,
) (*Input, error) {
	in := &Input{Tenant: tenant, Since: since, Until: until, Candidate: candidate, Draw: draw}
	of := traffic.Range{Since: since, Until: until}
	sum, err := source.Summary(ctx, tenant, of)
	if err != nil {
		return nil, err
	}
	if sum.Blocks == 0 {
		return nil, ErrNothing
	}
	if in.History, err = source.History(ctx, tenant, since.Add(-mostWarm)); err != nil {
		return nil, err
	}
	in.Level, in.Counts = sum.Level, sum.Counts
	of.Since = since.Add(-Warm(in))
	if earlier, err := source.Summary(ctx, tenant, traffic.Range{Since: of.Since, Until: since}); err != nil {
		return nil, err
	} else if earlier.Level > in.Level { // the sample of the range is not whole before it
		in.Level = min(earlier.Level, traffic.Strata-1)
	}
	in.Level = min(in.Level, traffic.Strata-1)
	in.Blocks = source.Blocks(ctx, tenant, of)
	if sum.Oldest.Sub(since) > 10*time.Minute {
		in.RecordedSince = sum.Oldest
	}
	if in.History.KnownSince.After(since) {
		in.RulesKnownSince = in.History.KnownSince
	}
	in.Notes = notes(&sum)
	return in, nil
}

func notes(sum *traffic.Summary) (notes []string) {
	if sum.LeftOut > 0 {
		notes = append(notes, fmt.Sprintf("%d checks reserve tokens, and are left out.", sum.LeftOut))
	}
	if sum.Dropped > 0 {
		notes = append(notes, fmt.Sprintf("%d checks were not recorded, for lack of room.", sum.Dropped))
	}
	return notes
}

// Slice returns a sequence of blocks.
func Slice(blocks []traffic.Block) iter.Seq2[traffic.Block, error] {
	return func(yield func(traffic.Block, error) bool) {
		for _, b := range blocks {
			if !yield(b, nil) {
				return
			}
		}
	}
}
