// Package control wires the control plane: cmd/admin, and a half of sluice dev.
package control

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/checks/checkjson"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/notify/webhook"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/shares"
	"github.com/sluicegate/sluice/internal/store/membucket"
	"github.com/sluicegate/sluice/internal/telemetry/metrics"
	"github.com/sluicegate/sluice/web"
)

const adminDeadline = 20 * time.Second // exceeds the timeout of a hanging database; not for exports and imports

// Server is the control plane in one process.
type Server struct {
	*app.Process
	beside   *app.Process // the decision plane in the same process, or nil
	surface  *app.Listener
	webhooks *webhook.Sender
	access   *auth.AccessLog
	post     *auth.PostOffice // nil without a mail server
	watch    *databaseWatch
	jobs     *jobs.Runner
}

// NewServer builds the control plane, whose address Run opens once rules are loaded. Beside a decision plane it shares
// that Process, opens its address at once, and must be closed first.
func NewServer(ctx context.Context, cfg config.Config, beside *app.Process, log *slog.Logger) (_ *Server, err error) {
	a := &Server{Process: beside, beside: beside}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if beside == nil {
		if a.Process, err = app.Open(ctx, cfg, nil, log); err != nil {
			return nil, err
		}
	}
	m := a.Metrics
	limiter := enforce.NewLimiter(a.Buckets.Shared(), a.Buckets.Local, a.Decisions, time.Now) // explains checks
	showRequests := func(class string, count func() shares.Count) {
		m.AdminRequests(class, func() metrics.Slots { return metrics.Slots(count()) })
	}
	a.Store.ObserveShares(showRequests)
	a.access = auth.NewAccessLog(a.Store, log, time.Now) //nolint:contextcheck // events outlive their requests
	ui, err := web.Handler(log)
	if err != nil {
		return nil, err
	}
	closing := make(chan struct{})
	a.webhooks = webhook.New(webhook.Options{Allow: cfg.WebhookAllow, UI: a.url})
	if a.post, err = openPostOffice(cfg, a.Store, log); err != nil {
		return nil, err
	}
	if a.post != nil {
		m.Mail(a.post.Attempts)
	}
	keys := auth.NewKeyWatch(a.Store, a.access, a.post != nil, log)
	fill := fillBuckets(a.Watcher, a.Buckets.Manageable(beside != nil), a.Buckets.Local.Forget)
	work := kinds(cfg, a.Store, a.Watcher, a.webhooks, keys, fill, a.Buckets.ForgetTenant, log)
	if a.post != nil {
		work = append(work, a.post.Jobs())
	}
	a.jobs = jobs.New(a.Store, work, log)
	a.watch = &databaseWatch{store: a.Store, log: log}
	m.Jobs(a.jobs.Counts)
	for i := range work {
		if kind := work[i].Name; work[i].Every > 0 {
			m.PeriodicJob(kind, func() time.Duration { return a.watch.jobLags()[kind] })
		}
	}
	capacityRefusals := m.Capacity(a.watch.capacityUses)
	vault, err := auth.NewVault(string(cfg.SecretKeys))
	if err != nil {
		return nil, err
	}
	a.Store.SealWith(vault)
	if !vault.HasKey() {
		log.WarnContext(ctx, "without SLUICE_SECRET_KEY the secrets of alerts and audit webhooks are stored in plain "+
			"text")
	}
	providers, err := openProviders(cfg, a.url, log)
	if err != nil {
		return nil, err
	}
	countUnfinished := m.AccountChanges()
	gate := auth.NewGate(a.Store, auth.Options{
		Mail: a.post != nil, Vault: vault, RequireFactor: cfg.RequireFactor, NoPasswords: !cfg.PasswordSignIn,
		Unfinished: func(ctx context.Context, err error) {
			countUnfinished()
			warnUnfinished(ctx, log, err)
		},
	})
	handler, err := adminapi.NewHandler(adminapi.Config{ //nolint:contextcheck // each request has its own context
		Stores: a.Store, As: a.Store.As,
		People: a.Store, Idempotency: a.Store, Access: a.access, AccessEvents: a.Store, TenantGrace: cfg.TenantGrace,
		Gate: gate, Providers: providers,
		Violations: a.Store, Alerts: a.Store, AuditWebhooks: a.Store, CheckTarget: a.webhooks.CheckTarget,
		Fleet: a.Store, Recorded: a.Store, TrafficBudget: int64(cfg.TrafficTenantBudget) << 20,
		Version: config.ReadBuild().Version, Closing: closing,
		Snapshots: a.Watcher, KeyUsed: a.KeyUses.Note,
		Explain: func(ctx context.Context, tenant *snapshot.Tenant, body []byte) ([]byte, error) {
			return checkjson.Explain(ctx, limiter, body, tenant, time.Now())
		},
		ExplainCheck: func(ctx context.Context, tenant *snapshot.Tenant, check enforce.Check) ([]byte, error) {
			return checkjson.ExplainCheck(ctx, limiter, check, tenant, time.Now())
		},
		Buckets:      creditedBuckets(a.Process, beside != nil),
		CheckURL:     cfg.CheckURL,
		PlainCookies: cfg.Command == config.SluiceDev, TrustedProxies: cfg.TrustedProxies,
		Connections: a.Store.Connections(), ObserveShares: showRequests, CapacityRefused: capacityRefusals.Refused,
		RateLimiter: rateLimiter(m),
		Readiness:   a.Readiness,
		Requests:    &httpapi.Requests{Log: log, Observer: m.Requests("admin"), Deadline: adminDeadline},
		UI:          ui,
	})
	if err != nil {
		return nil, err
	}
	surface := httpapi.NewServer(handler, log)
	surface.RegisterOnShutdown(func() { close(closing) })
	if a.surface, err = a.NewListener("admin", cfg.AdminAddr, cfg.AdminCerts(), surface); err != nil || beside == nil {
		return a, err
	}
	return a, a.Listen(a.surface)
}

func (a *Server) url() string {
	if a.Config.AdminURL != "" {
		return a.Config.AdminURL
	}
	return "http://" + a.Addr().String() // sluice dev only; others must configure it
}

func rateLimiter(m *metrics.Metrics) *adminapi.RateLimiter {
	const maxBuckets = 100_000 // about 30 MB
	limiter := adminapi.NewRateLimiter(membucket.New(membucket.Options{MaxBuckets: maxBuckets}))
	for _, payer := range adminapi.Payers {
		m.AdminDenied(string(payer), func() int64 { return limiter.Denied(payer) })
	}
	return limiter
}

// Addr is the address of the admin API, once it is open.
func (a *Server) Addr() net.Addr { return a.surface.Addr() }

// Close releases what NewServer opened; Run calls it.
func (a *Server) Close() error {
	var errs []error
	if a.surface != nil {
		errs = append(errs, a.surface.Close())
	}
	if a.beside == nil && a.Process != nil {
		errs = append(errs, a.Process.Close())
	}
	return errors.Join(errs...)
}

// Run serves until ctx ends and the drain delay has passed, or the database's schema is behind this binary.
func (a *Server) Run(ctx context.Context) error {
	group, ctx := a.Begin(ctx)
	drained, endMetrics := context.WithCancel(context.WithoutCancel(ctx))
	group.Go("the admin API", func() error {
		defer endMetrics()
		return a.serveSurface(ctx)
	})
	group.Loop(ctx, "the security log", a.access.Run)
	group.Loop(ctx, "jobs", a.jobs.Run)
	group.Loop(ctx, "the watch of the database", a.watch.run)
	if a.beside == nil {
		a.RunParts(ctx, drained, group)
	}
	err := group.Wait()
	a.access.Flush(context.WithoutCancel(ctx)) // of requests that ended during the shutdown
	return errors.Join(err, a.Close())
}

// serveSurface waits for rules, because they hold the keys of automation.
func (a *Server) serveSurface(ctx context.Context) error {
	if !a.AwaitRules(ctx) {
		return nil
	}
	if err := a.Listen(a.surface); err != nil {
		return err
	}
	a.Log.InfoContext(ctx, "answering the admin API", "admin_addr", a.Addr().String(), "metrics_addr",
		a.MetricsAddr().String())
	return a.surface.Serve(ctx, a.Config.ShutdownTimeout)
}

func serve(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	server, err := NewServer(ctx, cfg, nil, log)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}
