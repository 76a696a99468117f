// Package dev runs all of Sluice in one process: `sluice dev`.
//
// It keeps a private Postgres and, if redis-server is installed, a private Redis in its data directory. The demo tenant
// has a public key, so dev listens only on loopback, and refuses a database with other tenants before any migration.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/app/control"
	"github.com/sluicegate/sluice/internal/app/decide"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/pgstore/migrate"
)

// Run starts everything, prints a greeting to out, and serves until ctx ends.
func Run(ctx context.Context, cfg config.Config, out io.Writer, log *slog.Logger) (err error) {
	if cfg.DatabaseURL != "" {
		if err := refuseForeign(ctx, string(cfg.DatabaseURL)); err != nil {
			return err
		}
	}
	data, stop, err := startServers(ctx, &cfg, log)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	err = migrate.Up(ctx, string(cfg.DatabaseURL), log)
	if errors.Is(err, pgstore.ErrUnreleased) && data != "" {
		return fmt.Errorf("remove the folder %s and start again, which loses the demo's data: %w", cfg.DataDir, err)
	}
	if err != nil {
		return err
	}
	works, err := createDemo(ctx, cfg, log)
	if err != nil {
		return err
	}
	api, err := decide.NewAPI(ctx, cfg, log)
	if err != nil {
		return err
	}
	if err := api.Load(ctx); err != nil {
		return errors.Join(err, api.Close()) //nolint:contextcheck // Close has deadlines of its own
	}
	if cfg.CheckURL == "" {
		cfg.CheckURL = "http://" + api.CheckAddr().String()
	}
	admin, err := control.NewServer(ctx, cfg, api.Process, log)
	if err != nil {
		return errors.Join(err, api.Close()) //nolint:contextcheck // Close has deadlines of its own
	}
	if err := greet(out, api, admin, cfg, data, works); err != nil {
		return errors.Join(err, admin.Close(), api.Close()) //nolint:contextcheck // as above
	}
	return runBoth(ctx, api, admin)
}

// runBoth ends the API last, because the other plane shares its parts.
func runBoth(ctx context.Context, api *decide.API, admin *control.Server) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	apiCtx, stopAPI := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAPI()
	ended := make(chan error, 1)
	panics.Go(nil, "the decision plane", func() {
		defer stop()
		ended <- panics.Do(nil, "the decision plane", func() error { return api.Run(apiCtx) })
	})
	err := admin.Run(ctx)
	stopAPI()
	return errors.Join(err, <-ended)
}

func startServers(ctx context.Context, cfg *config.Config, log *slog.Logger) (data string, stop func() error,
	err error,
) {
	var stops []func() error
	stop = func() (err error) {
		for i := len(stops) - 1; i >= 0; i-- {
			err = errors.Join(err, stops[i]())
		}
		return err
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return data, stop, fmt.Errorf("data directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // the servers' user must get through it
		return data, stop, fmt.Errorf("data directory: %w", err)
	}
	if cfg.SecretKeys == "" {
		if cfg.SecretKeys, err = secretKey(dir); err != nil {
			return data, stop, err
		}
	}
	// The servers outlive ctx, for the requests in flight.
	starting := context.WithoutCancel(ctx)
	if cfg.DatabaseURL == "" {
		began := time.Now()
		postgres, err := devdb.StartPostgres(starting, filepath.Join(dir, "postgres"), devdb.PostgresOptions{})
		if err != nil {
			return data, stop, err
		}
		stops = append(stops, postgres.Stop)
		url, err := postgres.CreateDatabase(ctx, "sluice")
		if err != nil {
			return data, stop, err
		}
		cfg.DatabaseURL = config.ConnURL(url)
		data = postgres.Dir()
		log.Info("private Postgres started", "directory", postgres.Dir(), "took", time.Since(began))
	}
	if cfg.RedisURL == "" && (cfg.Buckets == "" || cfg.Buckets == config.BucketsInRedis) {
		redis, err := devdb.StartGuardedRedis(starting, filepath.Join(dir, "redis"))
		switch {
		case errors.Is(err, devdb.ErrNotInstalled) && cfg.Buckets == "":
			log.Warn("redis-server is not installed; buckets are kept in memory", "reason", err)
		case err != nil:
			return data, stop, err
		default:
			stops = append(stops, redis.Stop)
			cfg.RedisURL = config.ConnURL(redis.URL())
			log.Info("private Redis started", "address", redis.Addr())
		}
	}
	return data, stop, nil
}

const greeting = `
Sluice is running. %s
Admin    http://%s (sign in as %s with the password %s)
API      http://%s/api/v1/docs
gRPC     %s (Envoy's rate limit service)
Metrics  http://%s/metrics
Rules    go run ./cmd/admin export --tenant %s, with SLUICE_DATABASE_URL=%s
Data     %s

Ctrl-C stops it.
`

const tryIt = `Ask whether user 42 may have another report; paste this a few times:

  curl -i http://%s/v1/check \
    -H 'Authorization: Bearer %s' \
    -H 'Content-Type: application/json' \
    -d '{"user_id":"42","endpoint":"/api/reports","ip":"203.0.113.9"}'
`

const tryYours = `The demo's key is revoked; ask http://%s/v1/check with one of yours.
`

func greet(out io.Writer, api *decide.API, admin *control.Server, cfg config.Config, data string, works bool) error {
	database, kept := cfg.DatabaseURL.String(), "in the database that was given"
	if data != "" {
		database, kept = "'"+string(cfg.DatabaseURL)+"'", data+" (kept between runs)"
	}
	try := fmt.Sprintf(tryIt, api.CheckAddr(), app.DemoToken)
	if !works {
		try = fmt.Sprintf(tryYours, api.CheckAddr())
	}
	_, err := fmt.Fprintf(out, greeting, try, admin.Addr(), demoEmail, demoPassword, admin.Addr(), api.GRPCAddr(),
		api.MetricsAddr(), demoSlug, database, kept)
	return err
}
