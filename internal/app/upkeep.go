package app

import (
	"context"
	"log/slog"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/violations"
)

// Upkeep is what the control plane does by itself, until ctx ends: it makes and drops partitions. Any
// number of processes may do so at once.
func Upkeep(ctx context.Context, cfg config.Config, store *pgstore.Store, log *slog.Logger) {
	violations.KeepUp(ctx, store, violations.Retention{Details: cfg.ViolationRetention, Counts: cfg.CountRetention}, log)
}
