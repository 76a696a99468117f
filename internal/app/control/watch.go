package control

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
)

const watchInterval = time.Minute

type databaseWatch struct {
	store *pgstore.Store
	log   *slog.Logger
	uses  atomic.Pointer[map[rules.Thing]rules.CapacityUse]
	lags  atomic.Pointer[map[string]time.Duration]
}

func (w *databaseWatch) run(ctx context.Context) {
	panics.Every(ctx, watchInterval, func() {
		uses, err := w.store.CapacityUses(ctx)
		switch {
		case err == nil:
			w.uses.Store(&uses)
		case ctx.Err() == nil:
			w.log.WarnContext(ctx, "the use of capacity was not counted; the next round tries again", "error", err)
		}
		periodic, err := w.store.PeriodicJobs(ctx)
		switch {
		case err == nil:
			lags := map[string]time.Duration{}
			for i := range periodic {
				lags[periodic[i].Kind] = periodic[i].Lag
			}
			w.lags.Store(&lags)
		case ctx.Err() == nil:
			w.log.WarnContext(ctx, "the lag of periodic jobs was not read; the next round tries again", "error", err)
		}
	})
}

func (w *databaseWatch) capacityUses() map[rules.Thing]rules.CapacityUse {
	if uses := w.uses.Load(); uses != nil {
		return *uses
	}
	return nil
}

func (w *databaseWatch) jobLags() map[string]time.Duration {
	if lags := w.lags.Load(); lags != nil {
		return *lags
	}
	return nil
}
