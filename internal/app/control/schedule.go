package control

import (
	"context"
	"log/slog"
	"time"

	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
)

// scheduledAtOnce caps the scheduled changes that this process makes at once, each of another tenant.
const scheduledAtOnce = 4

// scheduledChanges returns what makes due changes of rules and takes them back. A tenant's changes follow one another, so
// many of them delay nobody else's. A change that was claimed by a process that died is claimed again after the lease, and the
// store makes each step once. What is due is decided by the database's clock, as the start of a change that begins at once is.
func scheduledChanges(store *pgstore.Store, log *slog.Logger) *jobs.Runner[rules.ScheduledChange] {
	return jobs.NewRunner(jobs.Queue[rules.ScheduledChange]{
		Claim: func(ctx context.Context, now, leaseEnds time.Time, _, limit int) ([]rules.ScheduledChange, error) {
			at, err := store.DatabaseTime(ctx)
			if err != nil {
				return nil, err
			}
			return store.ClaimScheduled(ctx, at, at.Add(leaseEnds.Sub(now)), limit) // one of each tenant
		},
		Attempt: func(ctx context.Context, due *rules.ScheduledChange, _ time.Time) {
			at, err := store.DatabaseTime(ctx)
			if err == nil {
				err = store.StepScheduled(ctx, due, at)
			}
			if err != nil && ctx.Err() == nil {
				log.WarnContext(ctx, "a scheduled change was not made or taken back", "tenant", due.TenantID, "change", due.ID, "error", err)
			}
		},
		AtOnce: scheduledAtOnce, PerTenant: 1,
		Failing: "scheduled changes are not made", Recovered: "scheduled changes are made again",
	}, log)
}
