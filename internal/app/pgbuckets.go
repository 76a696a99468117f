package app

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/store/pgbucket"
	"github.com/sluicegate/sluice/internal/telemetry/metrics"
)

type pgBuckets struct {
	store     *pgbucket.Store
	log       *slog.Logger
	answers   atomic.Bool
	firstPing sync.Once
}

func openPGBuckets(ctx context.Context, cfg config.Config, log *slog.Logger) (*pgBuckets, error) {
	store, err := pgbucket.Open(ctx, string(cfg.DatabaseURL), pgbucket.Options{
		Budget: cfg.StoreBudget, Restores: checkpointAbove(cfg) > 0,
	})
	if err != nil {
		return nil, err
	}
	return &pgBuckets{store: store, log: log}, nil
}

func (b *pgBuckets) state() string {
	if b.answers.Load() && b.store.State() != pgbucket.Down {
		return string(pgbucket.Up)
	}
	return string(pgbucket.Down)
}

func (b *pgBuckets) observe(m *metrics.Metrics) *metrics.Decisions {
	breakers := func() map[string]metrics.Breaker {
		breaker := metrics.Breaker{Trips: b.store.Trips()}
		switch b.store.State() {
		case pgbucket.Up:
		case pgbucket.Probing:
			breaker.State = metrics.BreakerHalfOpen
		default:
			breaker.State = metrics.BreakerOpen
		}
		return map[string]metrics.Breaker{"postgres": breaker}
	}
	m.SharedStore(breakers, b.store.BrokenValues, b.store.UnknownVersions, b.store.ForgottenReservations)
	b.store.Observe(m.StoreQueue(b.store.Waiting))
	return m.Decisions("postgres")
}

func (b *pgBuckets) watch(ctx context.Context, pinged chan<- struct{}) {
	var cleaning panics.Group
	ctx, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		_ = cleaning.Wait()
	}()
	cleaning.Loop(ctx, b.log, "the cleaning of buckets", func(ctx context.Context) { b.store.Run(ctx, b.log) })
	outage := jobs.Outage{
		Failing:   "the buckets in PostgreSQL did not answer in time; failure modes decide checks",
		Recovered: "the buckets in PostgreSQL answer again",
	}
	restored := int64(0)
	panics.Every(ctx, watchEvery, func() {
		err := b.store.Ping(ctx)
		if ctx.Err() != nil {
			return
		}
		outage.Note(ctx, b.log, err)
		if n := b.store.Restored(); n > restored {
			b.log.Warn("PostgreSQL had lost its buckets; those of long limits were restored from their checkpoints",
				"buckets", n-restored)
			restored = n
		}
		b.answers.Store(err == nil)
		b.firstPing.Do(func() { close(pinged) })
	})
}
