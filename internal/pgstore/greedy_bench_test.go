package pgstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/auth"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/jobs"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
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

// BenchmarkBesideAGreedyTenant measures how long a tenant's webhook, message and erasure take beside a tenant with
// 100,000 queued webhooks whose receiver does not answer, an erasure of ten million rows, and one import of 1,000
// overrides after the other.
func BenchmarkBesideAGreedyTenant(b *testing.B) {
	const webhooks, rows, packs, overrides = 100_000, 10_000_000, 200, 1000
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
			TenantID: created.ID, Pattern: must(rules.ParsePattern("user:{user_id}:endpoint:{endpoint}"))(b),
			RatePerSecond: 1, RateUnit: rules.PerSecond, Burst: 1, Algorithm: rules.TokenBucket,
			Mode: rules.ModeEnforce, Action: rules.ActionLimit, Active: true,
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
			INSERT INTO delivery (tenant_id, alert_id, subject, denied, since, raised_at, kind, per_subject, threshold,
				window_minutes, mode)
			SELECT a.tenant_id, a.alert_id, n::text, 1, now(), now(), a.kind, a.per_subject, a.threshold,
				a.window_minutes, '' FROM alert AS a
			CROSS JOIN generate_series(1, $2::integer) AS n WHERE a.tenant_id = $1 RETURNING *
		) INSERT INTO job (tenant_id, kind, about, next_run_at)
			SELECT tenant_id, 'alert delivery', delivery_id::text, clock_timestamp() FROM made`, tenant, n)
	}
	fillFor(b, db, greedy, rule.ID, rows, packs)
	deliver(greedy, webhooks)
	run("INSERT INTO tenant_capacity (tenant_id, overrides) VALUES ($1, 100000000)", greedy)
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
	var imports atomic.Int64
	processes.Go(func() {
		for working.Err() == nil {
			var changes ruleset.Changes
			for i := range overrides {
				changes.Overrides = append(changes.Overrides, ruleset.Change[ruleset.ConfigOverride]{
					After: &ruleset.ConfigOverride{
						Rule: rule.Identity(), Override: overrideOf(rule, fmt.Sprintf("user-%d-%d", imports.Load(), i)),
					},
				})
			}
			_, err := w.ChangeConfig(working, greedy,
				func(ruleset.Config) (ruleset.Changes, error) { return changes, nil })
			if err != nil && working.Err() == nil {
				b.Error(err)
				return
			}
			imports.Add(1)
		}
	})
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
	b.ReportMetric(float64(imports.Load()), "imports-beside")
	var still int
	err := db.QueryRow(ctx, `SELECT count(*) FROM job WHERE tenant_id = $1
		AND EXISTS (SELECT FROM job WHERE tenant_id = $1 AND kind = 'erase user')`, greedy).Scan(&still)
	if err != nil || still < webhooks/2 || imports.Load() == 0 {
		b.Fatalf("the greedy tenant has %d jobs left, so it was not greedy: %v", still, err)
	}
}
