package pgstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

type slowFor rules.TenantID

func (s slowFor) Send(ctx context.Context, notice *violations.Notice) (int, error) {
	if notice.Tenant != rules.TenantID(s) {
		return 200, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // as the real sender waits
	defer cancel()
	<-ctx.Done()
	return 0, ctx.Err()
}

type postman struct{}

func (postman) Send(context.Context, *auth.Letter) error { return nil }

// BenchmarkBesideAGreedyTenant measures how long two processes take for a tenant's webhook, message and erasure, beside
// a tenant with 100,000 queued webhooks whose receiver does not answer, and with the erasure of a user among two
// million counts.
func BenchmarkBesideAGreedyTenant(b *testing.B) {
	const webhooks, counts = 100_000, 2_000_000
	ctx, url := b.Context(), devdbtest.Postgres(b)
	db := must(pgx.Connect(ctx, url))(b)
	b.Cleanup(func() { _ = db.Close(context.WithoutCancel(ctx)) })
	run := func(sql string, args ...any) {
		b.Helper()
		must(db.Exec(ctx, sql, args...))(b)
	}
	store := must(pgstore.Open(ctx, url, slog.New(slog.DiscardHandler)))(b)
	b.Cleanup(store.Close)
	w := world{Writer: store.As(tester), url: url}
	tenant := func(slug string) (rules.TenantID, rules.Rule) {
		created := must(w.CreateTenant(ctx, rules.Tenant{
			Slug: slug, Name: slug, Settings: rules.DefaultSettings(),
		}))(b)
		rule := rules.Rule{
			TenantID: created.ID, Pattern: must(rules.ParsePattern("user:{user_id}"))(b), RatePerSecond: 1,
			RateUnit: rules.PerSecond, Burst: 1, Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce,
			Action: rules.ActionLimit, Active: true,
		}
		rule = must(w.CreateRule(ctx, rule))(b)
		run(`INSERT INTO alert (tenant_id, name, kind, per_subject, threshold, window_minutes, url, secret, is_active)
			VALUES ($1, 'a', 'denials', true, 1, 1, '', '', true)`, created.ID)
		return created.ID, rule
	}
	greedy, rule := tenant("greedy")
	quiet, _ := tenant("quiet")
	deliver := func(tenant rules.TenantID, n int) {
		b.Helper()
		run(`WITH made AS (
			INSERT INTO delivery (tenant_id, alert_id, subject, denied, since, raised_at)
			SELECT a.tenant_id, a.alert_id, n::text, 1, now(), now() FROM alert AS a
			CROSS JOIN generate_series(1, $2::integer) AS n WHERE a.tenant_id = $1 RETURNING *
		) INSERT INTO job (tenant_id, kind, about, next_run_at)
			SELECT tenant_id, 'alert delivery', delivery_id::text, clock_timestamp() FROM made`, tenant, n)
	}
	run(`INSERT INTO violation_minute (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
		SELECT $1, now() - make_interval(mins => n / 1000), $2, CASE n % 2 WHEN 0 THEN 'ada' ELSE n::text END, false, 1,
			0
		FROM generate_series(1, $3::integer) AS n ON CONFLICT DO NOTHING`, greedy, rule.ID, counts)
	deliver(greedy, webhooks)
	run("ANALYZE")
	must(w.EraseUser(ctx, greedy, "ada"))(b)

	log := slog.New(slog.DiscardHandler)
	fill := func(context.Context, rules.TenantID, string) (int64, error) { return 0, nil }
	kinds := slices.Concat(violations.AlertKinds(store, slowFor(greedy), log)[1:],
		[]jobs.Kind{auth.NewPostOffice(store, postman{}, log).Jobs(), store.ErasureWork(fill)})
	working, stop := context.WithCancel(ctx)
	var processes sync.WaitGroup
	defer processes.Wait()
	defer stop()
	for range 2 {
		processes.Go(func() { jobs.New(store, kinds, log).Run(working) })
	}
	worst := map[string]time.Duration{}
	var n int
	for b.Loop() {
		n++
		queue := map[string]func(){
			"alert delivery": func() { deliver(quiet, 1) },
			"mail": func() {
				must(store.QueueMail(ctx, auth.Mail{
					Tenant: quiet, Kind: auth.MailTest, To: "ada@example.com", GiveUpAt: time.Now().Add(time.Hour),
				}, auth.MailLimits{}))(b)
			},
			"erase user": func() { must(w.EraseUser(ctx, quiet, fmt.Sprint("user-", n)))(b) },
		}
		for kind, queued := range queue {
			began := time.Now()
			queued()
			for left := 1; left > 0; {
				err := db.QueryRow(ctx, "SELECT count(*) FROM job WHERE tenant_id = $1 AND kind = $2", quiet,
					kind).Scan(&left)
				if err != nil || time.Since(began) > time.Minute {
					b.Fatalf("%d jobs of the kind %q are left: %v", left, kind, err)
				}
				time.Sleep(5 * time.Millisecond) //nolint:forbidigo // the processes work meanwhile
			}
			worst[kind] = max(worst[kind], time.Since(began))
		}
	}
	for kind, unit := range map[string]string{
		"alert delivery": "s-webhook", "mail": "s-mail", "erase user": "s-erasure",
	} {
		b.ReportMetric(worst[kind].Seconds(), unit)
	}
	var still int
	err := db.QueryRow(ctx, "SELECT count(*) FROM job WHERE tenant_id = $1", greedy).Scan(&still)
	if err != nil || still < webhooks/2 {
		b.Fatalf("the greedy tenant has %d jobs left, so it was not greedy: %v", still, err)
	}
}
