package pgstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/violations"
)

func (w *world) raise(ctx context.Context, tenant rules.TenantID, now time.Time) (raised int64, err error) {
	alerts, err := w.ActiveAlerts(ctx)
	if err != nil {
		return 0, err
	}
	alerts = slices.DeleteFunc(alerts, func(a violations.ActiveAlert) bool { return a.Tenant != tenant })
	if len(alerts) == 0 {
		return 0, nil
	}
	return w.RaiseAlerts(ctx, alerts, now)
}

// crowd makes tenants with some alerts each, whose thresholds are reached in this minute. The busy ones also have
// counts of very many subjects in each of the last ten minutes.
func crowd(tb testing.TB, db *pgx.Conn, tenants, alerts, busy, subjects int, now time.Time) {
	tb.Helper()
	run := func(sql string, args ...any) {
		tb.Helper()
		if _, err := db.Exec(tb.Context(), sql, args...); err != nil {
			tb.Fatal(err)
		}
	}
	run(`INSERT INTO tenant (slug, name) SELECT 'crowd-' || n, 'Crowd' FROM generate_series(1, $1::integer) AS n`,
		tenants)
	run(`INSERT INTO alert (tenant_id, name, kind, per_subject, threshold, window_minutes, url, secret, is_active)
		SELECT t.tenant_id, 'crowd', CASE n % 3 WHEN 0 THEN 'near_limit' ELSE 'denials' END, n % 3 = 1, 50, 5, '', '',
			true
		FROM tenant AS t CROSS JOIN generate_series(1, $1::integer) AS n WHERE t.slug LIKE 'crowd-%'`, alerts)
	run(`INSERT INTO violation_minute (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
		SELECT t.tenant_id, date_trunc('minute', $1::timestamptz), 1, 'the worst', false, 60, 60
		FROM tenant AS t WHERE t.slug LIKE 'crowd-%'`, now)
	run(`INSERT INTO decision_minute (tenant_id, rule_id, minute, allowed, denied, bypassed, degraded, cost_taken,
			near_limit)
		SELECT t.tenant_id, r, date_trunc('minute', $1::timestamptz), 40, 60, 0, 0, 40, 0
		FROM tenant AS t CROSS JOIN generate_series(0, 1) AS r WHERE t.slug LIKE 'crowd-%'`, now)
	run(`INSERT INTO violation_minute (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
		SELECT t.tenant_id, date_trunc('minute', $1::timestamptz) - make_interval(mins => m), s % 6, 'subject ' || s,
			false, 1, 1
		FROM (SELECT tenant_id FROM tenant WHERE slug LIKE 'crowd-%' ORDER BY tenant_id LIMIT $2) AS t
		CROSS JOIN generate_series(0, 9) AS m CROSS JOIN generate_series(1, $3::integer) AS s`, now, busy, subjects)
	run("ANALYZE tenant, alert, violation_minute, decision_minute, delivery, job")
}

func TestOnePassRaisesTheAlertsOfAllTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const tenants, greedy = 600, 700
	now, db := time.Now(), connect(t, w.url)
	crowd(t, db, tenants, 1, 1, 2000, now)
	exec(t, w.url, "INSERT INTO tenant_capacity (tenant_id, alerts) VALUES ($1, 5000)", w.ours.ID)
	exec(t, w.url, `INSERT INTO alert (tenant_id, name, kind, per_subject, threshold, window_minutes, url, secret,
			is_active)
		SELECT $1, 'greedy', 'denials', false, 10, 5, '', '', true FROM generate_series(1, $2::integer)`, w.ours.ID,
		greedy)
	w.deny(t, w.ours.user, "42", now, 12)
	if err := w.raiseAll(t, now); err != nil {
		t.Fatal(err)
	}
	raised := func() []string {
		return lines(t, db, `SELECT (tenant_id = $1)::text || ' ' || count(DISTINCT tenant_id) || ' ' || count(*)
			FROM delivery GROUP BY tenant_id = $1 ORDER BY 1`, w.ours.ID)
	}
	want := []string{fmt.Sprintf("false %d %d", tenants, tenants), fmt.Sprintf("true 1 %d", greedy)}
	if got := raised(); !slices.Equal(got, want) {
		t.Errorf("raised are %q, want %q", got, want)
	}
	if err := w.raiseAll(t, now.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := raised(); !slices.Equal(got, want) {
		t.Errorf("after another pass raised are %q, want %q", got, want)
	}
}

// The preview reads counts for each alert by itself.
func TestAPassJudgesLikeThePreview(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	ctx, now := t.Context(), time.Now().UTC().Truncate(time.Minute).Add(20*time.Second)
	seed := rand.Uint64()
	chance := rand.New(rand.NewPCG(seed, 1))
	tenants := []owned{w.ours, w.theirs, w.found(t, "third")}
	for _, of := range tenants {
		for range 12 {
			alert := alertOn([]rules.Rule{of.user, of.daily}[chance.IntN(2)], chance.IntN(2) == 0)
			alert.Kind = []violations.AlertKind{
				violations.AlertDenials, violations.AlertNearLimit, violations.AlertCrossings, violations.AlertDegraded,
			}[chance.IntN(4)]
			if alert.Kind == violations.AlertNearLimit || alert.Kind == violations.AlertDegraded {
				alert.PerSubject = false
			}
			if chance.IntN(3) == 0 {
				alert.Rule = 0
			}
			alert.Threshold, alert.Window = 1+chance.Int64N(40), time.Duration(1+chance.IntN(6))*time.Minute
			must(w.CreateAlert(ctx, tester, alert))(t)
		}
		for minute := range 9 {
			at := now.Add(-time.Duration(minute) * time.Minute)
			for _, rule := range []rules.Rule{of.user, of.daily} {
				for subject := range 3 {
					w.deny(t, rule, fmt.Sprint(subject), at, 1+chance.Int64N(12))
					if chance.IntN(3) == 0 {
						w.crossQuota(t, rule, fmt.Sprint(subject, minute), at)
					}
				}
				w.decide(t, of.ID, rule.ID, at, violations.Verdicts{
					Allowed: chance.Int64N(20), Denied: chance.Int64N(3), NearLimit: chance.Int64N(3),
					Degraded: chance.Int64N(5),
				})
			}
			w.decide(t, of.ID, 0, at, violations.Verdicts{Allowed: 40, Degraded: chance.Int64N(9)})
		}
	}
	var want []string
	for _, alert := range must(w.ActiveAlerts(ctx))(t) {
		counts, _, err := w.AlertCounts(ctx, &alert.Alert, alert.RaisedBefore(now), now)
		if err != nil {
			t.Fatal(err)
		}
		for _, firing := range alert.Firings(counts, now) {
			want = append(want, fmt.Sprintln(alert.Tenant, alert.ID, firing.Rule, firing.Subject, firing.Denied,
				firing.Since.Unix()))
		}
	}
	if err := w.raiseAll(t, now); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, of := range tenants {
		for _, d := range must(w.AlertDeliveries(ctx, of.ID, 0, 0, 1000))(t) {
			got = append(got, fmt.Sprintln(d.Tenant, d.Alert, d.Rule, d.Subject, d.Denied, d.Since.Unix()))
		}
	}
	slices.Sort(want)
	if slices.Sort(got); len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("seed %d: raised are\n%q\nwant\n%q", seed, got, want)
	}
}

func TestATenantWhoseAlertsFailHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now, third := time.Now(), w.found(t, "third")
	must(w.CreateAlert(t.Context(), tester, alertOn(w.ours.user, false)))(t)
	must(w.CreateAlert(t.Context(), tester, alertOn(third.user, false)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	w.deny(t, third.user, "42", now, 12)
	exec(t, w.url, fmt.Sprintf(`ALTER TABLE delivery ADD CONSTRAINT refused CHECK (tenant_id <> %d)`, w.ours.ID))
	if err := w.raiseAll(t, now); err == nil {
		t.Error("nobody hears that a tenant's alerts were not raised")
	}
	if raised := must(w.AlertDeliveries(t.Context(), third.ID, 0, 0, 10))(t); len(raised) != 1 {
		t.Errorf("%d alerts of another tenant were raised, want 1", len(raised))
	}
}

func TestAnAlertThatIsBeingChangedIsLeftToTheNextPass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, now, third := t.Context(), time.Now(), w.found(t, "third")
	changing := must(w.CreateAlert(ctx, tester, alertOn(w.ours.user, false)))(t)
	must(w.CreateAlert(ctx, tester, alertOn(third.user, false)))(t)
	w.deny(t, w.ours.user, "42", now, 12)
	w.deny(t, third.user, "42", now, 12)
	judged := must(w.ActiveAlerts(ctx))(t)
	held := must(connect(t, w.url).Begin(ctx))(t)
	must(held.Exec(ctx, `UPDATE alert SET silenced_until = now() + interval '1 hour', version = version + 1
		WHERE alert_id = $1`, changing.ID))(t)
	if raised := must(w.RaiseAlerts(ctx, judged, now))(t); raised != 1 {
		t.Errorf("%d were raised during the change, want the other one", raised)
	}
	if err := held.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if raised := must(w.RaiseAlerts(ctx, judged, now))(t); raised != 0 {
		t.Errorf("%d were raised as they were before a change", raised)
	}
	if err := w.raiseAll(t, now); err != nil {
		t.Fatal(err)
	}
	if d := must(w.AlertDeliveries(ctx, w.ours.ID, 0, 0, 10))(t); len(d) != 1 || !d[0].Silenced {
		t.Errorf("the next pass recorded %+v", d)
	}
}

func TestATenantsAlertsHaveABoundedQueueTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	const alerts = 15
	for range alerts {
		must(w.CreateAlert(t.Context(), tester, alertOn(w.ours.user, true)))(t)
	}
	exec(t, w.url, `INSERT INTO violation_minute (tenant_id, minute, rule_id, subject, other, denied, detail_dropped)
		SELECT $1, date_trunc('minute', $3::timestamptz), $2, n::text, false, 100, 0 FROM generate_series(1, 200) AS n`,
		w.ours.ID, w.ours.user.ID, now)
	if err := w.raiseAll(t, now); err != nil {
		t.Fatal(err)
	}
	var pending int
	for _, text := range lines(t, connect(t, w.url), "SELECT count(*)::text FROM delivery GROUP BY alert_id") {
		n := must(strconv.Atoi(text))(t)
		pending += n
		if n < violations.MaxPendingOfTenant/alerts {
			t.Errorf("an alert has %d pending deliveries, less than its share", n)
		}
	}
	if pending != violations.MaxPendingOfTenant {
		t.Errorf("%d deliveries are pending, want %d", pending, violations.MaxPendingOfTenant)
	}
	if err := w.raiseAll(t, now); err != nil || w.jobsLike(t, "true") != violations.MaxPendingOfTenant {
		t.Errorf("another pass leaves %d jobs: %v", w.jobsLike(t, "true"), err)
	}
}

// BenchmarkAlertPass judges three alerts of each of 10,000 tenants, of which 100 have 700 counts a minute, as with a
// million denials a day.
func BenchmarkAlertPass(b *testing.B) {
	const tenants, alerts = 10_000, 3
	now, url := time.Now(), devdbtest.Postgres(b)
	db := must(pgx.Connect(b.Context(), url))(b)
	b.Cleanup(func() { _ = db.Close(context.WithoutCancel(b.Context())) })
	crowd(b, db, tenants, alerts, 100, 700, now)
	store := must(pgstore.Open(b.Context(), url, slog.New(slog.DiscardHandler)))(b)
	b.Cleanup(store.Close)
	pass := func(b *testing.B) {
		began := time.Now()
		if err := violations.RaiseAll(b.Context(), store, now, slog.New(slog.DiscardHandler)); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/pass")
		var raised int
		err := db.QueryRow(b.Context(), "SELECT count(DISTINCT (tenant_id, alert_id)) FROM delivery").Scan(&raised)
		if err != nil || raised != tenants*alerts {
			b.Fatalf("%d of %d alerts were raised: %v", raised, tenants*alerts, err)
		}
	}
	b.Run("all are raised", func(b *testing.B) {
		for b.Loop() {
			if _, err := db.Exec(b.Context(), "TRUNCATE delivery, job"); err != nil {
				b.Fatal(err)
			}
			pass(b)
		}
	})
	b.Run("none is", func(b *testing.B) {
		for b.Loop() {
			pass(b)
		}
	})
}
