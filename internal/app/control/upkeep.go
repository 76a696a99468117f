package control

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/enforce/checkpoint"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/notify/webhook"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/violations"
)

func kinds(cfg config.Config, store *pgstore.Store, watcher *snapshot.Watcher, sender *webhook.Sender,
	keys *auth.KeyWatch, fill pgstore.FillBuckets, forget func(context.Context, rules.TenantID) error, log *slog.Logger,
) []jobs.Kind {
	keep := violations.Retention{
		Details: cfg.ViolationRetention, Counts: cfg.CountRetention, Audit: cfg.AuditRetention,
		Access: cfg.SecurityLogRetention,
	}
	all := slices.Concat(store.Retention(keep, log), auth.AuditKinds(store, sender),
		violations.AlertKinds(store, sender, log))
	return append(all,
		store.ScheduledWork(),
		store.ErasureWork(fill),
		store.ExportWork(adminapi.WriteExports(store, store)),
		replay.Jobs(store, planNames(store), log),
		jobs.Periodic("seal secrets", time.Hour,
			func(ctx context.Context) error { return sealSecrets(ctx, store, log) }),
		jobs.Periodic("remove expired rules", 10*time.Minute, func(ctx context.Context) error {
			removed, err := store.RemoveExpiredRules(ctx, time.Now().Add(-rules.ExpiredKept))
			if removed > 0 {
				log.InfoContext(ctx, "removed expired rules", "rules", removed)
			}
			return err
		}),
		jobs.Periodic("remove checkpoints of full buckets", time.Hour, func(ctx context.Context) error {
			latest := watcher.Snapshot()
			if latest == nil {
				return errNotLoaded
			}
			removed, err := checkpoint.Tidy(ctx, store, latest, time.Now())
			if removed > 0 {
				log.InfoContext(ctx, "removed checkpoints of full buckets", "checkpoints", removed)
			}
			return err
		}),
		jobs.Periodic("erase removed tenants", 10*time.Minute, func(ctx context.Context) error {
			erased, err := store.EraseRemovedTenants(ctx, time.Now().Add(-cfg.TenantGrace), forget)
			if erased > 0 {
				log.InfoContext(ctx, "erased removed tenants", "tenants", erased)
			}
			return err
		}),
		jobs.Periodic("tell of keys of people who left", time.Minute, func(ctx context.Context) error {
			return keys.KeysLeft(ctx, time.Now())
		}),
		jobs.Periodic("tell of keys that expire", 10*time.Minute, func(ctx context.Context) error {
			return keys.Expiring(ctx, time.Now())
		}),
	)
}

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

func sealSecrets(ctx context.Context, store *pgstore.Store, log *slog.Logger) error {
	sealed, closed, err := store.SealSecrets(ctx)
	if sealed > 0 {
		log.InfoContext(ctx, "sealed secrets of alerts and audit webhooks", "secrets", sealed)
	}
	if closed > 0 {
		log.ErrorContext(ctx, "secrets of alerts or audit webhooks are sealed under a key that is not configured, so "+
			"nothing can be sent for these; "+
			"add the former key to SLUICE_SECRET_KEY, or give the secrets anew", "secrets", closed)
	}
	return err
}
