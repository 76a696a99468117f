package control

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/app"
	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

func TestACreditIsWrittenBeforeItIsAnswered(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	var log bytes.Buffer
	cfg := config.Config{
		Command: config.AdminServe, DatabaseURL: config.ConnURL(devdbtest.Postgres(t)),
		RedisURL: config.ConnURL(devdbtest.Redis(t).URL()), MetricsAddr: "127.0.0.1:0", LocalBuckets: 16,
		StoreBudget: time.Minute, CheckpointAbove: time.Hour, Leases: config.LeasesOff,
	}
	process, err := app.Open(ctx, cfg, nil, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Close() })
	by := process.Store.As(rules.Actor{})
	acme, err := by.CreateTenant(ctx, rules.Tenant{
		Slug: "acme", Name: "acme", DefaultPlan: "free", Settings: rules.DefaultSettings(),
	})
	if err != nil {
		t.Fatal(err)
	}
	pattern, err := rules.ParsePattern("user:{user_id}")
	if err != nil {
		t.Fatal(err)
	}
	rule, err := by.CreateRule(ctx, rules.Rule{
		TenantID: acme.ID, Pattern: pattern, RateUnit: rules.PerSecond, Burst: 1000, Algorithm: rules.FixedWindow,
		Window: rules.Window{Length: 24 * time.Hour}, Mode: rules.ModeEnforce, Action: rules.ActionLimit, Active: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Watcher.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, string(cfg.DatabaseURL))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	key := enforce.Key{Tenant: acme.ID, Rule: rule.ID, Subject: "42"}
	wantWritten := func(what string, want int64) {
		t.Helper()
		var text []byte
		err := conn.QueryRow(ctx, "SELECT state FROM bucket_checkpoint WHERE tenant_id = $1 AND subject = '42'",
			acme.ID).Scan(&text)
		state, _, ok := enforce.ParseState(text)
		if err != nil || !ok || state.Level.Micros.Whole() != want {
			t.Errorf("%s: %d are left in the checkpoint, want %d: %v", what, state.Level.Micros.Whole(), want, err)
		}
	}
	buckets := creditedBuckets(process, false)
	credit := func(amount enforce.Tokens) {
		t.Helper()
		if _, _, err := buckets.Credit(ctx, key, rule.Limit(), amount); err != nil {
			t.Fatal(err)
		}
	}
	credit(-600 * enforce.Token)
	wantWritten("600 were taken", 400)
	_, _, _, err = buckets.CreditOnce(ctx, "once", key, rule.Limit(), 100*enforce.Token)
	if err != nil {
		t.Fatal(err)
	}
	wantWritten("100 were given", 500)
	credit(enforce.Fill)
	wantWritten("a reset", 1000)

	process.Store.Close()
	credit(-600 * enforce.Token)
	if !strings.Contains(log.String(), "could not write the checkpoint of a credited bucket") {
		t.Errorf("the log does not say that a credit was not written:\n%s", log.String())
	}
	wantWritten("without the database", 1000)
}
