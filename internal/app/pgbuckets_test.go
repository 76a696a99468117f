package app

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
)

func TestProcessesShareBucketsInPostgres(t *testing.T) {
	t.Parallel()
	cfg := config.Config{
		Buckets: config.BucketsInPostgres, DatabaseURL: config.ConnURL(devdbtest.Postgres(t)), StoreBudget: 10 * time.Second,
	}
	limit := enforce.Limit{Rate: 1e-6, Burst: 2, Since: 1}
	for process, want := range []bool{true, true, false} {
		b, err := openBuckets(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if word, _ := b.state(); word != "down" {
			t.Errorf("before the first ping the store is %s", word)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.watch(ctx) }()
		<-b.pinged
		if word, _ := b.state(); word != "up" {
			t.Errorf("after the first ping the store is %s", word)
		}
		checks := []enforce.BucketCheck{{Cost: enforce.Token, Tiers: []enforce.Tier{{Key: enforce.Key{Tenant: 1, Rule: 1}, Limit: limit}}}}
		if err := b.shared().Take(context.Background(), checks); err != nil || checks[0].Allowed != want {
			t.Errorf("process %d: allowed %t, %v; want %t", process, checks[0].Allowed, err, want)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}
}
