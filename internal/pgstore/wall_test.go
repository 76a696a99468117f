package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/pgstore/internal/dbsqlc"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
)

const insufficientPrivilege = "42501"

// A new table without policies, or with rights that nobody meant to give, fails.
func TestEachTableOfTenantsHasItsPolicies(t *testing.T) {
	t.Parallel()
	conn := connect(t, devdbtest.Postgres(t))
	role := tenantRoleOf(t, conn)
	var policies []string
	for _, table := range tablesOfTenants(t, conn) {
		policies = append(policies, table+" every_row PERMISSIVE {public} ALL true", fmt.Sprintf(
			"%s one_tenant RESTRICTIVE {%s} ALL (tenant_id = (NULLIF(current_setting('sluice.tenant'::text, true), "+
				"''::text))::bigint)", table, role))
	}
	got := lines(t, conn, `SELECT concat_ws(' ', tablename, policyname, permissive, roles, cmd, qual, with_check)
		FROM pg_policies JOIN pg_class ON relname = tablename AND relnamespace = 'public'::regnamespace
			AND relrowsecurity
		WHERE schemaname = 'public' ORDER BY tablename, policyname`)
	if !slices.Equal(got, policies) {
		t.Errorf("policies in force are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(policies, "\n"))
	}
	var rights []string
	for _, table := range tablesOfTenants(t, conn) {
		switch table {
		case "audit_event":
			rights = append(rights, table+" INSERT,SELECT")
		case "access_event", "tenant_capacity", "tenant_use":
			rights = append(rights, table+" SELECT")
		case "tenant":
			rights = append(rights, table+" SELECT,UPDATE")
		default:
			rights = append(rights, table+" DELETE,INSERT,SELECT,UPDATE")
		}
	}
	rights = append(rights, "api_process SELECT", "leader SELECT", "platform_audit_event INSERT")
	slices.Sort(rights)
	got = lines(t, conn, `SELECT relname || ' ' || string_agg(privilege_type, ',' ORDER BY privilege_type)
		FROM pg_class, aclexplode(relacl) WHERE relkind <> 'S' AND grantee = $1::text::regrole GROUP BY relname`, role)
	slices.Sort(got)
	if !slices.Equal(got, rights) {
		t.Errorf("the tenant role has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(rights, "\n"))
	}
	hidden := lines(t, conn, `SELECT attname FROM pg_attribute
		WHERE attrelid = 'account'::regclass AND attnum > 0
			AND NOT has_column_privilege($1, attrelid, attnum, 'SELECT')`, role)
	if !slices.Contains(hidden, "password_hash") {
		t.Errorf("of accounts the tenant role cannot see %v, want password_hash among them", hidden)
	}
}

func TestRawSQLOfATenantReachesOneTenant(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	fillEveryTable(t, w)
	owner, process := connect(t, w.url), connect(t, runtimeOf(t, w.url))
	role := tenantRoleOf(t, owner)
	ours, theirs := w.ours.ID, w.theirs.ID
	for _, table := range tablesOfTenants(t, owner) {
		var rowsOfOurs, rowsOfTheirs int
		var copied string
		err := owner.QueryRow(t.Context(),
			fmt.Sprintf(`SELECT count(*) FILTER (WHERE tenant_id = $1), count(*) FILTER (WHERE tenant_id = $2),
			(array_agg(to_jsonb(x)::text) FILTER (WHERE tenant_id = $2))[1] FROM %s AS x`, table), ours, theirs).
			Scan(&rowsOfOurs, &rowsOfTheirs, &copied)
		if err != nil || rowsOfOurs == 0 || rowsOfTheirs == 0 {
			t.Errorf("%s: %d rows are ours and %d theirs (%v), so nothing is shown", table, rowsOfOurs, rowsOfTheirs,
				err)
			continue
		}
		try := func(tenant, sql string, args ...any) (int64, error) {
			return asTenant(t, process, role, tenant, sql, args...)
		}
		me := fmt.Sprint(ours)
		if n, err := try(me, "SELECT FROM "+table); err != nil || n != int64(rowsOfOurs) {
			t.Errorf("%s: we see %d rows (%v), want our %d", table, n, err, rowsOfOurs)
		}
		for _, nobody := range []string{"", "0"} {
			if n, err := try(nobody, "SELECT FROM "+table); err != nil || n != 0 {
				t.Errorf("%s: tenant %q sees %d rows (%v)", table, nobody, n, err)
			}
		}
		column := "tenant_id"
		if table == "tenant" {
			column = "updated_at" // its own id is never updated, whoever tries
		}
		for what, sql := range map[string]string{
			"read": "SELECT FROM %s WHERE tenant_id = $1", "update": "UPDATE %s SET " + column + " = " + column +
				" WHERE tenant_id = $1",
			"delete": "DELETE FROM %s WHERE tenant_id = $1", "lock": "SELECT FROM %s WHERE tenant_id = $1 FOR UPDATE",
		} {
			if n, err := try(me, fmt.Sprintf(sql, table), theirs); n != 0 || err != nil && !isRefusal(err) {
				t.Errorf("%s: we %s %d of their rows (%v)", table, what, n, err)
			}
		}
		if _, err := try(me, fmt.Sprintf("UPDATE %s SET tenant_id = $1", table), theirs); table != "tenant" &&
			!isRefusal(err) {
			t.Errorf("%s: giving our rows to them ends with %v", table, err)
		}
		insert := fmt.Sprintf("INSERT INTO %[1]s OVERRIDING SYSTEM VALUE SELECT (jsonb_populate_record(NULL::%[1]s, "+
			"$1::jsonb)).*", table)
		if _, err := try(me, insert, copied); !isRefusal(err) {
			t.Errorf("%s: inserting a row of theirs ends with %v", table, err)
		}
		if n, err := asTenant(t, process, "", "", "SELECT FROM "+table+" WHERE tenant_id IN ($1, $2)", ours,
			theirs); err != nil || n != int64(rowsOfOurs+rowsOfTheirs) {
			t.Errorf("%s: the login role sees %d rows (%v), want all %d", table, n, err, rowsOfOurs+rowsOfTheirs)
		}
	}
	for what, sql := range map[string]string{
		"a partition":           "SELECT FROM rate_limit_violation_default",
		"a partition of counts": "SELECT FROM violation_minute_default",
		"a password's hash":     "SELECT password_hash FROM account",
		"sessions":              "SELECT FROM session",
		"the platform's log":    "SELECT FROM platform_audit_event",
		"a day of decisions":    "SELECT FROM decision_minute_default",
		"making partitions":     "SELECT make_day_partition('violation_minute', current_date)",
		"dropping partitions":   "SELECT drop_day_partitions('decision_minute', current_date - 9)",
		"disabling policies":    "ALTER TABLE plan DISABLE ROW LEVEL SECURITY",
		"a policy of its own":   "CREATE POLICY mine ON plan USING (true)",
	} {
		if _, err := asTenant(t, process, role, fmt.Sprint(ours), sql); !isRefusal(err) {
			t.Errorf("%s: the tenant role gets %v", what, err)
		}
	}
}

func TestAQueryThatForgetsItsTenantFindsOneTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ours := t.Context(), w.ours.ID
	const forgetful = "SELECT count(*), min(tenant_id), max(tenant_id) FROM rate_limit_rule"
	var n, first, last int64
	if err := w.ConnectionOf(ours).QueryRow(ctx, forgetful).Scan(&n, &first, &last); err != nil || n != 2 ||
		first != int64(ours) || last != first {
		t.Errorf("it finds %d rules of tenants %d to %d (%v), want our two", n, first, last, err)
	}
	if err := w.ConnectionOfAll().QueryRow(ctx, forgetful).Scan(&n, &first, &last); err != nil || n != 4 {
		t.Errorf("in the scope of all it finds %d rules (%v), want 4", n, err)
	}
	tag, err := w.ConnectionOf(ours).Exec(ctx, "UPDATE plan SET description = 'all'")
	if err != nil || tag.RowsAffected() != 3 {
		t.Errorf("it updates %d plans (%v), want our three", tag.RowsAffected(), err)
	}
}

func TestScopesLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, mode := range []string{"", "cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		url := runtimeOf(t, w.url) + "&pool_max_conns=1"
		if mode != "" {
			url += "&default_query_exec_mode=" + mode
		}
		store := must(pgstore.Open(t.Context(), url, slog.New(slog.DiscardHandler)))(t)
		t.Cleanup(store.Close)
		left := func(after string) {
			t.Helper()
			var user, tenant, limit string
			err := store.ConnectionOfAll().QueryRow(t.Context(),
				"SELECT current_user, coalesce(current_setting('sluice.tenant', true), ''), "+
					"current_setting('idle_in_transaction_session_timeout')").
				Scan(&user, &tenant, &limit)
			if err != nil || user != roleOf(t, w.url) || tenant != "" || limit != "0" {
				t.Errorf("%s: after %s the connection is %q's, of tenant %q, limited to %s (%v)", mode, after, user,
					tenant, limit, err)
			}
		}
		ctx, ours := t.Context(), w.ours.ID
		left("nothing")
		if rules := must(store.Rules(ctx, ours, rules.RuleFilter{}, 0, 10))(t).Rules; len(rules) != 2 {
			t.Errorf("%s: we have %d rules", mode, len(rules))
		}
		left("a query")
		if _, err := store.ConnectionOf(ours).Exec(ctx, "SELECT 1/0"); err == nil {
			t.Error("1/0 is no error")
		}
		left("an error")
		if err := store.ConnectionOf(ours).QueryRow(ctx, "SELECT FROM session").Scan(); !isRefusal(err) {
			t.Errorf("%s: sessions: %v", mode, err)
		}
		left("a refusal")
		rows, err := store.ConnectionOf(ours).Query(ctx, "SELECT tenant_id FROM plan")
		if err != nil || !rows.Next() {
			t.Errorf("%s: plans: %v", mode, err)
		} else {
			rows.Close()
		}
		left("rows that nobody read")
		must(store.As(tester).PutOverride(ctx, overrideOf(w.ours.user, "7"), rules.AnyVersion))(t)
		left("a transaction")
		stale := w.ours.daily
		stale.Version = 99
		wantError(t, second(store.As(tester).UpdateRule(ctx, stale)), rules.ErrChanged)
		left("a transaction that was rolled back")
	}
}

func TestTheServerGivesUpWithItsClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	watch := connect(t, w.url)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := w.ConnectionOf(w.ours.ID).Exec(ctx, "SELECT pg_sleep(600)")
	wantError(t, err, context.DeadlineExceeded)
	const running = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE " +
		"'%pg_sleep(600)%' AND pid <> pg_backend_pid()"
	for deadline := time.Now().Add(time.Minute); ; {
		var n int
		if err := watch.QueryRow(t.Context(), running).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the server still works on a query that its client has left")
		}
	}
}

func TestAScopeCostsNoRoundTrip(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxied, trips := countTrips(t, runtimeOf(t, w.url)+"&pool_max_conns=1")
	store := must(pgstore.Open(t.Context(), proxied, slog.New(slog.DiscardHandler)))(t)
	defer store.Close()
	ctx, ours := t.Context(), w.ours.ID
	written := 0
	for what, test := range map[string]struct {
		do   func() error
		want int64
	}{
		"a read for a tenant":     {func() error { return second(store.Rule(ctx, ours, w.ours.user.ID)) }, 1},
		"a read for the platform": {func() error { return second(store.TenantBySlug(ctx, "ours")) }, 1},
		"a transaction without statement": {func() error {
			return store.TransactionOf(ctx, ours,
				func(*dbsqlc.Queries) error { return nil })
		}, 0},
		"a write": {func() error {
			written++
			return second(store.As(tester).CreatePlan(ctx,
				rules.Plan{TenantID: ours, Name: fmt.Sprint("plan-", written)}))
		}, 3},
		"a look for what is newer": {func() error {
			return store.Read(ctx, map[rules.TenantID]int64{ours: 1 << 40, w.theirs.ID: 1 << 40},
				func(snapshot.Rows) error { return nil })
		}, 2},
	} {
		for range 2 { // the first time describes the statements, once for each connection
			trips.Store(0)
			if err := test.do(); err != nil {
				t.Fatal(err)
			}
		}
		if got := trips.Load(); got != test.want {
			t.Errorf("%s takes %d round trips, want %d", what, got, test.want)
		}
	}
}

func countTrips(t *testing.T, databaseURL string) (proxied string, trips *atomic.Int64) {
	t.Helper()
	trips = new(atomic.Int64)
	proxied = behindProxy(t, databaseURL, func() (sent, received func()) {
		var answered atomic.Bool
		answered.Store(true)
		sent = func() {
			if answered.Swap(false) {
				trips.Add(1)
			}
		}
		return sent, func() { answered.Store(true) }
	})
	return proxied, trips
}

// behindProxy calls the functions of watch before it passes on what a client sent or receives.
func behindProxy(t *testing.T, databaseURL string, watch func() (sent, received func())) (proxied string) {
	t.Helper()
	u := must(url.Parse(databaseURL))(t)
	server := u.Host
	listener := must((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	u.Host = listener.Addr().String()
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server)
			if err != nil {
				_ = client.Close()
				return
			}
			sent, received := watch()
			go relay(to, client, sent)
			go relay(client, to, received)
		}
	}()
	return u.String()
}

func relay(to, from net.Conn, seen func()) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			seen()
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_, _ = to.Close(), from.Close()
}

func BenchmarkAScope(b *testing.B) {
	databaseURL := devdbtest.Postgres(b)
	store := must(pgstore.Open(b.Context(), databaseURL, slog.New(slog.DiscardHandler)))(b)
	defer store.Close()
	tenant := must(store.As(tester).CreateTenant(b.Context(),
		rules.Tenant{Slug: "ours", Name: "Ours", Settings: rules.DefaultSettings()}))(b)
	pool := must(pgxpool.New(b.Context(), databaseURL+"&default_query_exec_mode=cache_describe"))(b)
	defer pool.Close()
	const query = "SELECT * FROM plan WHERE tenant_id = $1 ORDER BY name LIMIT 50"
	for name, conn := range map[string]dbsqlc.DBTX{
		"alone": pool, "of a tenant": store.ConnectionOf(tenant.ID),
		"of all": store.ConnectionOfAll(),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				rows, err := conn.Query(b.Context(), query, tenant.ID)
				if err != nil {
					b.Fatal(err)
				}
				rows.Close()
				if err := rows.Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func isRefusal(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Code == insufficientPrivilege
}

// asTenant runs a statement as the tenant role, or as the login role if role is "", and rolls it back.
func asTenant(t *testing.T, conn *pgx.Conn, role, tenant, sql string, args ...any) (rows int64, err error) {
	t.Helper()
	tx := must(conn.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if role != "" {
		if _, err := tx.Exec(t.Context(), "SELECT set_config('role', $1, true), set_config('sluice.tenant', $2, true)",
			role, tenant); err != nil {
			t.Fatal(err)
		}
	}
	tag, err := tx.Exec(t.Context(), sql, args...)
	return tag.RowsAffected(), err
}

func tenantRoleOf(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	return lines(t, conn, `SELECT rolname::text FROM pg_policy JOIN pg_roles AS r ON r.oid = ANY (polroles)
		WHERE polname = 'one_tenant' AND polrelid = 'tenant'::regclass`)[0]
}

func tablesOfTenants(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	return lines(t, conn, `SELECT relname::text FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
			AND attname = 'tenant_id'
		ORDER BY relname`)
}

func lines(t *testing.T, conn *pgx.Conn, sql string, args ...any) []string {
	t.Helper()
	rows := must(conn.Query(t.Context(), sql, args...))(t)
	return must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
}

func fillEveryTable(t *testing.T, w *world) {
	t.Helper()
	exec(t, w.url, "INSERT INTO account (email, password_hash) VALUES ('somebody@example.com', '')")
	for _, o := range []owned{w.ours, w.theirs} {
		for _, sql := range []string{
			"INSERT INTO member (tenant_id, account_id, role) VALUES ($1, 1, 'owner')",
			`INSERT INTO invitation (tenant_id, email, role, token_digest, invited_by, expires_at)
				VALUES ($1::bigint, 'a@example.com', 'viewer', sha256(convert_to($1::bigint::text, 'UTF8')), '',
					now())`,
			"INSERT INTO api_key_use (tenant_id, key_id, last_used_at) SELECT tenant_id, key_id, now() FROM api_key " +
				"WHERE tenant_id = $1",
			"INSERT INTO gateway (tenant_id, kind, document, revision) VALUES ($1, 'authorize', '{}', 1)",
			`INSERT INTO rate_limit_violation (tenant_id, requested_at, last_at, count, rule_id, bucket_key, scope,
				mode, reason,
				key_pattern, rule_version, rate_per_second, burst_capacity, cost, algorithm, limit_text)
				VALUES ($1, now(), now(), 1, 1, '', '', '', '', '', 1, 1, 1, 1, '', '')`,
			`INSERT INTO access_event (at, access_id, tenant_id, tenant, count, kind, account_id, key_id, who, typed,
				user_agent, detail, request_id)
				VALUES (now(), $1, $1, '', 1, 'denied', 0, '', '', '', '', '', '')`,
			"INSERT INTO violation_minute VALUES ($1, now(), 1, '', false, 1, 0)",
			"INSERT INTO denial_count VALUES ($1, 'user', now(), 1, 'enforce', '', false, 1)",
			"INSERT INTO recent_check VALUES ($1, 'user', now(), '42', 1)",
			"INSERT INTO decision_minute VALUES ($1, 1, now(), 1, 1, 1, 1, 1, 1)",
			"INSERT INTO decision_span VALUES ($1, 1, 60, now(), 1, 1, 1, 1, 1)",
			"INSERT INTO mail (tenant_id, kind, recipient, give_up_at) VALUES ($1, 'test', 'a@example.com', now())",
			"INSERT INTO bucket VALUES ($1, 1, '', '', 1)",
			"INSERT INTO tenant_capacity (tenant_id, rules) VALUES ($1, 500)",
			"INSERT INTO bucket_credit VALUES ($1, '', '', '', 1)",
			"INSERT INTO bucket_record VALUES ($1, '', 1)",
			"INSERT INTO bucket_reservation VALUES ($1, '', '', 1)",
			`INSERT INTO quota_crossing (tenant_id, rule_id, subject, window_start, share, window_end, crossed_at,
				used, burst_capacity,
				mode, rule_name, key_pattern) VALUES ($1, 1, '', now(), 80, now(), now(), 1, 1, '', '', '')`,
			`INSERT INTO idempotency (tenant_id, key_digest, caller, fingerprint, attempt, lease_ends_at, number)
				VALUES ($1, sha256(''), '', sha256(''), 1, now(), 1)`,
			`INSERT INTO traffic_block (tenant_id, day, writer, number, first_at, last_at, stratum, level, checks,
				seen, left_out, dropped,
				users, payload) VALUES ($1, current_date, '', 1, now(), now(), 0, 0, 0, 0, 0, 0, '{}', '')`,
			"INSERT INTO traffic_day VALUES ($1, current_date, 1, 1, 1, 1, 0, 0, 0, now(), now())",
			"INSERT INTO bucket_checkpoint VALUES ($1, 1, '42', 1, '', '42')",
			"INSERT INTO user_month VALUES ($1, current_date, '', 1, 1, 1)",
			"INSERT INTO month_users VALUES ($1, current_date, 1)",
			"INSERT INTO export (tenant_id, requested_by_kind, requested_by_id, request) VALUES ($1, '', '', '{}')",
			`INSERT INTO export_chunk (tenant_id, export_id, number, data)
				SELECT tenant_id, max(export_id), 0, '' FROM export WHERE tenant_id = $1 GROUP BY tenant_id`,
			"INSERT INTO user_erasure (tenant_id, receipt_id, user_id, actor) VALUES ($1, 'erased-1', '42', '')",
			"INSERT INTO replay (tenant_id, requested_by_kind, requested_by_id, requested_by_name, request) VALUES " +
				"($1, '', '', '', '{}')",
			`INSERT INTO scheduled_change (tenant_id, requested_by_kind, requested_by_id, requested_by_name, patch,
				starts_at, due_at)
				VALUES ($1, '', '', '', '[]', now(), now())`,
			`INSERT INTO scheduled_change_rule (tenant_id, change_id, rule_id, patch, fields)
				SELECT tenant_id, (SELECT max(change_id) FROM scheduled_change WHERE tenant_id = $1), rule_id, '{}',
					'{}'
				FROM rate_limit_rule WHERE tenant_id = $1 LIMIT 1`,
			"INSERT INTO job (tenant_id, kind, next_run_at) VALUES ($1, 'test', now())",
			"INSERT INTO key_notice (tenant_id, key_id, notice) VALUES ($1, '', 'expires_7')",
			"INSERT INTO audit_webhook (tenant_id, url, secret, is_active) VALUES ($1, '', '', false)",
			"INSERT INTO audit_webhook_progress (tenant_id, sent_to) VALUES ($1, 0)",
			"INSERT INTO backend_report VALUES ($1, 'db', now(), 1, 0, '{}')",
			`INSERT INTO rate_limit_step SELECT tenant_id, rule_id, 50, now(), now(), now() + interval '1 minute', '',
				'', 1
				FROM rate_limit_rule WHERE tenant_id = $1 LIMIT 1`,
			`INSERT INTO alert (tenant_id, name, rule_id, per_subject, threshold, window_minutes, url, secret,
				is_active)
				SELECT tenant_id, 'loud', rule_id, false, 1, 1, '', '', false FROM rate_limit_rule WHERE tenant_id = $1
					LIMIT 1`,
			`INSERT INTO delivery (tenant_id, alert_id, subject, denied, since, raised_at, kind, per_subject, threshold,
					window_minutes, mode)
				SELECT tenant_id, alert_id, '', 1, now(), now(), kind, per_subject, threshold, window_minutes, ''
					FROM alert WHERE tenant_id = $1 LIMIT 1`,
		} {
			exec(t, w.url, sql, o.ID)
		}
	}
}

func TestProgramsOnlyAddToTheSecurityLog(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	fillEveryTable(t, w)
	process := connect(t, runtimeOf(t, w.url))
	for _, sql := range []string{
		"UPDATE access_event SET ip = NULL", "DELETE FROM access_event",
		"TRUNCATE access_event",
	} {
		if _, err := asTenant(t, process, "", "", sql); !isRefusal(err) {
			t.Errorf("%s ends with %v", sql, err)
		}
	}
	if _, err := asTenant(t, process, "", "", "SELECT drop_access_events(now() - interval '1 day', 10)"); err == nil {
		t.Error("yesterday's entries may be dropped")
	}
	exec(t, w.url, "UPDATE access_event SET at = at - interval '100 days' WHERE tenant_id = $1", w.ours.ID)
	kept := keep
	kept.Access = 90 * day
	must(w.KeepViolations(t.Context(), time.Now(), kept))(t)
	if got := lines(t, connect(t, w.url), "SELECT tenant_id::text FROM access_event"); len(got) != 1 ||
		got[0] != fmt.Sprint(w.theirs.ID) {
		t.Errorf("after the retention the entries are of %q, want theirs alone", got)
	}
}
