package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluicegate/sluice/internal/adapt"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/fleet"
	"github.com/sluicegate/sluice/internal/gateway"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/jwks"
	"github.com/sluicegate/sluice/internal/metrics"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/snapshot"
	"github.com/sluicegate/sluice/internal/traffic"
	"github.com/sluicegate/sluice/internal/violations"
	"github.com/sluicegate/sluice/internal/webhook"
)

// API is the decision plane in one process: it reads rules, takes tokens, and answers.
type API struct {
	cfg     config.Config
	log     *slog.Logger
	store   *pgstore.Store
	buckets *buckets
	tokens  *jwks.Keys
	settler *enforce.EditSettler
	watcher *snapshot.Watcher
	keyUses *snapshot.KeyUses
	limiter *enforce.Limiter
	shown   *metrics.Metrics // to Prometheus
	// recorder is nil when recording is off.
	recorder *violations.Recorder
	traffic  *traffic.Recorder // likewise
	reports  *adapt.Reports
	loop     *adapt.Loop
	self     func() (fleet.Process, fleet.Count) // for reports to the fleet
	checks   *listener
	grpc     *listener // nil if it is off
	metrics  *listener
	tracer   Tracer // nil if nothing is traced
	drain    drain
}

// CheckServer answers checks.
type CheckServer interface {
	Server
	Connections() metrics.Connections
}

// GRPCServer answers Envoy's rate limit service.
type GRPCServer interface {
	Server
	Connections() metrics.Connections
}

// CheckParts are the parts of a CheckServer.
type CheckParts struct {
	Watcher        *snapshot.Watcher
	Limiter        *enforce.Limiter
	Lessor         *enforce.Lessor
	Creditor       enforce.Creditor
	KeyUsed        func(key *snapshot.Key, at time.Time)
	Readiness      func() httpapi.Readiness
	Log            *slog.Logger
	Observer       httpapi.Observer
	Tokens         *jwks.Keys
	Tracer         httpapi.Tracer // nil traces nothing
	Reports        *adapt.Reports
	MaxConnections int
	TrustedProxies []netip.Prefix
}

// Tracer is an httpapi.Tracer. Close sends the spans that wait.
type Tracer interface {
	httpapi.Tracer
	Close(ctx context.Context) error
}

// NewServers makes the servers that answer checks. The only ones are in the package decide, so that the admin binary links
// neither fasthttp nor gRPC nor OpenTelemetry.
type NewServers struct {
	Check  func(CheckParts) CheckServer
	GRPC   func(CheckParts) GRPCServer
	Tracer func(endpoint string, log *slog.Logger) (Tracer, error)
}

// grpcShare is the part of the check connections, one in so many, that gRPC has. Each carries many requests at once.
const grpcShare = 4

// NewAPI builds the decision plane and binds its addresses. Database and Redis need not answer yet.
func NewAPI(ctx context.Context, cfg config.Config, servers NewServers, log *slog.Logger) (_ *API, err error) {
	a := &API{cfg: cfg, log: log}
	defer func() { //nolint:contextcheck // Close has deadlines of its own
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if a.store, err = pgstore.Open(ctx, string(cfg.DatabaseURL), log); err != nil {
		return nil, err
	}
	if a.buckets, err = openBuckets(ctx, cfg, log); err != nil {
		return nil, err
	}
	a.settler = a.buckets.settler(func() *snapshot.Snapshot { return a.watcher.Snapshot() }, cfg.PollInterval, log)
	a.watcher = snapshot.NewWatcher(a.store, snapshot.WatcherOptions{
		PollInterval: cfg.PollInterval, RereadInterval: cfg.RereadInterval, Logger: log, Slowed: a.settler.Add,
	})
	a.keyUses = snapshot.NewKeyUses(a.store, log)
	a.reports = adapt.NewReports(a.store, log)
	a.loop = adapt.NewLoop(a.store, a.watcher.Snapshot, log)
	a.tokens = jwks.New(jwks.Options{
		Client: webhook.NewClient(cfg.JWKSAllow, jwks.ReadTimeout), Mappings: tokenMappings(a.watcher), Log: log,
	})

	m := showRules(a.store, a.watcher)
	decisions := a.buckets.observe(m)
	m.UnsettledEdits(a.settler.Abandoned)
	m.Adapting(a.reports, a.loop)
	a.self = a.look(decisions)
	observer := a.record(m, decisions)
	limiter := enforce.NewLimiter(a.buckets.shared(), a.buckets.local, observer, time.Now)
	a.shown, a.limiter = m, limiter
	lessor := enforce.NewLessor(a.buckets.lender(), observer, time.Now, func(err error) {
		log.Debug("tokens were not lent to a client", "error", err)
	})
	if a.buckets.redis != nil {
		lessor.LendWhile(a.buckets.lends)
	}
	m.Lessor(lessor.Stats)
	connections, overGRPC := checkConnections(cfg.CheckMaxConnections, log), 0
	if cfg.GRPCAddr != "" {
		overGRPC = connections / grpcShare
		connections -= overGRPC
	}
	parts := CheckParts{
		Watcher:   a.watcher,
		Limiter:   limiter,
		Lessor:    lessor,
		Creditor:  a.buckets.creditor(),
		KeyUsed:   a.keyUses.Note,
		Readiness: a.readiness,
		Log:       log,
		Observer:  m.Requests("check"),
		Tokens:    a.tokens,
		Reports:   a.reports,

		MaxConnections: connections,
		TrustedProxies: cfg.TrustedProxies,
	}
	if cfg.TraceEndpoint != "" {
		if a.tracer, err = servers.Tracer(cfg.TraceEndpoint, log); err != nil {
			return nil, err
		}
		parts.Tracer = a.tracer
	}
	checks := servers.Check(parts)
	m.CheckConnections(connections, checks.Connections)
	if a.checks, err = listen("check", cfg.CheckAddr, cfg.CheckCerts(), checks, log); err != nil {
		return nil, err
	}
	showCertificate(m, "check", a.checks)
	if cfg.GRPCAddr != "" {
		parts.MaxConnections = overGRPC
		server := servers.GRPC(parts)
		m.GRPCConnections(overGRPC, server.Connections)
		if a.grpc, err = listen("gRPC", cfg.GRPCAddr, cfg.GRPCCerts(), server, log, "h2"); err != nil {
			return nil, err
		}
		showCertificate(m, "grpc", a.grpc)
	}
	a.metrics, err = listenForScrapes(cfg, m, a.readiness, log)
	return a, err
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

// showRules returns metrics with those of the rules in memory.
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

// CheckAddr is the address of the check endpoint.
func (a *API) CheckAddr() net.Addr { return a.checks.Addr() }

// GRPCAddr is the address of the gRPC service, or nil if it is off.
func (a *API) GRPCAddr() net.Addr {
	if a.grpc == nil {
		return nil
	}
	return a.grpc.Addr()
}

// MetricsAddr is the address of the metrics.
func (a *API) MetricsAddr() net.Addr { return a.metrics.Addr() }

// Load reads the rules once, for a program whose database must answer. Run also reads them, and keeps trying.
func (a *API) Load(ctx context.Context) error { return a.watcher.Refresh(ctx) }

// Close releases what NewAPI opened; Run calls it.
func (a *API) Close() error {
	var errs []error
	for _, l := range []*listener{a.checks, a.grpc, a.metrics} {
		if l != nil {
			errs = append(errs, l.close())
		}
	}
	if a.tracer != nil {
		limited, cancel := context.WithTimeout(context.Background(), lastSpans)
		defer cancel()
		_ = a.tracer.Close(limited) // spans for a collector that is away are lost
	}
	if a.buckets != nil {
		errs = append(errs, a.buckets.close())
	}
	if a.store != nil {
		closeStore(a.store)
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
	a.log.Info("answering checks", addrs...)
	group, ctx := a.drain.begin(ctx, a.cfg.DrainDelay, a.log)
	group.Go(func() error { return checkSchema(ctx, a.cfg) })
	group.Go(func() error { a.watcher.Run(ctx); return nil })
	group.Go(func() error { a.settler.Run(ctx); return nil })
	group.Go(func() error { a.limiter.Run(ctx); return nil })
	group.Go(func() error { a.tokens.Run(ctx); return nil })
	group.Go(func() error { a.loop.Run(ctx); return nil })
	group.Go(func() error { warnOfDemoKey(ctx, a.cfg.Command, a.watcher, a.log); return nil })
	group.Go(func() error { a.keyUses.Run(ctx); return nil })
	group.Go(func() error { return a.buckets.watch(ctx) })
	if a.buckets.leases != nil {
		group.Go(func() error { turnLeases(ctx, a.buckets.leases, a.store.KnownToAll, a.log); return nil })
	}
	group.Go(func() error {
		select { // or the first report would say that Redis is down
		case <-a.buckets.pinged:
			fleet.Keep(ctx, a.store, a.self, a.log)
		case <-ctx.Done():
		}
		return nil
	})
	// Metrics are served until the last check is answered.
	drained, endMetrics := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer endMetrics()
		return a.serveChecks(ctx)
	})
	group.Go(func() error { return a.metrics.serve(drained, a.cfg.ShutdownTimeout) })
	group.Go(func() error { a.reports.Run(drained); return nil })
	if a.recorder != nil { // until the last check was recorded
		group.Go(func() error { a.recorder.Run(drained, a.cfg.ShutdownTimeout); return nil })
	}
	if a.traffic != nil {
		group.Go(func() error { a.traffic.Run(drained, a.cfg.ShutdownTimeout); return nil })
	}
	err := group.Wait()
	return errors.Join(err, a.Close()) //nolint:contextcheck // as above
}

// serveChecks serves HTTP and gRPC. If one fails, the other ends as well.
func (a *API) serveChecks(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.checks.serve(ctx, a.cfg.ShutdownTimeout) })
	if a.grpc != nil {
		group.Go(func() error { return a.grpc.serve(ctx, a.cfg.ShutdownTimeout) })
	}
	return group.Wait()
}

// checkSchema waits until the database answers, and refuses a schema that is behind. Meanwhile the process lives: a restart
// would not bring the database back.
func checkSchema(ctx context.Context, cfg config.Config) error {
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		err := pgstore.CheckSchema(ctx, string(cfg.DatabaseURL))
		if err == nil || errors.Is(err, pgstore.ErrSchemaBehind) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (a *API) readiness() httpapi.Readiness {
	return readiness(a.cfg.Command, a.watcher, a.buckets, a.drain.draining())
}

func readiness(command config.Command, watcher *snapshot.Watcher, buckets *buckets, draining bool) httpapi.Readiness {
	state := httpapi.Readiness{
		Draining:    draining,
		RulesLoaded: watcher.Snapshot() != nil,
		RulesAge:    watcher.Age(),
		Database:    "up",
		Warnings: slices.Concat(
			buckets.warnings(), unknownRuleWarnings(watcher.Snapshot()), demoKeyWarnings(command, watcher.Snapshot(), time.Now())),
	}
	state.Redis, _ = buckets.state()
	switch {
	case watcher.LastError() != nil:
		state.Database = "down"
	case !state.RulesLoaded:
		state.Database = "unknown"
	}
	return state
}

// unknownRuleWarnings warns if this process cannot apply all rules. The Watcher logs which.
func unknownRuleWarnings(snapshot *snapshot.Snapshot) []string {
	if snapshot == nil || snapshot.Sizes().UnknownRules == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d active rules have words that this process does not know, and act by their failure mode; "+
		"upgrade this process, or edit the rules", snapshot.Sizes().UnknownRules)}
}
