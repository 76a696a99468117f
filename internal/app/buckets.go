package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
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
	local *membucket.Store
	redis *redisbucket.Store // nil without Redis
	// cached stands in front of redis.
	cached *enforce.DenialCache
	client redis.UniversalClient
	health atomic.Pointer[health] // nil until the first ping
	pinged chan struct{}          // closed when health is known
	log    *slog.Logger
}

func openBuckets(cfg config.Config, log *slog.Logger) (*buckets, error) {
	b := &buckets{
		local: membucket.New(membucket.Options{MaxBuckets: cfg.LocalBuckets}), log: log, pinged: make(chan struct{}),
	}
	if cfg.RedisURL == "" {
		close(b.pinged)
		log.Warn("no Redis: buckets are in this process's memory, so limits are per process")
		return b, nil
	}
	options, err := redisbucket.Options(string(cfg.RedisURL), cfg.StoreBudget)
	if err != nil {
		return nil, err
	}
	redis.SetLogger(driverLog{log}) // the driver has one for the process
	b.client = redis.NewUniversalClient(options)
	b.redis = redisbucket.NewPrefixed(b.client, cfg.StoreBudget, cfg.RedisPrefix)
	b.cached = enforce.NewDenialCache(b.redis, nil)
	return b, nil
}

// shared is the store that decides.
func (b *buckets) shared() enforce.Buckets {
	if b.redis == nil {
		return b.local
	}
	return b.cached
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

// state is the word for readyz: up only if neither checks nor the latest ping say otherwise.
func (b *buckets) state() string {
	if b.redis == nil {
		return "memory"
	}
	if h := b.health.Load(); h == nil || !h.answers {
		return string(redisbucket.Down)
	}
	if b.redis.State() == redisbucket.Down {
		return string(redisbucket.Down)
	}
	return string(redisbucket.Up)
}

// warnings are for readyz.
func (b *buckets) warnings() []string {
	if h := b.health.Load(); h != nil {
		return h.warnings
	}
	return nil
}

// health is what watch last saw.
type health struct {
	answers  bool
	warnings []string
}

const (
	// watchEvery is how often Redis is looked after. Checks notice an outage sooner.
	watchEvery = time.Second
	// settingsEvery is how often its settings are, beside every time that it comes back.
	settingsEvery = time.Minute
)

// watch keeps an eye on Redis until ctx ends: it logs when Redis stops answering and when it is back,
// and what in its settings would break limits.
func (b *buckets) watch(ctx context.Context) error {
	if b.redis == nil {
		return nil
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	last := health{answers: true}
	var checked time.Time
	for {
		err := b.redis.Ping(ctx)
		if ctx.Err() != nil {
			return nil
		}
		now := health{answers: err == nil, warnings: last.warnings}
		switch {
		case err != nil && last.answers:
			b.log.Error("a ping to Redis got no answer in time; failure modes decide what it cannot", "error", err)
			checked = time.Time{}
		case err == nil && !last.answers:
			b.log.Info("Redis answers pings again")
		}
		if err == nil && time.Since(checked) >= settingsEvery {
			if warnings, ok := b.checkSettings(ctx); ok {
				now.warnings, checked = warnings, time.Now()
			}
		}
		for _, warning := range now.warnings {
			if !slices.Contains(last.warnings, warning) {
				b.log.Warn(warning)
			}
		}
		last = now
		if b.health.Swap(&now) == nil {
			close(b.pinged)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// checkSettings returns what is wrong with Redis's settings; ok is false if Redis went away meanwhile.
func (b *buckets) checkSettings(ctx context.Context) (warnings []string, ok bool) {
	warnings, err := b.redis.Check(ctx)
	switch {
	case err == nil:
		return warnings, true
	case redis.HasErrorPrefix(err, "ERR"), redis.HasErrorPrefix(err, "NOPERM"):
		return []string{"redis's maxmemory-policy could not be read; make sure that it is noeviction"}, true
	default:
		return nil, false
	}
}

// driverLog takes the log lines of the Redis driver, which otherwise writes to standard error. Each
// tells of one failed dial or the like, which watch sums up.
type driverLog struct{ log *slog.Logger }

// Printf implements the driver's interface.
func (d driverLog) Printf(ctx context.Context, format string, v ...any) {
	d.log.DebugContext(ctx, "redis driver", "message", fmt.Sprintf(format, v...))
}
