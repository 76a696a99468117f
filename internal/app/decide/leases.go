package decide

import (
	"context"
	"log/slog"

	"github.com/sluicegate/sluice/internal/enforce/lease"
	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
)

// turnLeases leases tokens while every live process knows that buckets lend, because an older release cannot read such
// a bucket.
func turnLeases(ctx context.Context, leases *lease.Buckets,
	everyone func(ctx context.Context, word string) (bool, error), log *slog.Logger,
) {
	panics.Every(ctx, fleet.Interval, func() {
		switch all, err := everyone(ctx, rules.WordLeases); {
		case err != nil:
			log.DebugContext(ctx, "it is unknown whether every process knows leases", "error", err)
		case all != leases.IsOn():
			leases.TurnOn(all)
			if all {
				log.InfoContext(ctx, "tokens of busy buckets are leased: every process knows leases")
			} else {
				log.InfoContext(ctx, "no tokens are leased while a process of an older release runs")
			}
		}
	})
}
