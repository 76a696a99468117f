package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/pgstore/migrate"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

var violationRows = flag.Int("violations", 10_000_000, "how many violations to read among")

// readViolations compares reading many violations and a year of counts with reading a hundredth of them. The
// violations are of thirty days, of a thousand users, a thousand addresses, fifty endpoints and twenty
// rules; the counts are of checks as a whole and of four rules, each minute. It prints the plans of the
// large side.
func readViolations(ctx context.Context, rounds int, _ time.Duration) (lines []line, err error) {
	rows := *violationRows
	dir, err := os.MkdirTemp("", "sluice-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for Postgres: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := devdb.StartPostgres(ctx, dir, devdb.PostgresOptions{Throwaway: true})
	if err != nil {
		return nil, err
	}
	defer server.Kill()
	now := time.Now().UTC().Truncate(time.Minute)
	few, err := loadViolations(ctx, server, "few", now, rows/100, 525_600/100)
	if err != nil {
		return nil, err
	}
	defer few.Close()
	many, err := loadViolations(ctx, server, "many", now, rows, 525_600)
	if err != nil {
		return nil, err
	}
	defer many.Close()

	for _, question := range questions(now) {
		took := func(store *pgstore.Store) (float64, error) {
			began := time.Now()
			err := question.ask(ctx, store)
			return float64(time.Since(began).Microseconds()), err
		}
		var was, is []float64
		for range 4*rounds + 1 { // the first warms up
			for _, side := range []struct {
				store *pgstore.Store
				to    *[]float64
			}{{few, &was}, {many, &is}} {
				micros, err := took(side.store)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", question.what, err)
				}
				*side.to = append(*side.to, micros)
			}
		}
		before, after := median(was[1:]), median(is[1:])
		lines = append(lines, ratioLine(question.what+", µs", "%.0f", before, after, question.target))
	}
	return lines, printViolationPlans(ctx, server, now)
}

// question is one of the things that people ask.
type question struct {
	what   string
	target float64 // as ratioLine takes it
	ask    func(context.Context, *pgstore.Store) error
}

// mostTimes is how much longer a page or chart may take among a hundred times the rows.
const mostTimes = -3

func questions(now time.Time) []question {
	const tenant rules.TenantID = 1
	month := violations.Filter{Since: now.Add(-30 * 24 * time.Hour), Until: now}
	page := func(what string, narrow func(*violations.Filter)) question {
		filter := month
		narrow(&filter)
		return question{"first page " + what, mostTimes, func(ctx context.Context, s *pgstore.Store) error {
			page, err := s.Violations(ctx, tenant, &filter, violations.ID{}, 50)
			if err == nil && len(page.Violations) == 0 {
				return errors.New("the page is empty")
			}
			return err
		}}
	}
	chart := func(what string, since time.Duration, rule rules.RuleID, target float64) question {
		return question{what, target, func(ctx context.Context, s *pgstore.Store) error {
			chart, err := violations.Traffic(ctx, s, tenant, rule, now.Add(-since), now)
			if err == nil && chart.Total.Denied == 0 {
				return errors.New("the chart is empty")
			}
			return err
		}}
	}
	return []question{
		page("of all", func(*violations.Filter) {}),
		page("of a rule", func(f *violations.Filter) { f.Rule = 7 }),
		page("of a user", func(f *violations.Filter) { f.UserID = "user-7" }),
		page("of an address", func(f *violations.Filter) { f.IP = netip.MustParsePrefix("10.0.0.7/32") }),
		page("of an endpoint", func(f *violations.Filter) { f.Endpoint = "/api/7" }),
		chart("30-day chart", 30*24*time.Hour, 0, mostTimes),
		chart("30-day chart of a rule", 30*24*time.Hour, 2, mostTimes),
		chart("3-hour chart", 3*time.Hour, 0, 0),
		chart("chart of a year", 364*24*time.Hour, 0, 0),
		{"top rules of 30 days", 0, func(ctx context.Context, s *pgstore.Store) error {
			_, err := s.TopRules(ctx, tenant, violations.StepsFor(month.Since, now), 10)
			return err
		}},
		{"top users of the newest 100,000", 0, func(ctx context.Context, s *pgstore.Store) error {
			_, err := s.Top(ctx, tenant, violations.TopOf{Dimension: violations.ByUser, Since: month.Since, Until: now}, 10)
			return err
		}},
	}
}

// loadViolations makes a database with so many violations and minutes of counts, and opens it.
func loadViolations(ctx context.Context, server *devdb.Postgres, name string, now time.Time, rows, minutes int) (*pgstore.Store, error) {
	began := time.Now()
	address, err := server.CreateDatabase(ctx, name, "")
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	if err := migrate.Up(ctx, address, log); err != nil {
		return nil, err
	}
	connection, err := pgx.Connect(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = connection.Close(ctx) }()
	for _, load := range []struct {
		sql  string
		args []any
	}{
		{"INSERT INTO tenant (slug, name) VALUES ('ours', 'Ours'), ('theirs', 'Theirs')", nil},
		{"SELECT make_violation_partition($1::date - i) FROM generate_series(-3, 31) AS i", []any{now}},
		{`INSERT INTO rate_limit_violation (tenant_id, requested_at, last_at, recorded_at, count, rule_id, bucket_key, scope, mode, reason,
				key_pattern, rule_version, rate_per_second, burst_capacity, user_id, ip_address, endpoint, method, plan, cost, tokens_at_time, retry_after_ms)
			SELECT 1, at, at, at, 1, i % 20 + 1, format('%s:user-%s', i % 20 + 1, i % 1000), 'user', 'enforce', 'limit_exceeded',
				'user:{user_id}', 1, 10, 50, 'user-' || i % 1000, inet '10.0.0.0' + i % 1000, '/api/' || i % 50, 'GET', 'free', 1, 0.5, 50
			FROM generate_series(1, $2::bigint) AS i, LATERAL (SELECT $1::timestamptz - i * (interval '30 days' / $2::bigint) AS at) AS t`, []any{now, rows}},
		{`INSERT INTO decision_minute SELECT 1, r, $1::timestamptz - i * interval '1 minute', 100, 10, 0, 0, 100
			FROM generate_series(0, 4) AS r, generate_series(1, $2::integer) AS i`, []any{now, minutes}},
		{`INSERT INTO decision_span
			SELECT tenant_id, rule_id, span, date_bin(make_interval(mins => span), minute, timestamptz '1970-01-01Z'), sum(allowed), sum(denied), 0, 0, sum(cost_taken)
			FROM decision_minute, unnest(ARRAY[60, 360, 1440]) AS span GROUP BY 1, 2, 3, 4`, nil},
		{`INSERT INTO violation_minute SELECT 1, $1::timestamptz - i * interval '1 minute', 1, 'user-' || i % 1000, false, 1, 0
			FROM generate_series(1, $2::integer) AS i`, []any{now, minutes}},
		{"VACUUM ANALYZE", nil},
	} {
		if _, err := connection.Exec(ctx, load.sql, load.args...); err != nil {
			return nil, fmt.Errorf("load: %w: %.60s", err, load.sql)
		}
	}
	fmt.Fprintf(os.Stderr, "loaded %d violations and %d minutes of counts in %s\n", rows, minutes, time.Since(began).Round(time.Second))
	return pgstore.Open(ctx, address, log)
}

// printViolationPlans asks everything once more, has the server log how it answers, and prints that.
func printViolationPlans(ctx context.Context, server *devdb.Postgres, now time.Time) error {
	connection, err := pgx.Connect(ctx, server.URL("many"))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = connection.Close(ctx) }()
	for _, setting := range []string{
		"session_preload_libraries = auto_explain", "auto_explain.log_min_duration = 0",
		"auto_explain.log_analyze = on", "auto_explain.log_timing = off",
	} {
		if _, err := connection.Exec(ctx, "ALTER DATABASE many SET "+setting); err != nil {
			return fmt.Errorf("have plans logged: %w", err)
		}
	}
	store, err := pgstore.Open(ctx, server.URL("many"), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer store.Close()
	logFile := filepath.Join(server.Dir(), "postgres.log")
	before, err := os.ReadFile(logFile)
	if err != nil {
		return fmt.Errorf("read the server's log: %w", err)
	}
	for _, question := range questions(now) {
		if err := question.ask(ctx, store); err != nil {
			return fmt.Errorf("%s: %w", question.what, err)
		}
	}
	after, err := os.ReadFile(logFile)
	if err != nil {
		return fmt.Errorf("read the server's log: %w", err)
	}
	_, err = fmt.Fprintln(os.Stdout, shortened(string(after[len(before):])))
	return err
}

// shortened leaves out the scans of all days but the first few of each plan, which are alike.
func shortened(plans string) string {
	const days = 3
	var kept []string
	seen := 0
	for text := range strings.Lines(plans) {
		if strings.Contains(text, "Query Text") {
			seen = 0
		}
		if strings.Contains(text, "Scan") && strings.Contains(text, "on rate_limit_violation_") {
			seen++
		}
		detail := strings.Contains(text, "Cond:") || strings.Contains(text, "Scan") || strings.Contains(text, "Filter:")
		if seen <= days || !detail {
			kept = append(kept, text)
		}
	}
	return cmp.Or(strings.Join(kept, ""), "no plans")
}
