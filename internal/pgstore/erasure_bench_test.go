package pgstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
)

// fillFor writes half as many counts and violations about ada as rows, and packed entries of the audit log with one row
// about ada among a thousand.
func fillFor(b *testing.B, db *pgx.Conn, tenant rules.TenantID, rule rules.RuleID, rows, packs int) {
	b.Helper()
	for _, sql := range []string{
		fmt.Sprintf(`INSERT INTO violation_minute (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
			SELECT %d, date_trunc('minute', now()) - make_interval(mins => n / 50), %d,
				'3:ada,4:/e' || lpad((n %% 50)::text, 2, '0'), false, 1, 0
			FROM generate_series(1, %d) AS n`, tenant, rule, rows/2),
		fmt.Sprintf(`INSERT INTO rate_limit_violation (tenant_id, requested_at, last_at, count, rule_id, bucket_key,
			scope,
				mode, reason, key_pattern, rule_version, rate_per_second, burst_capacity, cost, algorithm, limit_text,
				user_id, ip_address, endpoint)
			SELECT %d, now() - n * interval '100 milliseconds', now(), 1, %d, '%d:ada', 'user', 'enforce',
				'limit_exceeded', 'user:{user_id}', 1, 1, 1, 1, 'token_bucket', '1/s', 'ada', '203.0.113.9', '/search'
			FROM generate_series(1, %d) AS n`, tenant, rule, rule, rows/2),
		fmt.Sprintf(`INSERT INTO audit_event (tenant_id, at, actor_kind, actor_id, actor_name, act, request_id, action,
				object_kind, object_id, change_id, row_count, rows)
			SELECT %d, now(), 'account', '7', '', 'import', '', 'create', 'override', '', p, 1000, jsonb_agg(
				jsonb_build_object('id', %d || ':' || u, 'before', NULL, 'after', jsonb_build_object('rule_id', %d,
					'user_id', u, 'rate_per_second', 1, 'rate_unit', 'second', 'burst_capacity', 10,
					'reason', 'asked')))
			FROM generate_series(1, %d) AS p, LATERAL (
				SELECT CASE n WHEN 500 THEN 'ada' ELSE 'user-' || p || '-' || n END AS u
				FROM generate_series(1, 1000) AS n
			) AS of
			GROUP BY p`, tenant, rule, rule, packs),
		"VACUUM ANALYZE",
	} {
		if _, err := db.Exec(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkErasure erases a user with ten million rows and 200 packed entries of the audit log.
func BenchmarkErasure(b *testing.B) {
	const rows, packs = 10_000_000, 200
	for b.Loop() {
		ctx, url := b.Context(), devdbtest.Postgres(b)
		db := must(pgx.Connect(ctx, url))(b)
		b.Cleanup(func() { _ = db.Close(context.WithoutCancel(ctx)) })
		store := must(pgstore.Open(ctx, url, slog.New(slog.DiscardHandler)))(b)
		b.Cleanup(store.Close)
		w := store.As(tester)
		tenant := must(w.CreateTenant(ctx, rules.Tenant{Slug: "t", Name: "T", Settings: rules.DefaultSettings()}))(b)
		rule := must(w.CreateRule(ctx, rules.Rule{
			TenantID: tenant.ID, Pattern: must(rules.ParsePattern("user:{user_id}:endpoint:{endpoint}"))(b),
			RatePerSecond: 1, RateUnit: rules.PerSecond, Burst: 1, Algorithm: rules.TokenBucket,
			Mode: rules.ModeEnforce, Action: rules.ActionLimit, Active: true,
		}))(b)
		fillFor(b, db, tenant.ID, rule.ID, rows, packs)
		receipt := must(w.EraseUser(ctx, tenant.ID, "ada"))(b)
		var id int64
		if err := db.QueryRow(ctx, "SELECT erasure_id FROM user_erasure").Scan(&id); err != nil {
			b.Fatal(err)
		}
		spent := map[string]time.Duration{}
		var whole, longest time.Duration
		for goesOn := true; goesOn; {
			began := time.Now()
			var step string
			var err error
			if step, goesOn, err = store.ErasePiece(ctx, tenant.ID, id, threeBuckets); err != nil {
				b.Fatal(err)
			}
			took := time.Since(began)
			spent[step] += took
			whole, longest = whole+took, max(longest, took)
		}
		var erased int64
		for _, step := range must(store.Erasure(ctx, tenant.ID, receipt.ID))(b).Steps {
			erased += step.Rows
		}
		if want := int64(rows + packs + 3); erased != want {
			b.Fatalf("%d rows were erased, want %d: %v", erased, want, spent)
		}
		b.ReportMetric(whole.Seconds(), "s-erasure")
		b.ReportMetric(longest.Seconds(), "s-longest-piece")
		for _, step := range []string{"counts", "violations", "audit_entries"} {
			b.ReportMetric(spent[step].Seconds(), "s-"+step)
		}
	}
}
