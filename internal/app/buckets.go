package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/membucket"
	"github.com/sluicegate/sluice/internal/metrics"
	"github.com/sluicegate/sluice/internal/redisbucket"
)

// buckets are a process's token buckets: in Redis if there is one, and always some of its own, which
// rules that fail local fall back to.
type buckets struct {
	local  *membucket.Store
	redis  *redisbucket.Store // nil without Redis
	client redis.UniversalClient
	log    *slog.Logger
}

func openBuckets(cfg config.Config, log *slog.Logger) (*buckets, error) {
	b := &buckets{local: membucket.New(membucket.Options{MaxBuckets: cfg.LocalBuckets}), log: log}
	if cfg.RedisURL == "" {
		log.Warn("no Redis: buckets are in this process's memory, so limits are per process")
		return b, nil
	}
	options, err := redisbucket.Options(string(cfg.RedisURL), cfg.StoreBudget)
	if err != nil {
		return nil, err
	}
	b.client = redis.NewUniversalClient(options)
	b.redis = redisbucket.New(b.client, cfg.StoreBudget)
	return b, nil
}

// shared is the store that decides.
func (b *buckets) shared() enforce.Buckets {
	if b.redis == nil {
		return b.local
	}
	return b.redis
}

func (b *buckets) close() error {
	if b.client == nil {
		return nil
	}
	if err := b.client.Close(); err != nil {
		return fmt.Errorf("close the redis client: %w", err)
	}
	return nil
}

// observe shows the buckets to Prometheus and returns the observer of their decisions.
func (b *buckets) observe(m *metrics.Metrics) *metrics.Decisions {
	m.LocalBuckets(b.local.Len, b.local.Evictions)
	if b.redis == nil {
		return m.Decisions("memory")
	}
	m.SharedStore(func() int { return breakerState(b.redis.State()) }, b.redis.Broken)
	return m.Decisions("redis")
}

func breakerState(s redisbucket.State) int {
	switch s {
	case redisbucket.Up:
		return 0
	case redisbucket.Probing:
		return 1
	default:
		return 2
	}
}

// state is the word for readyz.
func (b *buckets) state() string {
	if b.redis == nil {
		return "memory"
	}
	return string(b.redis.State())
}

// watchEvery is how often an idle process looks after Redis. Checks notice an outage sooner.
const watchEvery = time.Second

// watch keeps an eye on Redis until ctx ends: it logs when Redis goes away and comes back, and says
// each time it came (back) what in its settings would break limits.
func (b *buckets) watch(ctx context.Context) error {
	if b.redis == nil {
		return nil
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	up, checked := true, false
	for {
		err := b.redis.Ping(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && up:
			b.log.Error("Redis does not answer; the failure mode of each rule decides", "error", err)
			up, checked = false, false
		case err == nil && !up:
			b.log.Info("Redis answers again")
			up = true
		}
		if err == nil && !checked {
			checked = b.checkSettings(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// checkSettings says whether the settings could be looked at or never will be.
func (b *buckets) checkSettings(ctx context.Context) (done bool) {
	warnings, err := b.redis.Check(ctx)
	for _, warning := range warnings {
		b.log.Warn(warning)
	}
	if err != nil && !redis.HasErrorPrefix(err, "ERR") && !redis.HasErrorPrefix(err, "NOPERM") {
		return false // it went away in between
	}
	if err != nil {
		b.log.Warn("Redis's maxmemory-policy could not be read; make sure that it is noeviction", "error", err)
	}
	return true
}
