package pgstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
)

// BenchmarkImport also counts what it adds to PostgreSQL's log and to the audit log.
func BenchmarkImport(b *testing.B) {
	const overrides = 10_000
	ctx, url := b.Context(), devdbtest.Postgres(b)
	store := must(pgstore.Open(ctx, url, slog.New(slog.DiscardHandler)))(b)
	b.Cleanup(store.Close)
	db := must(pgx.Connect(ctx, url))(b)
	b.Cleanup(func() { _ = db.Close(context.WithoutCancel(ctx)) })
	w := store.As(tester)
	tenant := must(w.CreateTenant(ctx, rules.Tenant{Slug: "t", Name: "T", Settings: rules.DefaultSettings()}))(b)
	rule := must(w.CreateRule(ctx, rules.Rule{
		TenantID: tenant.ID, Pattern: must(rules.ParsePattern("user:{user_id}"))(b), RatePerSecond: 1,
		RateUnit: rules.PerSecond, Burst: 1, Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce,
		Action: rules.ActionLimit, Active: true,
	}))(b)
	if _, err := db.Exec(ctx, "INSERT INTO tenant_capacity (tenant_id, overrides) VALUES ($1, 100000000)",
		tenant.ID); err != nil {
		b.Fatal(err)
	}
	size := func() (wal, log float64) {
		b.Helper()
		err := db.QueryRow(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8, "+
			"pg_total_relation_size('audit_event')::float8").Scan(&wal, &log)
		if err != nil {
			b.Fatal(err)
		}
		return wal, log
	}
	wal, log := size()
	var n int
	for b.Loop() {
		n++
		var changes ruleset.Changes
		for i := range overrides {
			changes.Overrides = append(changes.Overrides, ruleset.Change[ruleset.ConfigOverride]{
				After: &ruleset.ConfigOverride{
					Rule: rule.Identity(), Override: overrideOf(rule, fmt.Sprintf("user-%d-%d", n, i)),
				},
			})
		}
		must(w.ChangeConfig(ctx, tenant.ID, func(ruleset.Config) (ruleset.Changes, error) { return changes, nil }))(b)
	}
	walNow, logNow := size()
	b.ReportMetric((walNow-wal)/float64(n)/1e6, "MB-wal/import")
	b.ReportMetric((logNow-log)/float64(n)/1e6, "MB-audit/import")
}
