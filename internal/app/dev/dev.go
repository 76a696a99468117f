// Package dev runs all of Sluice in one process, to try it and to develop against it: `sluice dev`.
//
// It keeps a private Postgres and, if redis-server is installed, a private Redis in its data
// directory, creates a demo tenant with a key that everybody knows, and therefore listens on
// loopback only. A database or Redis that is given by its URL takes the place of the private one.
// The demo tenant is written once; what becomes of it afterwards is kept between runs.
package dev

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rulesfile"
)

// DemoToken is the demo tenant's API key. It exists in no database but those of sluice dev.
const DemoToken = "slk_demo_0123456789abcdef0123456789abcdef"

const demoSlug = "demo"

//go:embed demo.yaml
var demoRules []byte

// Run starts everything, prints what to try to out, and answers until ctx ends.
func Run(ctx context.Context, cfg config.Config, out io.Writer, log *slog.Logger) (err error) {
	private := cfg.DatabaseURL == ""
	stop, err := startServers(ctx, &cfg, log)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	if err := pgstore.Migrate(ctx, string(cfg.DatabaseURL), log); err != nil {
		return err
	}
	if err := createDemo(ctx, cfg, log); err != nil {
		return fmt.Errorf("create the demo tenant: %w", err)
	}
	api, err := app.NewAPI(ctx, cfg, log)
	if err != nil {
		return err
	}
	if err := api.Load(ctx); err != nil {
		return errors.Join(err, api.Close())
	}
	if err := greet(out, api, cfg, private); err != nil {
		return errors.Join(err, api.Close())
	}
	return api.Run(ctx)
}

// startServers starts the servers that the configuration names none of, and puts their addresses
// there. The function it returns stops them; it is never nil.
func startServers(ctx context.Context, cfg *config.Config, log *slog.Logger) (stop func() error, err error) {
	var stops []func() error
	stop = func() (err error) {
		for i := len(stops) - 1; i >= 0; i-- {
			err = errors.Join(err, stops[i]())
		}
		return err
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return stop, fmt.Errorf("data directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // the servers' user must get through it
		return stop, fmt.Errorf("data directory: %w", err)
	}
	// The servers outlive ctx: they are stopped after the requests under way have ended.
	starting := context.WithoutCancel(ctx)
	if cfg.DatabaseURL == "" {
		began := time.Now()
		postgres, err := devdb.StartPostgres(starting, filepath.Join(dir, "postgres"), devdb.PostgresOptions{})
		if err != nil {
			return stop, err
		}
		stops = append(stops, postgres.Stop)
		url, err := postgres.CreateDatabase(ctx, "sluice", "")
		if err != nil {
			return stop, err
		}
		cfg.DatabaseURL = config.ConnURL(url)
		log.Info("private Postgres started", "directory", postgres.Dir(), "took", time.Since(began))
	}
	if cfg.RedisURL == "" {
		redis, err := devdb.StartRedis(starting, filepath.Join(dir, "redis"))
		switch {
		case errors.Is(err, devdb.ErrNotInstalled):
			log.Warn("redis-server is not installed; buckets are kept in memory", "reason", err)
		case err != nil:
			return stop, err
		default:
			stops = append(stops, redis.Stop)
			cfg.RedisURL = config.ConnURL(redis.URL())
			log.Info("private Redis started", "address", redis.Addr())
		}
	}
	return stop, nil
}

// createDemo writes the demo tenant, unless it is there already.
func createDemo(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	store, err := pgstore.Open(ctx, string(cfg.DatabaseURL), log)
	if err != nil {
		return err
	}
	defer store.Close()
	tenant, err := store.TenantBySlug(ctx, demoSlug)
	if errors.Is(err, rules.ErrNotFound) {
		tenant, err = store.CreateTenant(ctx, rules.Tenant{
			Slug: demoSlug, Name: "Demo", DefaultPlan: "free", Settings: rules.DefaultSettings(),
		})
	}
	if err != nil {
		return err
	}
	if err := createDemoRules(ctx, store, tenant.ID); err != nil {
		return err
	}
	// The key comes last: where it is, all of the demo is.
	id, secret, _ := rules.SplitToken(DemoToken)
	_, err = store.CreateKey(ctx, rules.NamedKey{
		Key: rules.Key{
			ID: id, TenantID: tenant.ID, Digest: rules.DigestSecret(secret),
			Permissions: []rules.Permission{rules.PermissionCheck, rules.PermissionExplain},
		},
		Name: "demo",
	})
	if errors.Is(err, rules.ErrExists) {
		return nil
	}
	return err
}

// createDemoRules fills a tenant that has no rules yet.
func createDemoRules(ctx context.Context, store rules.Store, tenant rules.TenantID) error {
	desired, err := rulesfile.Decode(bytes.NewReader(demoRules), "demo.yaml", nil)
	if err != nil {
		return err
	}
	_, err = store.ChangeConfig(ctx, tenant, func(current rules.Config) (rules.Changes, error) {
		if len(current.Rules) > 0 {
			return rules.Changes{}, nil
		}
		return rules.Diff(current, desired, rules.DiffOptions{Now: time.Now()})
	})
	return err
}

// greeting says what to try.
const greeting = `
Sluice is running. Ask whether user 42 may have another report; paste this a few times:

  curl -i http://%s/v1/check \
    -H 'Authorization: Bearer %s' \
    -H 'Content-Type: application/json' \
    -d '{"user_id":"42","endpoint":"/api/reports","ip":"203.0.113.9"}'

Metrics  http://%s/metrics
Rules    go run ./cmd/admin export --tenant %s, with SLUICE_DATABASE_URL=%s
Data     %s (kept between runs)

Ctrl-C stops it.
`

// greet prints the greeting. The password of a private database is the business of whoever runs it;
// that of another one is not shown.
func greet(out io.Writer, api *app.API, cfg config.Config, private bool) error {
	database := cfg.DatabaseURL.String()
	if private {
		database = "'" + string(cfg.DatabaseURL) + "'"
	}
	_, err := fmt.Fprintf(out, greeting, api.CheckAddr(), DemoToken, api.MetricsAddr(), demoSlug, database, cfg.DataDir)
	return err
}
