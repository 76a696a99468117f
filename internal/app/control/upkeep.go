package control

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
	"github.com/sluicegate/sluice/internal/webhook"
)

// upkeep runs the jobs of the control plane until ctx ends: it creates and drops partitions, raises alerts and delivers
// them, sends audit logs, runs replays, makes scheduled changes, and removes expired rules. Any number of processes may run it at once.
func upkeep(ctx context.Context, cfg config.Config, store *pgstore.Store, sender *webhook.Sender, log *slog.Logger) {
	keep := violations.Retention{Details: cfg.ViolationRetention, Counts: cfg.CountRetention, Audit: cfg.AuditRetention, Access: cfg.SecurityLogRetention}
	var work sync.WaitGroup
	work.Go(func() { violations.KeepUp(ctx, store, keep, log) })
	work.Go(func() { violations.WatchAlerts(ctx, store, sender, log) })
	work.Go(func() { replay.NewRunner(store, planNames(store), log).Run(ctx) })
	work.Go(func() { scheduledChanges(store, log).Run(ctx) })
	work.Go(func() { auth.NewAuditCourier(store, sender, log).Run(ctx) })
	work.Go(func() { prune(ctx, store, log) })
	work.Go(func() { sealSecrets(ctx, store, log) })
	work.Go(func() { removeExpired(ctx, store, log) })
	work.Go(func() { eraseTenants(ctx, store, cfg.TenantGrace, log) })
	work.Wait()
}

// planNames returns a function that reads the names of a tenant's plans.
func planNames(store *pgstore.Store) func(context.Context, rules.TenantID) ([]string, error) {
	return func(ctx context.Context, tenant rules.TenantID) (names []string, err error) {
		const page = 500
		for after := ""; ; after = names[len(names)-1] {
			plans, err := store.Plans(ctx, tenant, after, page)
			if err != nil {
				return nil, err
			}
			for i := range plans {
				names = append(names, plans[i].Name)
			}
			if len(plans) < page {
				return names, nil
			}
		}
	}
}

// eraseInterval is how often removed tenants are looked for.
const eraseInterval = 10 * time.Minute

// eraseTenants erases what is stored of tenants whose grace period is over.
func eraseTenants(ctx context.Context, store *pgstore.Store, grace time.Duration, log *slog.Logger) {
	next := time.NewTicker(eraseInterval)
	defer next.Stop()
	for {
		erased, err := store.EraseRemovedTenants(ctx, time.Now().Add(-grace))
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "a removed tenant was not erased wholly; the next round goes on", "error", err)
		}
		if erased > 0 {
			log.InfoContext(ctx, "erased removed tenants", "tenants", erased)
		}
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
	}
}

// expiredInterval is how often rules that ended are looked for.
const expiredInterval = 10 * time.Minute

// removeExpired removes rules that ended some time ago.
func removeExpired(ctx context.Context, store *pgstore.Store, log *slog.Logger) {
	next := time.NewTicker(expiredInterval)
	defer next.Stop()
	for {
		removed, err := store.RemoveExpiredRules(ctx, time.Now().Add(-rules.ExpiredKept))
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "some expired rules were not removed; the next round tries again", "error", err)
		}
		if removed > 0 {
			log.InfoContext(ctx, "removed expired rules", "rules", removed)
		}
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
	}
}

// pruneInterval is how often what is kept for a day is looked through.
const pruneInterval = 5 * time.Minute

// prune deletes the answers of requests that may no longer be repeated.
func prune(ctx context.Context, store *pgstore.Store, log *slog.Logger) {
	next := time.NewTicker(pruneInterval)
	defer next.Stop()
	for {
		if _, err := store.DropOldOnce(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "old answers were not deleted; the next round tries again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
	}
}

const (
	// sealAfter leaves time for the processes of the release before, which a rolling upgrade ends meanwhile. They cannot send alerts
	// whose secrets are sealed.
	sealAfter = 10 * time.Minute
	sealEvery = time.Hour
)

// sealSecrets seals the secrets that were stored before there was a key, or under a former one.
func sealSecrets(ctx context.Context, store *pgstore.Store, log *slog.Logger) {
	for pause := sealAfter; ; pause = sealEvery {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		sealed, closed, err := store.SealSecrets(ctx)
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "some secrets of alerts were not sealed; the next round tries again", "error", err)
		}
		if sealed > 0 {
			log.InfoContext(ctx, "sealed secrets of alerts and audit webhooks", "secrets", sealed)
		}
		if closed > 0 {
			log.ErrorContext(ctx, "secrets of alerts or audit webhooks are sealed under a key that is not configured, so nothing can be sent for these; "+
				"add the former key to SLUICE_SECRET_KEY, or give the secrets anew", "secrets", closed)
		}
	}
}
