package pgstore_test

import (
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// BenchmarkRead reads from 1,000 tenants with 10 rules each, one of which has 100,000 users on a plan.
func BenchmarkRead(b *testing.B) {
	url := devdbtest.Postgres(b)
	connection := must(pgx.Connect(b.Context(), url))(b)
	for _, sql := range []string{
		"INSERT INTO tenant (slug, name) SELECT 't' || n, 'T' FROM generate_series(1, 1000) AS n",
		"INSERT INTO plan (tenant_id, name, revision) SELECT tenant_id, 'free', 1 FROM tenant",
		`INSERT INTO rate_limit_rule (tenant_id, name, key_pattern, scope, rate_per_second, rate_unit, burst_capacity,
			algorithm, mode, action, is_active, in_force_since, revision)
			SELECT tenant_id, n, 'global', 'global', 1, 'second', 1, 'token_bucket', 'enforce', 'limit', true, now(), 1
			FROM tenant, generate_series(1, 10) AS n`,
		`INSERT INTO plan_assignment (tenant_id, user_id, plan, revision)
			SELECT (SELECT min(tenant_id) FROM tenant), n, 'free', 1 FROM generate_series(1, 100000) AS n`,
		"ANALYZE",
	} {
		if _, err := connection.Exec(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
	if err := connection.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	store := must(pgstore.Open(b.Context(), url, slog.New(slog.DiscardHandler)))(b)
	b.Cleanup(store.Close)
	known := map[rules.TenantID]int64{}
	for _, tenant := range must(store.Tenants(b.Context(), "", "", 10000))(b) {
		known[tenant.ID] = tenant.Revision
	}
	busy := must(store.TenantBySlug(b.Context(), "t1"))(b)
	read := func(b *testing.B, newerThan map[rules.TenantID]int64, want int) {
		for b.Loop() {
			rows := 0
			err := store.Read(b.Context(), newerThan, func(page snapshot.Rows) error {
				rows += len(page.Tenants) + len(page.Plans) + len(page.Rules) + len(page.Assignments)
				return nil
			})
			if err != nil || rows != want {
				b.Fatal(rows, err)
			}
		}
	}
	b.Run("a poll when nothing changed", func(b *testing.B) { read(b, known, 0) })
	b.Run("everything", func(b *testing.B) { read(b, nil, 1000+1000+10000+100000) })
	must(store.As(tester).AssignAll(b.Context(), busy.ID, onPlan("free", "new")))(b)
	b.Run("a poll when one of 100,000 users changed", func(b *testing.B) { read(b, known, 2) })
}
