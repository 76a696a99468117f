package violations

import (
	"context"
	"log/slog"
	"time"
)

// Keeper is a store that needs upkeep.
type Keeper interface {
	// KeepViolations makes partitions for the next days and drops what is older than the retention. If several
	// processes call it, one does the work.
	KeepViolations(ctx context.Context, now time.Time, keep Retention) (Kept, error)
}

// Retention is how long records are kept.
type Retention struct {
	Details time.Duration // violations, in whole days
	Counts  time.Duration // per minute and hour
	Audit   time.Duration // entries of the audit logs, at least 30 days; 0 for ever
	Access  time.Duration // entries of the security log, at least 30 days; 0 for ever
}

// Kept is what an upkeep did.
type Kept struct {
	DaysMade, DaysDropped int
	RowsDropped           int64 // counts, deliveries and others past their retention
}

const (
	upkeepEvery = time.Hour
	upkeepRetry = time.Minute
)

// KeepUp does a store's upkeep at once and then every hour, until ctx ends. After a failure it tries again in a minute;
// nothing recorded is lost meanwhile.
func KeepUp(ctx context.Context, keeper Keeper, keep Retention, log *slog.Logger) {
	for pause := time.Duration(0); wait(ctx, pause); {
		kept, err := keeper.KeepViolations(ctx, time.Now(), keep)
		pause = upkeepEvery
		switch {
		case err != nil && ctx.Err() == nil:
			log.ErrorContext(ctx, "upkeep of violations failed", "error", err)
			pause = upkeepRetry
		case kept != Kept{}:
			log.InfoContext(ctx, "upkeep of violations",
				"days_made", kept.DaysMade, "days_dropped", kept.DaysDropped, "rows_dropped", kept.RowsDropped)
		}
	}
}
