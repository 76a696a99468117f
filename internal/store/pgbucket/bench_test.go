package pgbucket

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	benchCallers = 32
	benchRounds  = 5
	benchRound   = time.Second
)

// The usual transaction of rate limiters in PostgreSQL is insert if missing, select for update, upsert, by bucket or
// check. Both sides take turns on one server, with 32 callers:
//
//	go test ./internal/store/pgbucket -run none -bench BesideRowTransactions -benchtime 1x
func BenchmarkBesideRowTransactions(b *testing.B) {
	databaseURL := devdbtest.Postgres(b)
	s := open(b, databaseURL, 10*time.Second)
	pool, err := pgxpool.New(b.Context(), databaseURL+"&pool_max_conns=16")
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(b.Context(),
		`CREATE UNLOGGED TABLE row_bucket (key text PRIMARY KEY, tokens float8 NOT NULL,
			refilled timestamptz NOT NULL) WITH (fillfactor = 50)`); err != nil {
		b.Fatal(err)
	}
	limit := enforce.Limit{Rate: 1e6, Burst: 1e9}
	ctx := context.Background()
	ways := []struct {
		name  string
		check func(check enforce.BucketCheck) error
		rates []float64
	}{
		{name: "pgbucket", check: func(check enforce.BucketCheck) error {
			return s.Take(ctx,
				[]enforce.BucketCheck{check})
		}},
		{name: "row transactions", check: func(check enforce.BucketCheck) error {
			for i := range check.Tiers {
				if err := rowTransaction(ctx, pool, check.Tiers[i:i+1]); err != nil {
					return err
				}
			}
			return nil
		}},
		{
			name:  "one transaction of rows",
			check: func(check enforce.BucketCheck) error { return rowTransaction(ctx, pool, check.Tiers) },
		},
	}
	for b.Loop() {
		for range benchRounds {
			for i := range ways {
				ways[i].rates = append(ways[i].rates, checksPerSecond(b, limit, ways[i].check))
			}
		}
	}
	median := func(rates []float64) float64 { slices.Sort(rates); return rates[len(rates)/2] }
	own := median(ways[0].rates)
	b.Logf("checks of four tiers per second: pgbucket %.0f, a transaction per bucket %.0f (%.1f times), a "+
		"transaction per check %.0f (%.1f times)",
		own, median(ways[1].rates), own/median(ways[1].rates), median(ways[2].rates), own/median(ways[2].rates))
	b.ReportMetric(own, "checks/s")
	b.ReportMetric(own/median(ways[1].rates), "times-per-bucket")
	b.ReportMetric(own/median(ways[2].rates), "times-per-check")
}

// Checks of four tiers, by 32 callers of ten tenants.
func BenchmarkReserveAndSettle(b *testing.B) {
	s := open(b, devdbtest.Postgres(b), 10*time.Second)
	limit := enforce.Limit{Rate: 1e6, Burst: 1e9}
	ctx := context.Background()
	rate := 0.0
	for b.Loop() {
		rate = checksPerSecond(b, limit, func(check enforce.BucketCheck) error {
			var id enforce.ReservationID
			binary.LittleEndian.PutUint64(id[:], rand.Uint64())
			check.Reserve = &enforce.Reservation{ID: id, Life: time.Hour, Key: "a key"}
			if err := s.Take(ctx, []enforce.BucketCheck{check}); err != nil {
				return err
			}
			_, err := s.SettleReservation(ctx, check.Tiers[0].Key.Tenant, id,
				enforce.Settlement{HasCost: true, Cost: 2 * enforce.Token})
			return err
		})
	}
	b.ReportMetric(rate, "settled/s")
}

func checksPerSecond(b *testing.B, limit enforce.Limit, check func(enforce.BucketCheck) error) float64 {
	b.Helper()
	var done atomic.Int64
	var callers sync.WaitGroup
	began := time.Now()
	for range benchCallers {
		callers.Go(func() {
			for time.Since(began) < benchRound {
				if err := check(fourTiers(rules.TenantID(1+rand.IntN(10)), rand.IntN(10_000), limit)); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	callers.Wait()
	return float64(done.Load()) / time.Since(began).Seconds()
}

func rowTransaction(ctx context.Context, pool *pgxpool.Pool, tiers []enforce.Tier) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for i := range tiers {
			key := string(rune('0'+tiers[i].Key.Tenant)) + " " + tiers[i].Key.Text()
			if _, err := tx.Exec(ctx,
				`INSERT INTO row_bucket VALUES ($1, $2, clock_timestamp()) ON CONFLICT DO NOTHING`, key,
				float64(tiers[i].Limit.Burst)); err != nil {
				return err
			}
			var tokens float64
			var refilled, now time.Time
			if err := tx.QueryRow(ctx,
				`SELECT tokens, refilled, clock_timestamp() FROM row_bucket WHERE key = $1 FOR UPDATE`,
				key).Scan(&tokens, &refilled, &now); err != nil {
				return err
			}
			tokens = min(float64(tiers[i].Limit.Burst), tokens+now.Sub(refilled).Seconds()*tiers[i].Limit.Rate) - 1
			if _, err := tx.Exec(ctx,
				`INSERT INTO row_bucket VALUES ($1, $2, $3) ON CONFLICT (key)
					DO UPDATE SET tokens = excluded.tokens, refilled = excluded.refilled`,
				key, tokens, now); err != nil {
				return err
			}
		}
		return nil
	})
}
