// Package decide wires the decision plane: cmd/api, and a half of sluice dev. NewAPI has all of it.
//
// It stands apart from the control plane, so that the program that answers checks links nothing of the admin API, and the
// other one no check server.
package decide

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluicegate/sluice/internal/adapt"
	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/gateway"
	"github.com/sluicegate/sluice/internal/jwks"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
	"github.com/sluicegate/sluice/internal/tracing"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
	"github.com/sluicegate/sluice/internal/webhook"
)

// API is the decision plane in one process: it reads rules, takes tokens, and answers.
type API struct {
	*app.Process
	tokens  *jwks.Keys
	settler *enforce.EditSettler
	limiter *enforce.Limiter
	// recorder is nil when recording is off.
	recorder *violations.Recorder
	traffic  *traffic.Recorder // likewise
	reports  *adapt.Reports
	loop     *adapt.Loop
	self     func() (fleet.Process, fleet.Count) // for reports to the fleet
	checks   *app.Listener
	grpc     *app.Listener   // nil if it is off
	tracer   *tracing.Tracer // nil if nothing is traced
}

// NewAPI builds the decision plane and binds its addresses. Database and Redis need not answer yet.
func NewAPI(ctx context.Context, cfg config.Config, log *slog.Logger) (_ *API, err error) {
	a := &API{}
	defer func() { //nolint:contextcheck // Close has deadlines of its own
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if a.Process, err = app.Open(ctx, cfg, func(slowed []rules.Slowdown) { a.settler.Add(slowed) }, log); err != nil {
		return nil, err
	}
	a.settler = a.Buckets.Settler(a.Watcher.Snapshot, cfg.PollInterval, log)
	a.reports = adapt.NewReports(a.Store, log)
	a.loop = adapt.NewLoop(a.Store, a.Watcher.Snapshot, log)
	a.tokens = jwks.New(jwks.Options{
		Client: webhook.NewClient(cfg.JWKSAllow, jwks.ReadTimeout), Mappings: tokenMappings(a.Watcher), Log: log,
	})
	a.Metrics.UnsettledEdits(a.settler.Abandoned)
	a.Metrics.Adapting(a.reports, a.loop)
	a.self = a.look()
	observer := a.record()
	a.limiter = enforce.NewLimiter(a.Buckets.Shared(), a.Buckets.Local, observer, time.Now)
	if cfg.TraceEndpoint != "" {
		a.tracer, err = tracing.New(context.WithoutCancel(ctx), cfg.TraceEndpoint, "sluice-api", config.ReadBuild().Version, log)
		if err != nil {
			return nil, err
		}
	}
	return a, a.listen(observer)
}

// tokenMappings returns the mappings that read tokens, of the latest Snapshot.
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

// CheckAddr is the address of the check endpoint.
func (a *API) CheckAddr() net.Addr { return a.checks.Addr() }

// GRPCAddr is the address of the gRPC service, or nil if it is off.
func (a *API) GRPCAddr() net.Addr {
	if a.grpc == nil {
		return nil
	}
	return a.grpc.Addr()
}

// Load reads the rules once, for a program whose database must answer. Run also reads them, and keeps trying.
func (a *API) Load(ctx context.Context) error { return a.Watcher.Refresh(ctx) }

// Close releases what NewAPI opened; Run calls it.
func (a *API) Close() error {
	var errs []error
	for _, l := range []*app.Listener{a.checks, a.grpc} {
		if l != nil {
			errs = append(errs, l.Close())
		}
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

// lastSpans is how long the end of a process waits for the collector.
const lastSpans = time.Second

// Run answers checks until ctx ends and the drain delay has passed, waits up to the shutdown timeout for requests in flight,
// and closes everything. It returns early if the database's schema is behind this binary or a listener fails.
func (a *API) Run(ctx context.Context) error {
	collectSeldom()
	addrs := []any{"check_addr", a.CheckAddr().String(), "metrics_addr", a.MetricsAddr().String()}
	if a.grpc != nil {
		addrs = append(addrs, "grpc_addr", a.GRPCAddr().String())
	}
	a.Log.Info("answering checks", addrs...)
	group, ctx := a.Begin(ctx)
	drained, endMetrics := context.WithCancel(context.WithoutCancel(ctx))
	a.RunParts(ctx, drained, group)
	group.Go(func() error { a.settler.Run(ctx); return nil })
	group.Go(func() error { a.limiter.Run(ctx); return nil })
	group.Go(func() error { a.tokens.Run(ctx); return nil })
	group.Go(func() error { a.loop.Run(ctx); return nil })
	if a.Buckets.Leases != nil {
		group.Go(func() error { turnLeases(ctx, a.Buckets.Leases, a.Store.KnownToAll, a.Log); return nil })
	}
	group.Go(func() error {
		select { // or the first report would say that Redis is down
		case <-a.Buckets.Pinged:
			fleet.Keep(ctx, a.Store, a.self, a.Log)
		case <-ctx.Done():
		}
		return nil
	})
	group.Go(func() error {
		defer endMetrics()
		return a.serveChecks(ctx)
	})
	group.Go(func() error { a.reports.Run(drained); return nil })
	if a.recorder != nil { // until the last check was recorded
		group.Go(func() error { a.recorder.Run(drained, a.Config.ShutdownTimeout); return nil })
	}
	if a.traffic != nil {
		group.Go(func() error { a.traffic.Run(drained, a.Config.ShutdownTimeout); return nil })
	}
	err := group.Wait()
	return errors.Join(err, a.Close()) //nolint:contextcheck // as above
}

// serveChecks serves HTTP and gRPC. If one fails, the other ends as well.
func (a *API) serveChecks(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.checks.Serve(ctx, a.Config.ShutdownTimeout) })
	if a.grpc != nil {
		group.Go(func() error { return a.grpc.Serve(ctx, a.Config.ShutdownTimeout) })
	}
	return group.Wait()
}
