package pgstore_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/ruleset"
	"github.com/sluicegate/sluice/internal/traffic"
)

// BenchmarkEffect shows effects of a tenant that recorded 10 million checks in a day, among 1.2 million blocks of
// others. Loading them takes minutes, and 2 GB.
func BenchmarkEffect(b *testing.B) {
	const (
		checks, users    = 10_000_000, 100_000
		others, slots    = 1_200_000, 288
		slot             = 24 * time.Hour / slots
		perSlot          = checks / slots
		everyFewSlots    = 10 // of these one comes after the last VACUUM
		heavyUser, quiet = "heavy", "user-7"
	)
	ctx := b.Context()
	databaseURL := devdbtest.Postgres(b)
	owner := must(pgx.Connect(ctx, databaseURL))(b)
	b.Cleanup(func() { _ = owner.Close(ctx) })
	sql := func(sql string, args ...any) {
		b.Helper()
		if _, err := owner.Exec(ctx, sql, args...); err != nil {
			b.Fatal(err)
		}
	}
	sql("CREATE ROLE effect_bench LOGIN PASSWORD 'runtime'")
	if err := pgstore.Grant(ctx, databaseURL, "effect_bench"); err != nil {
		b.Fatal(err)
	}
	as := must(url.Parse(databaseURL))(b)
	as.User = url.UserPassword("effect_bench", "runtime")
	store := must(pgstore.Open(ctx, as.String(), slog.New(slog.DiscardHandler)))(b)
	b.Cleanup(store.Close)
	sql("INSERT INTO tenant (slug, name) SELECT 't' || n, 'T' FROM generate_series(1, 1000) AS n")
	tenant := must(store.As(tester).CreateTenant(ctx,
		rules.Tenant{Slug: "busy", Name: "Busy", DefaultPlan: "free", Settings: rules.DefaultSettings()}))(b)
	sql("UPDATE tenant SET record_days = 7 WHERE tenant_id = $1", tenant.ID)
	limitOf := func(pattern string, rate float64, burst int64) rules.Rule {
		return rules.Rule{
			TenantID: tenant.ID, Pattern: must(rules.ParsePattern(pattern))(b), RatePerSecond: rate,
			RateUnit: rules.PerSecond, Burst: burst,
			Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce, Action: rules.ActionLimit, Active: true,
		}
	}
	each := must(store.As(tester).CreateRule(ctx, limitOf("user:{user_id}", 0.01, 20)))(b)
	for _, of := range []rules.Rule{limitOf("ip:{ip}", 1, 100), limitOf("global", 100, 200)} {
		must(store.As(tester).CreateRule(ctx, of))(b)
	}
	for n := range 100 {
		must(store.As(tester).CreateRule(ctx, limitOf(fmt.Sprint("endpoint:/api/", n), 2, 50)))(b)
	}

	now := time.Now().UTC().Truncate(time.Second)
	began := time.Now()
	for _, day := range []time.Time{now.AddDate(0, 0, -1), now} {
		sql("SELECT make_day_partition('traffic_block', $1::date)", day)
	}
	random := rand.New(rand.NewPCG(5, 6))
	settings := rules.DefaultSettings()
	var number int64
	for n := range slots {
		at := now.Add(-24 * time.Hour).Add(time.Duration(n) * slot)
		sql(`INSERT INTO traffic_block (tenant_id, day, writer, number, first_at, last_at, stratum, level, checks,
			seen, left_out, dropped, users, payload)
			SELECT t.tenant_id, (at AT TIME ZONE 'UTC')::date, 'w', $2::bigint * 1000000 + n, at,
				at + interval '1 minute', n % 6, 0, 100, 100, 0, 0,
				(SELECT array_agg('user-' || u * n) FROM generate_series(1, 10) AS u),
					decode(repeat(md5(n::text), 15), 'hex')
			FROM generate_series(1, $3::integer) AS n,
				LATERAL (SELECT $1::timestamptz + n * interval '0.07 seconds' AS at) AS b, tenant AS t
			WHERE t.slug = 't' || 1 + (n * 7919 + $2::bigint) % 1000`, at, n, others/slots)
		runs := map[[2]int][]traffic.Run{}
		for range perSlot {
			user := fmt.Sprint("user-", int(random.ExpFloat64()*users/5)%users)
			if random.IntN(30) == 0 {
				user = heavyUser
			}
			ip := netip.AddrFrom4([4]byte{10, byte(len(user)), user[len(user)-1], byte(random.IntN(8))})
			after := random.Int64N(slot.Milliseconds())
			stratum := max(traffic.StratumOfUser(tenant.ID, user), traffic.StratumOfIP(tenant.ID, ip, &settings))
			key := [2]int{stratum, int(after / time.Minute.Milliseconds())}
			if stratum > 1 {
				key[1] = 0
			}
			runs[key] = append(runs[key], traffic.Run{
				UserID: user, Endpoint: fmt.Sprint("/api/", random.IntN(100)), Method: "GET", IP: ip, Cost: 1_000_000,
				Plan: "free", Times: []uint32{uint32(after)},
			})
		}
		var blocks []traffic.Block
		for key, of := range runs {
			slices.SortFunc(of, func(a, b traffic.Run) int { return int(a.Times[0]) - int(b.Times[0]) })
			first := at.Add(time.Duration(of[0].Times[0]) * time.Millisecond)
			last := at.Add(time.Duration(of[len(of)-1].Times[0]) * time.Millisecond)
			for i := range of {
				of[i].Times[0] -= uint32(first.Sub(at).Milliseconds())
			}
			if first.Day() != last.Day() {
				last = first.Truncate(24 * time.Hour).Add(24*time.Hour - time.Millisecond)
			}
			number++
			block := traffic.Block{
				Tenant: tenant.ID, Writer: "w", Number: number, First: first, Last: last,
				Stratum: key[0],
			}
			block.Seen = int64(len(of))
			block.SetRuns(of)
			blocks = append(blocks, block)
		}
		if err := store.WriteTraffic(ctx, blocks); err != nil {
			b.Fatal(err)
		}
		if n == slots-slots/everyFewSlots {
			sql("VACUUM ANALYZE traffic_block") // as autovacuum does when a fifth is new
		}
	}
	b.Logf("%d blocks of the tenant and %d of others were written in %v", number, others,
		time.Since(began).Round(time.Second))

	of := func(all ...rules.Rule) *replay.Candidate {
		return &replay.Candidate{Config: ruleset.Config{Rules: all}}
	}
	override := func(user string) *replay.Candidate {
		return &replay.Candidate{Config: ruleset.Config{Overrides: []ruleset.ConfigOverride{{
			Rule: each.Identity(), Override: rules.Override{
				RuleID: each.ID, UserID: user, RatePerSecond: 5,
				RateUnit: rules.PerSecond, Burst: 5,
			},
		}}}}
	}
	for _, c := range []struct {
		name      string
		candidate *replay.Candidate
	}{
		{"an override of a busy user", override(heavyUser)},
		{"an override of a quiet user", override(quiet)},
		{"a limit of each user", of(limitOf("user:{user_id}", 0.005, 10))},
		{"a limit that users share", of(limitOf("global", 50, 100))},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				result := must(replay.Effect(ctx, store, tenant.ID, c.candidate, replay.EffectChecks, now))(b)
				b.ReportMetric(float64(result.Read), "checks")
			}
		})
	}
	day := traffic.Range{Since: now.Add(-24 * time.Hour), Until: now}
	b.Run("the summary of the day", func(b *testing.B) {
		for b.Loop() {
			must(store.Summary(ctx, tenant.ID, day))(b)
		}
	})
	b.Run("the latest 100,000 checks", func(b *testing.B) {
		for b.Loop() {
			must(store.Latest(ctx, tenant.ID, day, 100_000, 1<<60))(b)
		}
	})
}
