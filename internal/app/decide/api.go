// Package decide wires the decision plane: cmd/api, and a half of sluice dev.
package decide

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/sluicegate/sluice/internal/adapt"
	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/auth/jwks"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/notify/webhook"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/gateway"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/telemetry/tracing"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
)

// API is the decision plane in one process.
type API struct {
	*app.Process
	tokens   *jwks.Keys
	edits    *enforce.EditApplier
	limiter  *enforce.Limiter
	recorder *violations.Recorder
	traffic  *traffic.Recorder // nil when recording is off, like recorder
	reports  *adapt.Reports
	loop     *adapt.Loop
	self     func() (fleet.Process, fleet.Count)
	checks   *app.Listener
	grpc     *app.Listener   // nil if it is off
	tracer   *tracing.Tracer // nil if nothing is traced
}

// NewAPI builds the decision plane, whose addresses for checks Run opens once rules are loaded.
func NewAPI(ctx context.Context, cfg config.Config, log *slog.Logger) (_ *API, err error) {
	a := &API{}
	defer func() { //nolint:contextcheck // Close has deadlines of its own
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if a.Process, err = app.Open(ctx, cfg, func(slowed []rules.Slowdown) { a.edits.Add(slowed) }, log); err != nil {
		return nil, err
	}
	a.edits = a.Buckets.EditApplier(a.Watcher.Snapshot, cfg.PollInterval, log)
	a.reports = adapt.NewReports(a.Store, log)
	a.loop = adapt.NewLoop(a.Store, a.Watcher.Snapshot, log)
	a.tokens = jwks.New(jwks.Options{
		Client: webhook.NewClient(cfg.JWKSAllow, jwks.ReadTimeout), Mappings: tokenMappings(a.Watcher), Log: log,
	})
	a.Metrics.UnsettledEdits(a.edits.Abandoned)
	a.Metrics.Adapting(a.reports, a.loop)
	a.self = a.look()
	observer := a.record()
	a.limiter = enforce.NewLimiter(a.Buckets.Shared(), a.Buckets.Local, observer, time.Now)
	a.limiter.RestoreLocalBy(a.Lookups)
	if cfg.TraceEndpoint != "" {
		a.tracer, err = tracing.New(context.WithoutCancel(ctx), cfg.TraceEndpoint, "sluice-api",
			config.ReadBuild().Version, log)
		if err != nil {
			return nil, err
		}
	}
	return a, a.newServers(observer)
}

func tokenMappings(watcher *snapshot.Watcher) func() map[rules.TenantID]*gateway.Mapping {
	var of *snapshot.Snapshot
	var mappings map[rules.TenantID]*gateway.Mapping
	return func() map[rules.TenantID]*gateway.Mapping {
		if latest := watcher.Snapshot(); latest != of {
			of, mappings = latest, latest.TokenMappings()
		}
		return mappings
	}
}

// CheckAddr is the address of the check endpoint, once it is open.
func (a *API) CheckAddr() net.Addr { return a.checks.Addr() }

// GRPCAddr is the address of the gRPC service, once it is open; nil if it is off.
func (a *API) GRPCAddr() net.Addr {
	if a.grpc == nil {
		return nil
	}
	return a.grpc.Addr()
}

// Load reads the rules and opens the addresses, for a program whose database must answer.
func (a *API) Load(ctx context.Context) error {
	if err := a.Watcher.Refresh(ctx); err != nil {
		return err
	}
	if err := a.LoadBuckets(ctx); err != nil {
		return err
	}
	return a.Listen(a.listeners()...)
}

func (a *API) listeners() []*app.Listener {
	return slices.DeleteFunc([]*app.Listener{a.checks, a.grpc}, func(l *app.Listener) bool { return l == nil })
}

// Close releases what NewAPI opened; Run calls it.
func (a *API) Close() error {
	var errs []error
	for _, l := range a.listeners() {
		errs = append(errs, l.Close())
	}
	if a.tracer != nil {
		limited, cancel := context.WithTimeout(context.Background(), lastSpans)
		defer cancel()
		_ = a.tracer.Close(limited) // spans for a collector that is away are lost
	}
	if a.Process != nil {
		errs = append(errs, a.Process.Close())
	}
	return errors.Join(errs...)
}

const lastSpans = time.Second

// Run answers checks until ctx ends and the drain delay has passed, or the database's schema is behind this binary.
func (a *API) Run(ctx context.Context) error {
	collectSeldom()
	group, ctx := a.Begin(ctx)
	drained, endMetrics := context.WithCancel(context.WithoutCancel(ctx))
	a.RunParts(ctx, drained, group)
	group.Loop(ctx, "idle buckets of edited rules", a.edits.Run)
	group.Loop(ctx, "reservations that nobody has", a.limiter.Run)
	group.Loop(ctx, "the keys of tokens", func(ctx context.Context) {
		if a.AwaitRules(ctx) { // rules name the keys
			a.tokens.Run(ctx)
		}
	})
	group.Loop(ctx, "the rules that adapt", a.loop.Run)
	if a.Buckets.Leases != nil {
		group.Loop(ctx, "turning leases on", func(ctx context.Context) {
			turnLeases(ctx, a.Buckets.Leases, a.Store.KnownToAll, a.Log)
		})
	}
	group.Loop(ctx, "the report of this process", func(ctx context.Context) {
		select { // otherwise the first report would say that Redis is down
		case <-a.Buckets.Pinged:
			fleet.Keep(ctx, a.Store, a.self, a.Log)
		case <-ctx.Done():
		}
	})
	group.Go("the check endpoint", func() error {
		defer endMetrics()
		return a.serveChecks(ctx)
	})
	group.Loop(drained, "the reports of backends", a.reports.Run)
	if a.recorder != nil { // runs until the last check was recorded
		group.Go("violations", func() error { a.recorder.Run(drained, a.Config.ShutdownTimeout); return nil })
	}
	if a.traffic != nil {
		group.Go("recorded checks", func() error { a.traffic.Run(drained, a.Config.ShutdownTimeout); return nil })
	}
	err := group.Wait()
	return errors.Join(err, a.Close()) //nolint:contextcheck // as above
}

const firstKeys = time.Second // an issuer that is down must not keep a process from answering other tenants

func (a *API) serveChecks(ctx context.Context) error {
	if !a.AwaitRules(ctx) {
		return nil
	}
	soon, cancel := context.WithTimeout(ctx, firstKeys)
	a.tokens.AwaitFirst(soon)
	cancel()
	if err := a.Listen(a.listeners()...); err != nil {
		return err
	}
	addrs := []any{"check_addr", a.CheckAddr().String(), "metrics_addr", a.MetricsAddr().String()}
	if a.grpc != nil {
		addrs = append(addrs, "grpc_addr", a.GRPCAddr().String())
	}
	a.Log.InfoContext(ctx, "answering checks", addrs...)
	group, ctx := app.NewParts(ctx, a.Log)
	for _, l := range a.listeners() {
		group.Go(l.Name(), func() error { return l.Serve(ctx, a.Config.ShutdownTimeout) })
	}
	return group.Wait()
}
