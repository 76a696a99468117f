package pgstore_test

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

// BenchmarkRead reads 1,000 tenants with 10 rules each, one of them with 100,000 users on a plan.
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

// BenchmarkReread has 10,000 tenants with 100,000 rules and 1,000,000 overrides. database-ms/op is the processor time
// of the backend, by /proc, for a process's work of a minute.
func BenchmarkReread(b *testing.B) {
	url := devdbtest.Postgres(b)
	connection := must(pgx.Connect(b.Context(), url))(b)
	for _, sql := range []string{
		"SET session_replication_role = replica",
		"INSERT INTO tenant (slug, name) SELECT 't' || n, 'T' FROM generate_series(1, 10000) AS n",
		`INSERT INTO rate_limit_rule (tenant_id, name, key_pattern, scope, rate_per_second, rate_unit, burst_capacity,
			algorithm, mode, action, is_active, in_force_since, revision)
			SELECT tenant_id, n, 'user:{user_id}:endpoint:/' || n, 'user', 1, 'second', 1, 'token_bucket', 'enforce',
				'limit', true, now(), 1
			FROM tenant, generate_series(1, 10) AS n`,
		`INSERT INTO rate_limit_override (tenant_id, rule_id, user_id, rate_per_second, rate_unit, burst_capacity,
			reason, in_force_since, revision)
			SELECT tenant_id, rule_id, 'user-' || n, 2, 'second', 2, 'asked for more', now(), 1
			FROM rate_limit_rule, generate_series(1, 10) AS n`,
		"VACUUM ANALYZE",
	} {
		if _, err := connection.Exec(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
	store := must(pgstore.Open(b.Context(), url+"&pool_max_conns=1", slog.New(slog.DiscardHandler)))(b)
	b.Cleanup(store.Close)
	known := map[rules.TenantID]int64{}
	_, digests, err := store.Digests(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for id, digest := range digests {
		known[id] = digest.Revision
	}
	reread := func(b *testing.B, compare bool, newerThan map[rules.TenantID]int64) {
		spent := backendTime(b, connection)
		for b.Loop() {
			if compare {
				if _, _, err := store.Digests(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			if err := store.Read(b.Context(), newerThan, func(snapshot.Rows) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		spent = backendTime(b, connection) - spent
		b.ReportMetric(float64(spent.Milliseconds())/float64(b.N), "database-ms/op")
	}
	b.Run("everything", func(b *testing.B) { reread(b, false, nil) })
	b.Run("digests when nothing changed", func(b *testing.B) { reread(b, true, known) })
	without := maps.Clone(known)
	for id := range known {
		if id%100 == 0 {
			delete(without, id)
		}
	}
	b.Run("digests when one of 100 tenants changed", func(b *testing.B) { reread(b, true, without) })
}

func backendTime(b *testing.B, connection *pgx.Conn) (spent time.Duration) {
	b.Helper()
	rows, err := connection.Query(b.Context(), `SELECT pid FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	for _, pid := range must(pgx.CollectRows(must(rows, err)(b), pgx.RowTo[int32]))(b) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			b.Skip("what the database spends is not known here: ", err)
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		const tick = time.Second / 100 // USER_HZ
		for _, ticks := range strings.Fields(after)[11:13] {
			spent += time.Duration(must(strconv.Atoi(ticks))(b)) * tick
		}
	}
	return spent
}
