package app

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
)

func TestMain(m *testing.M) { os.Exit(devdbtest.Main(m).Run()) }

func TestProcessesShareBucketsInPostgres(t *testing.T) {
	t.Parallel()
	cfg := config.Config{
		Buckets: config.BucketsInPostgres, DatabaseURL: config.ConnURL(devdbtest.Postgres(t)),
		StoreBudget: 10 * time.Second,
	}
	limit := enforce.Limit{Rate: 1e-6, Burst: 2, Since: 1}
	for process, want := range []bool{true, true, false} {
		b, err := OpenBuckets(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if word, _ := b.State(); word != "down" {
			t.Errorf("before the first ping the store is %s", word)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); b.watch(ctx) }()
		<-b.Pinged
		if word, _ := b.State(); word != "up" {
			t.Errorf("after the first ping the store is %s", word)
		}
		checks := []enforce.BucketCheck{{
			Cost:  enforce.Token,
			Tiers: []enforce.Tier{{Key: enforce.Key{Tenant: 1, Rule: 1}, Limit: limit}},
		}}
		if err := b.Shared().Take(context.Background(), checks); err != nil || checks[0].Allowed != want {
			t.Errorf("process %d: allowed %t, %v; want %t", process, checks[0].Allowed, err, want)
		}
		stop()
		<-ended
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
