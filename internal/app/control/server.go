// Package control wires the control plane: cmd/admin, and a half of sluice dev. NewServer has all that serves people, and Run
// the commands.
//
// It stands apart from the decision plane, so that the program that people use links no check server, and the other one
// nothing of the admin API.
package control

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/sluicegate/sluice/internal/adminapi"
	"github.com/sluicegate/sluice/internal/allowance"
	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/checkjson"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/httpapi"
	"github.com/sluicegate/sluice/internal/metrics"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/shares"
	"github.com/sluicegate/sluice/internal/snapshot"
	"github.com/sluicegate/sluice/internal/webhook"
	"github.com/sluicegate/sluice/web"
)

// adminDeadline bounds requests to the admin API except exports and imports. It is above the timeout of a hanging database,
// and below that of connections.
const adminDeadline = 20 * time.Second

// Server is the control plane in one process: people and automation read and change rules.
type Server struct {
	*app.Process
	beside   *app.Process // what a decision plane in the same process runs on; nil for a process of its own
	surface  *app.Listener
	webhooks *webhook.Sender
	access   *auth.AccessLog
	post     *auth.PostOffice // nil without a mail server
	quotas   *quotaWatch
}

// NewServer builds the control plane and binds its addresses. Database and Redis need not answer yet. Beside a decision plane
// in the same process, it runs on that one's Process, and must be closed before it.
func NewServer(ctx context.Context, cfg config.Config, beside *app.Process, log *slog.Logger) (_ *Server, err error) {
	a := &Server{Process: beside, beside: beside}
	defer func() { //nolint:contextcheck // Close has deadlines of its own
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
	showPlaces := func(class string, count func() shares.Count) {
		m.AdminPlaces(class, func() metrics.Places { return metrics.Places(count()) })
	}
	a.Store.ObserveShares(showPlaces)
	a.access = auth.NewAccessLog(a.Store, log, time.Now) //nolint:contextcheck // an event is written even if its request has ended
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
	a.quotas = &quotaWatch{store: a.Store, log: log}
	quotaRefusals := m.Quotas(a.quotas.latest)
	vault, err := auth.NewVault(string(cfg.SecretKeys))
	if err != nil {
		return nil, err
	}
	a.Store.SealWith(vault)
	if !vault.HasKey() {
		log.WarnContext(ctx, "without SLUICE_SECRET_KEY the secrets of alerts and audit webhooks are stored in plain text")
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
	handler, err := adminapi.NewHandler(adminapi.Config{ //nolint:contextcheck // each request has a context of its own
		Stores: a.Store, As: func(by rules.Actor) adminapi.Writer { return a.Store.As(by) },
		People: a.Store, Once: a.Store, Access: a.access, AccessEvents: a.Store, TenantGrace: cfg.TenantGrace, Gate: gate, Providers: providers,
		Violations: a.Store, Alerts: a.Store, AuditWebhooks: a.Store, CheckTarget: a.webhooks.CheckTarget, Fleet: a.Store, Recorded: a.Store, TrafficBudget: int64(cfg.TrafficTenantBudget) << 20, Version: config.ReadBuild().Version, Closing: closing,
		Snapshots: a.Watcher, KeyUsed: a.KeyUses.Note,
		Explain: func(ctx context.Context, tenant *snapshot.Tenant, body []byte) ([]byte, error) {
			return checkjson.Explain(ctx, limiter, body, tenant, time.Now())
		},
		ExplainCheck: func(ctx context.Context, tenant *snapshot.Tenant, check enforce.Check) ([]byte, error) {
			return checkjson.ExplainCheck(ctx, limiter, check, tenant, time.Now())
		},
		Buckets:      a.Buckets.Manageable(beside != nil),
		CheckURL:     cfg.CheckURL,
		PlainCookies: cfg.Command == config.SluiceDev, TrustedProxies: cfg.TrustedProxies,
		ObserveShares: showPlaces, QuotaRefused: quotaRefusals.Refused,
		Allowances: allowances(cfg.AdminWork, m),
		Readiness:  a.Readiness,
		Requests:   &httpapi.Requests{Log: log, Observer: m.Requests("admin"), Deadline: adminDeadline},
		UI:         ui,
	})
	if err != nil {
		return nil, err
	}
	surface := httpapi.NewServer(handler, log)
	surface.RegisterOnShutdown(func() { close(closing) })
	a.surface, err = a.Listen("admin", cfg.AdminAddr, cfg.AdminCerts(), surface)
	return a, err
}

// url returns where browsers reach the web UI, without a slash at its end.
func (a *Server) url() string {
	if a.Config.AdminURL != "" {
		return a.Config.AdminURL
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

// Addr is the address of the admin API.
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

// Run serves until ctx ends and the drain delay has passed, waits up to the shutdown timeout for requests in flight, and closes everything. It returns
// early if the database's schema is behind this binary or a listener fails.
func (a *Server) Run(ctx context.Context) error {
	a.Log.Info("answering the admin API", "admin_addr", a.Addr().String(), "metrics_addr", a.MetricsAddr().String())
	group, ctx := a.Begin(ctx)
	drained, endMetrics := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error {
		defer endMetrics()
		return a.surface.Serve(ctx, a.Config.ShutdownTimeout)
	})
	group.Go(func() error { a.access.Run(ctx); return nil })
	group.Go(func() error { upkeep(ctx, a.Config, a.Store, a.webhooks, a.Log); return nil })
	group.Go(func() error { a.quotas.run(ctx); return nil })
	group.Go(func() error { auth.NewKeyWatch(a.Store, a.access, a.post != nil, a.Log).Run(ctx); return nil })
	if a.post != nil {
		group.Go(func() error { a.post.Run(ctx); return nil })
	}
	if a.beside == nil {
		a.RunParts(ctx, drained, group)
	}
	err := group.Wait()
	a.access.Flush(context.WithoutCancel(ctx)) // of requests that ended while the server stopped
	return errors.Join(err, a.Close())         //nolint:contextcheck // Close has deadlines of its own
}

func serve(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	server, err := NewServer(ctx, cfg, nil, log)
	if err != nil {
		return err
	}
	return server.Run(ctx)
}
