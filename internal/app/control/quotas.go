package control

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
)

// quotaInterval is how often it is counted how near tenants are to their quotas.
const quotaInterval = time.Minute

// quotaWatch knows how many tenants are near their quotas, for metrics.
type quotaWatch struct {
	store *pgstore.Store
	log   *slog.Logger
	uses  atomic.Pointer[map[rules.Thing]rules.QuotaUse]
}

// run counts until ctx ends. While the database is away the last counts stay.
func (w *quotaWatch) run(ctx context.Context) {
	next := time.NewTicker(quotaInterval)
	defer next.Stop()
	for {
		uses, err := w.store.QuotaUses(ctx)
		switch {
		case err == nil:
			w.uses.Store(&uses)
		case ctx.Err() == nil:
			w.log.WarnContext(ctx, "the use of quotas was not counted; the next round tries again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
	}
}

// latest returns nil before the first count.
func (w *quotaWatch) latest() map[rules.Thing]rules.QuotaUse {
	if uses := w.uses.Load(); uses != nil {
		return *uses
	}
	return nil
}
