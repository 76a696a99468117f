package app

import (
	"context"
	"log/slog"
	"sync"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/violations"
	"github.com/sluicegate/sluice/internal/webhook"
)

// upkeep runs the jobs of the control plane until ctx ends: it creates and drops partitions, raises alerts and delivers
// them. Any number of processes may run it at once.
func upkeep(ctx context.Context, cfg config.Config, store *pgstore.Store, sender *webhook.Sender, log *slog.Logger) {
	keep := violations.Retention{Details: cfg.ViolationRetention, Counts: cfg.CountRetention}
	var work sync.WaitGroup
	work.Go(func() { violations.KeepUp(ctx, store, keep, log) })
	work.Go(func() { violations.WatchAlerts(ctx, store, sender, log) })
	work.Wait()
}
