package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/pgstore/migrate"
	"github.com/sluicegate/sluice/internal/rules"
)

// The sizes of a large tenant; the small one that it is compared with has a hundredth of each.
const (
	listRules    = 100_000
	listUsers    = 1_000_000
	listEntries  = 10_000_000
	listAccounts = 100_000 // and as many tenants and invitations
	listShare    = 100
	listPage     = 50
)

var listScale = flag.Int("scale", 1, "divides the sizes that lists are measured with")

// list reads the first page of one list.
type list struct {
	what string
	read func(context.Context, *pgstore.Store, rules.TenantID) error
}

var pro = "pro"

// lists are all that people page through.
var lists = []list{
	{"tenants", tenantsWith("")},
	{"tenants with a text", tenantsWith("T7")},
	{"tenants with a text that none has", tenantsWith("nowhere")},
	{"tenants of an account", func(ctx context.Context, s *pgstore.Store, _ rules.TenantID) error {
		_, err := s.Memberships(ctx, 1, "", listPage)
		return err
	}},
	{"plans", func(ctx context.Context, s *pgstore.Store, t rules.TenantID) error {
		_, err := s.Plans(ctx, t, "", listPage)
		return err
	}},
	{"rules", rulesWith(rules.RuleFilter{})},
	{"rules of a plan", rulesWith(rules.RuleFilter{Plan: &pro})},
	{"rules of a pattern", rulesWith(rules.RuleFilter{Pattern: "endpoint:/api/7"})},
	{"rules with a text", rulesWith(rules.RuleFilter{Text: "api/7"})},
	{"rules with a text that none has", rulesWith(rules.RuleFilter{Text: "nowhere"})},
	{"plan matrix", func(ctx context.Context, s *pgstore.Store, t rules.TenantID) error {
		_, err := s.Matrix(ctx, t, rules.RuleIdentity{}, listPage)
		return err
	}},
	{"overrides of a rule", func(ctx context.Context, s *pgstore.Store, t rules.TenantID) error {
		_, err := s.Overrides(ctx, t, 1, "", listPage)
		return err
	}},
	{"overrides of a user", func(ctx context.Context, s *pgstore.Store, t rules.TenantID) error {
		_, err := s.OverridesOfUser(ctx, t, "user-7", 0, listPage)
		return err
	}},
	{"overrides of all rules", overridesWith(rules.OverrideFilter{})},
	{"overrides of all rules by end", overridesWith(rules.OverrideFilter{ByEnd: true})},
	{"overrides that end within a week", overridesWith(rules.OverrideFilter{ByEnd: true, EndsAfter: time.Now(), EndsBefore: time.Now().Add(7 * 24 * time.Hour)})},
	{"overrides of users with a prefix", overridesWith(rules.OverrideFilter{UserPrefix: "user-7"})},
	{"overrides of a rule that end", overridesWith(rules.OverrideFilter{Rule: 7, ByEnd: true})},
	{"overrides that ended, none of which is there", overridesWith(rules.OverrideFilter{EndsBefore: time.Unix(0, 0)})},
	{"users", usersWith("", "")},
	{"users of a plan", usersWith("pro", "")},
	{"users of a small plan", usersWith("tiny", "")},
	{"users with a prefix", usersWith("", "user-7")},
	{"users of a plan with a prefix", usersWith("pro", "user-7")},
	{"API keys", func(ctx context.Context, s *pgstore.Store, t rules.TenantID) error {
		_, err := s.Keys(ctx, t, "", listPage)
		return err
	}},
	{"accounts", accountsWith("")},
	{"accounts with a text", accountsWith("Somebody7")},
	{"accounts with a text that none has", accountsWith("nowhere")},
	{"members", func(ctx context.Context, s *pgstore.Store, t rules.TenantID) error {
		_, err := s.Members(ctx, t, auth.AccountPlace{}, listPage)
		return err
	}},
	{"invitations", func(ctx context.Context, s *pgstore.Store, t rules.TenantID) error {
		_, err := s.Invitations(ctx, t, 0, listPage)
		return err
	}},
	{"invitations that have all expired", func(ctx context.Context, s *pgstore.Store, t rules.TenantID) error {
		_, err := s.Invitations(ctx, t+1, 0, listPage)
		return err
	}},
	{"sessions of an account", func(ctx context.Context, s *pgstore.Store, _ rules.TenantID) error {
		_, err := s.Sessions(ctx, 1, auth.Live{})
		return err
	}},
	{"audit", auditWith(auth.AuditFilter{})},
	{"audit of an actor", auditWith(auth.AuditFilter{ActorID: "3"})},
	{"audit of a kind", auditWith(auth.AuditFilter{ObjectKind: "plan"})},
	{"audit of an object", auditWith(auth.AuditFilter{ObjectKind: "user", ObjectID: "user-7"})},
	{"audit of a change", auditWith(auth.AuditFilter{Change: 77})},
	{"audit of an action", auditWith(auth.AuditFilter{Action: auth.AuditRemove})},
	{"audit of an action that none is", auditWith(auth.AuditFilter{Action: auth.AuditCredit})},
	{"audit of a kind and an actor", auditWith(auth.AuditFilter{ObjectKind: "plan", ActorID: "3"})},
}

func tenantsWith(text string) func(context.Context, *pgstore.Store, rules.TenantID) error {
	return func(ctx context.Context, s *pgstore.Store, _ rules.TenantID) error {
		_, err := s.Tenants(ctx, text, "", listPage)
		return err
	}
}

func accountsWith(text string) func(context.Context, *pgstore.Store, rules.TenantID) error {
	return func(ctx context.Context, s *pgstore.Store, _ rules.TenantID) error {
		_, err := s.Accounts(ctx, text, auth.AccountPlace{}, listPage)
		return err
	}
}

func rulesWith(filter rules.RuleFilter) func(context.Context, *pgstore.Store, rules.TenantID) error {
	return func(ctx context.Context, s *pgstore.Store, t rules.TenantID) error {
		_, err := s.Rules(ctx, t, filter, 0, listPage)
		return err
	}
}

func usersWith(plan, prefix string) func(context.Context, *pgstore.Store, rules.TenantID) error {
	return func(ctx context.Context, s *pgstore.Store, t rules.TenantID) error {
		_, err := s.Assignments(ctx, t, plan, prefix, "", listPage)
		return err
	}
}

func overridesWith(filter rules.OverrideFilter) func(context.Context, *pgstore.Store, rules.TenantID) error {
	return func(ctx context.Context, s *pgstore.Store, t rules.TenantID) error {
		_, err := s.FindOverrides(ctx, t, filter, rules.OverridePlace{}, listPage)
		return err
	}
}

func auditWith(filter auth.AuditFilter) func(context.Context, *pgstore.Store, rules.TenantID) error {
	return func(ctx context.Context, s *pgstore.Store, t rules.TenantID) error {
		_, _, err := s.Audit(ctx, t, filter, auth.AuditCursor{}, listPage)
		return err
	}
}

// firstPages compares the first page of every list of a large tenant with that of a small one, each in
// a database of its own, and prints the plans of the large one's queries.
func firstPages(ctx context.Context, rounds int, round time.Duration) (lines []line, err error) {
	dir, err := os.MkdirTemp("", "sluice-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for postgres: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := devdb.StartPostgres(ctx, dir, devdb.PostgresOptions{Throwaway: true})
	if err != nil {
		return nil, err
	}
	defer server.Kill()
	small, err := loaded(ctx, server, "small", *listScale*listShare)
	if err != nil {
		return nil, err
	}
	defer small.Close()
	large, err := loaded(ctx, server, "large", *listScale)
	if err != nil {
		return nil, err
	}
	defer large.Close()
	for _, l := range lists {
		was, is, err := pageTimes(ctx, l, small.Store, large.Store, rounds, round)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.what, err)
		}
		lines = append(lines, ratioLine("first page of "+l.what+", ms", "%.2f", was, is, -3))
	}
	return lines, printPlans(ctx, large, filepath.Join(server.Dir(), "postgres.log"))
}

// pageTimes returns the median time of a page in milliseconds on both sides, which take turns.
func pageTimes(ctx context.Context, l list, small, large *pgstore.Store, rounds int, round time.Duration) (was, is float64, err error) {
	var before, after []float64
	deadline := time.Now().Add(round)
	for i := 0; i < rounds+2 || time.Now().Before(deadline); i++ {
		for _, side := range []struct {
			store   *pgstore.Store
			figures *[]float64
		}{{small, &before}, {large, &after}} {
			began := time.Now()
			if err := l.read(ctx, side.store, 1); err != nil {
				return 0, 0, err
			}
			if i >= 2 { // the first ones fill caches
				*side.figures = append(*side.figures, float64(time.Since(began).Microseconds())/1000)
			}
		}
	}
	return median(before), median(after), nil
}

// loadedStore is a Store of a database, and that's address.
type loadedStore struct {
	*pgstore.Store
	url string
}

// loaded makes a database with one tenant that has the sizes above, divided by a divisor.
func loaded(ctx context.Context, server *devdb.Postgres, name string, divisor int) (s loadedStore, err error) {
	if s.url, err = server.CreateDatabase(ctx, name, ""); err != nil {
		return s, err
	}
	log := slog.New(slog.DiscardHandler)
	if err := migrate.Up(ctx, s.url, log); err != nil {
		return s, err
	}
	began := time.Now()
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return s, fmt.Errorf("load %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	sizes := strings.NewReplacer("{rules}", fmt.Sprint(listRules/divisor), "{users}", fmt.Sprint(listUsers/divisor),
		"{entries}", fmt.Sprint(listEntries/divisor), "{accounts}", fmt.Sprint(listAccounts/divisor))
	for _, statement := range loading {
		if _, err := conn.Exec(ctx, sizes.Replace(statement)); err != nil {
			return s, fmt.Errorf("load %s: %s: %w", name, statement, err)
		}
	}
	fmt.Fprintf(os.Stderr, "bench: database %s loaded in %s\n", name, time.Since(began).Round(time.Second))
	s.Store, err = pgstore.Open(ctx, s.url, log)
	return s, err
}

// loading fills a database without its triggers, for the log has entries of its own.
var loading = []string{
	"SET session_replication_role = replica",
	"INSERT INTO tenant (slug, name, default_plan) SELECT 't' || n, 'Tenant', 'free' FROM generate_series(1, {accounts}) AS n",
	"INSERT INTO plan (tenant_id, name, revision) SELECT 1, unnest(ARRAY['free', 'pro', 'enterprise', 'tiny']), 1",
	`INSERT INTO rate_limit_rule (tenant_id, name, key_pattern, scope, plan, rate_per_second, rate_unit, burst_capacity,
		algorithm, mode, action, is_active, in_force_since, revision)
		SELECT 1, '', 'endpoint:/api/' || n / 4, 'endpoint', (ARRAY[NULL, 'free', 'pro', 'enterprise'])[n % 4 + 1], 10, 'second', 50,
			'token_bucket', 'enforce', 'limit', true, now(), 1
		FROM generate_series(0, {rules} - 1) AS n`,
	`INSERT INTO rate_limit_override (tenant_id, rule_id, user_id, rate_per_second, rate_unit, burst_capacity, in_force_since, revision,
		expires_at)
		SELECT 1, n % 100 + 1, 'user-' || n, 10, 'second', 50, now(), 1,
			CASE WHEN n % 10 > 0 THEN now() + n * interval '1 minute' END FROM generate_series(1, {rules}) AS n`,
	`INSERT INTO plan_assignment (tenant_id, user_id, plan, revision)
		SELECT 1, 'user-' || n, CASE WHEN n % 1000 = 0 THEN 'tiny' ELSE (ARRAY['free', 'pro', 'enterprise'])[n % 3 + 1] END, 1
		FROM generate_series(1, {users}) AS n`,
	`INSERT INTO plan_use (tenant_id, plan, rules, users)
		SELECT 1, name, (SELECT count(*) FROM rate_limit_rule WHERE plan = name), (SELECT count(*) FROM plan_assignment WHERE plan = name) FROM plan`,
	`INSERT INTO api_key (tenant_id, key_id, name, digest, permissions, revision, created_at)
		SELECT 1, 'k' || n, 'ci', sha256('x'), '{check}', 1, now() + n * interval '1 second' FROM generate_series(1, {rules} / 100) AS n`,
	`INSERT INTO audit_event (tenant_id, at, actor_kind, actor_id, actor_name, act, request_id, action, object_kind, object_id,
		change_id, before, after)
		SELECT 1, now() - ({entries} - n) * interval '1 second', 'account', (n % 50)::text, 'somebody@example.com', '', '',
			CASE WHEN n % 100 = 0 THEN 'remove' ELSE 'update' END, (ARRAY['user', 'user', 'user', 'rule', 'plan'])[n % 5 + 1],
			'user-' || n % 10000, n / 3, '{"plan": "free"}', '{"plan": "pro"}'
		FROM generate_series(1, {entries}) AS n`,
	`INSERT INTO account (email, name, password_hash)
		SELECT 'somebody' || n || '@example.com', 'Somebody ' || n, '' FROM generate_series(1, {accounts}) AS n`,
	// A tenth are members of the tenant that is read, and the first account of a tenth of the tenants.
	`INSERT INTO member (tenant_id, account_id, role)
		SELECT 1, n * 10 + 1, 'viewer' FROM generate_series(0, {accounts} / 10 - 1) AS n
		UNION ALL SELECT n * 10 + 2, 1, 'viewer' FROM generate_series(0, {accounts} / 10 - 1) AS n`,
	// One a minute until now, each for seven days; those of the other tenant were open a year ago.
	`INSERT INTO invitation (tenant_id, email, role, token_digest, invited_by, created_at, expires_at)
		SELECT t, 'somebody' || n || '@example.com', 'viewer', sha256(convert_to(t || ' ' || n, 'UTF8')), 'owner@example.com', at, at + interval '7 days'
		FROM generate_series(1, 2) AS t, generate_series(1, {accounts}) AS n,
			LATERAL (SELECT now() - ({accounts} - n) * interval '1 minute' - (t - 1) * interval '1 year' AS at) AS made`,
	`INSERT INTO session (account_id, token_digest)
		SELECT a, sha256(convert_to(a || ' ' || n, 'UTF8')) FROM generate_series(1, {accounts}) AS a, generate_series(1, 10) AS n`,
	"VACUUM ANALYZE",
}

// printPlans reads each list once with auto_explain on, and prints what the server logged.
func printPlans(ctx context.Context, from loadedStore, log string) error {
	store, err := pgstore.Open(ctx, from.url+"&session_preload_libraries=auto_explain&auto_explain.log_min_duration=0"+
		"&auto_explain.log_analyze=on&auto_explain.log_timing=off", slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer store.Close()
	var plans []byte
	for _, l := range lists {
		before, err := os.Stat(log)
		if err != nil {
			return fmt.Errorf("read the server's log: %w", err)
		}
		if err := l.read(ctx, store, 1); err != nil {
			return fmt.Errorf("explain %s: %w", l.what, err)
		}
		text, err := os.ReadFile(log)
		if err != nil {
			return fmt.Errorf("read the server's log: %w", err)
		}
		plans = append(plans, l.what+":\n"...)
		for row := range bytes.Lines(text[before.Size():]) {
			if bytes.Contains(row, []byte("rows=")) || bytes.Contains(row, []byte("Index Cond")) {
				plans = append(plans, row...)
			}
		}
	}
	_, err = os.Stdout.Write(plans)
	return err
}
