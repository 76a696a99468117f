package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/checkpoint"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/telemetry/metrics"
)

// Process is the parts that a plane runs on, or both planes of sluice dev.
type Process struct {
	Config      config.Config
	Log         *slog.Logger
	Store       *pgstore.Store
	Buckets     *Buckets
	Watcher     *snapshot.Watcher
	KeyUses     *snapshot.KeyUses
	Checkpoints *checkpoint.Writer
	Lookups     *checkpoint.Lookups // restores buckets that Buckets have lost
	Metrics     *metrics.Metrics
	Decisions   *metrics.Decisions

	scrapes *Listener
	drain   drain
	checked chan struct{} // closed when the schema is not behind
	opened  atomic.Bool
}

// Open opens the parts of a process and binds the address of its metrics. slowed may be nil; see
// snapshot.WatcherOptions.
func Open(ctx context.Context, cfg config.Config, slowed func([]rules.Slowdown), log *slog.Logger) (_ *Process,
	err error,
) {
	p := &Process{Config: cfg, Log: log, checked: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.Store, err = pgstore.Open(ctx, string(cfg.DatabaseURL), log); err != nil {
		return nil, err
	}
	if p.Buckets, err = OpenBuckets(ctx, cfg, log); err != nil {
		return nil, err
	}
	p.Watcher = snapshot.NewWatcher(p.Store, snapshot.WatcherOptions{
		PollInterval: cfg.PollInterval, RereadInterval: cfg.RereadInterval, Logger: log, Slowed: slowed,
	})
	p.KeyUses = snapshot.NewKeyUses(p.Store, log)
	p.Metrics = showRules(p.Store, p.Watcher)
	p.Checkpoints = checkpoint.NewWriter(p.Buckets.Local, p.Store, p.Watcher.Snapshot, log)
	p.Lookups = checkpoint.NewLookups(p.Buckets.Local, p.Store, cfg.StoreBudget, log)
	p.Buckets.recoverBy(p.Lookups, checkpointAbove(cfg))
	p.Decisions = p.Buckets.observe(p.Metrics, p.Checkpoints.Written)
	if p.scrapes, err = p.newScrapes(); err != nil {
		return p, err
	}
	return p, p.scrapes.Open()
}

func showRules(store *pgstore.Store, watcher *snapshot.Watcher) *metrics.Metrics {
	build := config.ReadBuild()
	m := metrics.New(build.Version, build.Revision)
	m.Snapshot(func() snapshot.Sizes {
		if snapshot := watcher.Snapshot(); snapshot != nil {
			return snapshot.Sizes()
		}
		return snapshot.Sizes{}
	}, watcher.Age)
	m.UnreadableRules(store.UnreadableRules)
	m.SnapshotReads(watcher.PollDuration, watcher.RereadDuration)
	return m
}

func (p *Process) newScrapes() (*Listener, error) {
	scrapes := http.NewServeMux()
	scrapes.Handle("GET /metrics", p.Metrics.Handler())
	scrapes.Handle("/", httpapi.HealthHandler(config.ReadBuild().Version, p.Readiness))
	if p.Config.Pprof {
		scrapes.HandleFunc("GET /debug/pprof/", pprof.Index)
		scrapes.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		scrapes.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		scrapes.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		scrapes.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return p.NewListener("metrics", p.Config.MetricsAddr, p.Config.MetricsCerts(), httpapi.NewServer(scrapes, p.Log))
}

// MetricsAddr is the address of the metrics.
func (p *Process) MetricsAddr() net.Addr { return p.scrapes.Addr() }

// Begin returns a group for the parts of a plane, and their context, which ends when a part fails or the drain
// delay after ctx has ended.
func (p *Process) Begin(ctx context.Context) (*Parts, context.Context) {
	return p.drain.begin(ctx, p.Config.DrainDelay, p.Log)
}

// RunParts runs the process's parts. Metrics are served until drained ends, because a plane has some until its last
// request is answered.
func (p *Process) RunParts(ctx, drained context.Context, group *Parts) {
	p.Log.InfoContext(ctx, "answering metrics and probes", "metrics_addr", p.MetricsAddr().String())
	group.Go("the look at the schema", func() error { return p.checkSchema(ctx) })
	group.Loop(ctx, "the watcher of rules", p.Watcher.Run)
	group.Loop(ctx, "the warning of the demo key", p.warnOfDemoKey)
	group.Loop(ctx, "the last uses of keys", p.KeyUses.Run)
	group.Loop(ctx, "the watch of buckets", p.Buckets.watch)
	group.Loop(drained, "the checkpoints of long limits", p.Checkpoints.Run)
	group.Go("metrics", func() error { return p.scrapes.Serve(drained, p.Config.ShutdownTimeout) })
}

// WriteCredited writes the checkpoint of a bucket that was credited, if its limit is long.
func (p *Process) WriteCredited(ctx context.Context, key enforce.Key, after enforce.Bucket) error {
	if !enforce.IsLong(after.Limit, checkpointAbove(p.Config)) {
		return nil
	}
	return p.Checkpoints.WriteCredited(ctx, key, after)
}

// LoadBuckets restores the buckets if this process alone has them in memory.
func (p *Process) LoadBuckets(ctx context.Context) error {
	if p.Config.BucketStore() != config.BucketsInMemory || checkpointAbove(p.Config) == 0 {
		return nil
	}
	loaded, err := checkpoint.Load(ctx, p.Store, p.Buckets.Local)
	if loaded > 0 {
		p.Log.InfoContext(ctx, "restored buckets of long limits", "buckets", loaded)
	}
	return err
}

// AwaitRules reports whether the schema was checked and rules were loaded before ctx ended. A plane opens its addresses
// afterwards, because a refused connection sends a caller to another process.
func (p *Process) AwaitRules(ctx context.Context) bool {
	for _, done := range []<-chan struct{}{p.checked, p.Watcher.Loaded()} {
		select {
		case <-ctx.Done():
			return false
		case <-done:
		}
	}
	return true
}

// Listen opens the addresses of a plane, which makes the process ready.
func (p *Process) Listen(listeners ...*Listener) error {
	for _, l := range listeners {
		if err := l.Open(); err != nil {
			return err
		}
	}
	p.opened.Store(true)
	return nil
}

// Close releases what Open opened.
func (p *Process) Close() error {
	var errs []error
	if p.scrapes != nil {
		errs = append(errs, p.scrapes.Close())
	}
	if p.Buckets != nil {
		errs = append(errs, p.Buckets.Close())
	}
	if p.Store != nil {
		CloseStore(p.Store)
	}
	return errors.Join(errs...)
}

// checkSchema refuses a schema that is behind, once the database answers. A restart would not bring the database back.
func (p *Process) checkSchema(ctx context.Context) error {
	for {
		err := panics.Do(p.Log, "the look at the schema",
			func() error { return pgstore.CheckSchema(ctx, string(p.Config.DatabaseURL)) })
		if err == nil {
			close(p.checked)
			return nil
		}
		if errors.Is(err, pgstore.ErrSchemaBehind) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second): // not longer, because the plane's addresses open afterwards
		}
	}
}

// Readiness is the answer of readyz.
func (p *Process) Readiness() httpapi.Readiness {
	latest := p.Watcher.Snapshot()
	state := httpapi.Readiness{
		Open:        p.opened.Load(),
		Draining:    p.drain.draining(),
		RulesLoaded: latest != nil,
		RulesAge:    p.Watcher.Age(),
		Database:    "up",
		Warnings: slices.Concat(
			p.Buckets.warnings(), unknownRuleWarnings(latest), demoKeyWarnings(p.Config.Command, latest, time.Now())),
	}
	state.Redis, _ = p.Buckets.State()
	switch {
	case p.Watcher.LastError() != nil:
		state.Database = "down"
	case !state.RulesLoaded:
		state.Database = "unknown"
	}
	return state
}

func unknownRuleWarnings(snapshot *snapshot.Snapshot) []string {
	if snapshot == nil || snapshot.Sizes().UnknownRules == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d active rules have words that this process does not know, and act by their "+
		"failure mode; "+
		"upgrade this process, or edit the rules", snapshot.Sizes().UnknownRules)}
}
