package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/allowance"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/checkjson"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/metrics"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/shares"
	"github.com/sluicegate/sluice/internal/snapshot"
	"github.com/sluicegate/sluice/internal/webhook"
	"github.com/sluicegate/sluice/web"
)

// adminDeadline bounds requests to the admin API except exports and imports. It is above the timeout of a hanging database,
// and below that of connections.
const adminDeadline = 20 * time.Second

// AdminServer is the control plane in one process: people and automation read and change rules.
type AdminServer struct {
	cfg     config.Config
	log     *slog.Logger
	beside  *API // in the same process; nil for a process of its own
	store   *pgstore.Store
	buckets *buckets
	watcher *snapshot.Watcher
	keyUses *snapshot.KeyUses
	surface *listener
	metrics *listener // nil beside an API, which has one
	drain   drain

	webhooks *webhook.Sender
	access   *auth.AccessLog
	post     *auth.PostOffice // nil without a mail server
}

// NewAdminServer builds the control plane and binds its addresses. Database and Redis need not answer yet. Beside an API in
// the same process, it shares the API's rules, buckets and metrics, and must be closed before it.
func NewAdminServer(ctx context.Context, cfg config.Config, beside *API, log *slog.Logger) (_ *AdminServer, err error) {
	a := &AdminServer{cfg: cfg, log: log, beside: beside}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	var m *metrics.Metrics
	var limiter *enforce.Limiter
	if beside != nil {
		a.store, a.buckets, a.watcher, a.keyUses = beside.store, beside.buckets, beside.watcher, beside.keyUses
		m, limiter = beside.shown, beside.limiter
	} else {
		if err := a.open(ctx); err != nil {
			return nil, err
		}
		m = showRules(a.store, a.watcher)
		limiter = enforce.NewLimiter(a.buckets.shared(), a.buckets.local, a.buckets.observe(m), time.Now)
		if a.metrics, err = listenForScrapes(cfg, m, a.readiness, log); err != nil {
			return nil, err
		}
	}
	showPlaces := func(class string, count func() shares.Count) {
		m.AdminPlaces(class, func() metrics.Places { return metrics.Places(count()) })
	}
	a.store.ObserveShares(showPlaces)
	a.access = auth.NewAccessLog(a.store, log, time.Now) //nolint:contextcheck // an event is written even if its request has ended
	ui, err := web.Handler(log)
	if err != nil {
		return nil, err
	}
	closing := make(chan struct{})
	a.webhooks = webhook.New(webhook.Options{Allow: cfg.WebhookAllow})
	if a.post, err = openPostOffice(cfg, a.store, log); err != nil {
		return nil, err
	}
	vault, err := auth.NewVault(string(cfg.SecretKeys))
	if err != nil {
		return nil, err
	}
	providers, err := openProviders(cfg, a.url, log)
	if err != nil {
		return nil, err
	}
	gate := auth.NewGate(a.store, auth.Options{Mail: a.post != nil, Vault: vault, RequireFactor: cfg.RequireFactor, NoPasswords: !cfg.PasswordSignIn})
	handler, err := adminapi.NewHandler(adminapi.Config{ //nolint:contextcheck // each request has a context of its own
		Stores: a.store, As: func(by rules.Actor) adminapi.Writer { return a.store.As(by) },
		People: a.store, Once: a.store, Access: a.access, AccessEvents: a.store, TenantGrace: cfg.TenantGrace, Gate: gate, Providers: providers,
		Violations: a.store, Alerts: a.store, CheckTarget: a.webhooks.CheckTarget, Fleet: a.store, Recorded: a.store, Version: config.ReadBuild().Version, Closing: closing,
		Snapshots: a.watcher, KeyUsed: a.keyUses.Note,
		Explain: func(ctx context.Context, tenant *snapshot.Tenant, body []byte) ([]byte, error) {
			return checkjson.Explain(ctx, limiter, body, tenant, time.Now())
		},
		ExplainCheck: func(ctx context.Context, tenant *snapshot.Tenant, check enforce.Check) ([]byte, error) {
			return checkjson.ExplainCheck(ctx, limiter, check, tenant, time.Now())
		},
		Buckets:      a.manageable(),
		CheckURL:     checkURL(cfg, beside),
		PlainCookies: cfg.Command == config.SluiceDev, TrustedProxies: cfg.TrustedProxies,
		ObserveShares: showPlaces,
		Allowances:    allowances(cfg.AdminWork, m),
		Readiness:     a.readiness,
		Requests:      &httpapi.Requests{Log: log, Observer: m.Requests("admin"), Deadline: adminDeadline},
		UI:            ui,
	})
	if err != nil {
		return nil, err
	}
	surface := httpapi.NewServer(handler, log)
	surface.RegisterOnShutdown(func() { close(closing) })
	a.surface, err = listen("admin", cfg.AdminAddr, cfg.AdminCerts(), surface, log)
	if err == nil {
		showCertificate(m, "admin", a.surface)
	}
	return a, err
}

// open opens the parts that an API beside it would share.
func (a *AdminServer) open(ctx context.Context) (err error) {
	if a.store, err = pgstore.Open(ctx, string(a.cfg.DatabaseURL), a.log); err != nil {
		return err
	}
	if a.buckets, err = openBuckets(ctx, a.cfg, a.log); err != nil {
		return err
	}
	a.watcher = snapshot.NewWatcher(a.store, snapshot.WatcherOptions{
		PollInterval: a.cfg.PollInterval, RereadInterval: a.cfg.RereadInterval, Logger: a.log,
	})
	a.keyUses = snapshot.NewKeyUses(a.store, a.log)
	return nil
}

// url returns where browsers reach the web UI, without a slash at its end.
func (a *AdminServer) url() string {
	if a.cfg.AdminURL != "" {
		return a.cfg.AdminURL
	}
	return "http://" + a.Addr().String() // of sluice dev; others must say
}

// allowances limit the work of the admin API.
func allowances(work config.Work, m *metrics.Metrics) *allowance.Allowances {
	a := allowance.New(allowance.Rates{
		allowance.Tenant: work.Tenant, allowance.Account: work.Account, allowance.Platform: work.Platform, allowance.Network: work.Network,
	}, nil)
	for _, class := range allowance.Classes {
		m.AdminAllowance(string(class), func() int64 { return a.Denied(class) }, func() time.Duration { return a.Worked(class) })
	}
	return a
}

// checkURL returns the configured URL of the check endpoint, or that of the API in this process.
func checkURL(cfg config.Config, beside *API) string {
	if cfg.CheckURL == "" && beside != nil {
		return "http://" + beside.CheckAddr().String()
	}
	return cfg.CheckURL
}

// manageable returns the buckets that checks take from, or nil if those are in other processes' memory.
func (a *AdminServer) manageable() adminapi.Buckets {
	switch {
	case a.buckets.redis != nil:
		return a.buckets.redis
	case a.buckets.pg != nil:
		return a.buckets.pg.store
	case a.beside != nil:
		return a.buckets.local
	}
	return nil
}

func (a *AdminServer) readiness() httpapi.Readiness {
	return readiness(a.cfg.Command, a.watcher, a.buckets, a.drain.draining())
}

// Addr is the address of the admin API.
func (a *AdminServer) Addr() net.Addr { return a.surface.Addr() }

// MetricsAddr is the address of the metrics.
func (a *AdminServer) MetricsAddr() net.Addr {
	if a.beside != nil {
		return a.beside.MetricsAddr()
	}
	return a.metrics.Addr()
}

// Close releases what NewAdminServer opened; Run calls it.
func (a *AdminServer) Close() error {
	var errs []error
	for _, l := range []*listener{a.surface, a.metrics} {
		if l != nil {
			errs = append(errs, l.close())
		}
	}
	if a.beside != nil {
		return errors.Join(errs...)
	}
	if a.buckets != nil {
		errs = append(errs, a.buckets.close())
	}
	if a.store != nil {
		closeStore(a.store)
	}
	return errors.Join(errs...)
}

// Run serves until ctx ends and the drain delay has passed, waits up to the shutdown timeout for requests in flight, and closes everything. It returns
// early if the database's schema is behind this binary or a listener fails.
func (a *AdminServer) Run(ctx context.Context) error {
	a.log.Info("answering the admin API", "admin_addr", a.Addr().String(), "metrics_addr", a.MetricsAddr().String())
	group, ctx := a.drain.begin(ctx, a.cfg.DrainDelay, a.log)
	drained, endMetrics := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer endMetrics()
		return a.surface.serve(ctx, a.cfg.ShutdownTimeout)
	})
	group.Go(func() error { a.access.Run(ctx); return nil })
	group.Go(func() error { upkeep(ctx, a.cfg, a.store, a.webhooks, a.log); return nil })
	if a.post != nil {
		group.Go(func() error { a.post.Run(ctx); return nil })
	}
	if a.beside == nil {
		group.Go(func() error { return checkSchema(ctx, a.cfg) })
		group.Go(func() error { a.watcher.Run(ctx); return nil })
		group.Go(func() error { warnOfDemoKey(ctx, a.cfg.Command, a.watcher, a.log); return nil })
		group.Go(func() error { a.keyUses.Run(ctx); return nil })
		group.Go(func() error { return a.buckets.watch(ctx) })
		group.Go(func() error { return a.metrics.serve(drained, a.cfg.ShutdownTimeout) })
	}
	err := group.Wait()
	a.access.Flush(context.WithoutCancel(ctx)) // of requests that ended while the server stopped
	return errors.Join(err, a.Close())
}

func serveAdmin(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	server, err := NewAdminServer(ctx, cfg, nil, log)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}
