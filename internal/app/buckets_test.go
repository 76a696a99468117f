package app

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/config"
	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/redisbucket"
	"github.com/sluicegate/sluice/internal/rules"
)

// TestAProcessThatEndsReportsWhatItsChecksBorrowed, before it closes its connections.
func TestAProcessThatEndsReportsWhatItsChecksBorrowed(t *testing.T) {
	t.Parallel()
	cluster, err := devdb.StartRedisCluster(t.Context(), t.TempDir(), 1, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Kill)
	open := func() *Buckets {
		cfg := config.Config{RedisURL: config.ConnURL(cluster.URL()), StoreBudget: time.Minute, Leases: config.LeasesOff}
		b, err := OpenBuckets(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	check := enforce.BucketCheck{Cost: enforce.Token}
	for shard := range uint8(2) {
		check.Tiers = append(check.Tiers, enforce.Tier{
			Key: enforce.Key{Tenant: 1, Rule: 1, Subject: "42", Shard: shard + 1}, Limit: enforce.Limit{Rate: rules.MinRate, Burst: 100},
		})
	}
	look := check
	look.Look = true
	looked := func(b *Buckets) ([]enforce.Tier, error) {
		checks := []enforce.BucketCheck{look}
		err := b.Shared().Take(context.Background(), checks) // as from enforce.Limiter
		return checks[0].Tiers, err
	}
	ending, other := open(), open()
	defer func() { _ = other.Close() }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for _, err = looked(other); err != nil; _, err = looked(other) { // until the cluster is whole
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal(err)
		}
	}
	if err := ending.Shared().Take(context.Background(), []enforce.BucketCheck{check}); err != nil {
		t.Fatal(err)
	}
	if err := ending.Close(); err != nil {
		t.Fatal(err)
	}
	tiers, err := looked(other)
	if err != nil {
		t.Fatal(err)
	}
	for _, tier := range tiers {
		if left := tier.Bucket.Level.Micros.Whole(); tier.Out != 0 || left != 99 {
			t.Errorf("of shard %d %d tokens are left, and %s still lent", tier.Key.Shard, left, tier.Out)
		}
	}
}

func TestReadinessNamesTheNodesThatAreDown(t *testing.T) {
	t.Parallel()
	b, err := OpenBuckets(t.Context(), config.Config{RedisURL: "redis://127.0.0.1:1,127.0.0.1:2"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if word, _ := b.State(); word != "down" {
		t.Errorf("before the first ping Redis is %s", word)
	}
	for _, test := range []struct {
		first, second redisbucket.State
		word          string
		down          []string
	}{
		{redisbucket.Up, redisbucket.Up, "up", nil},
		{redisbucket.Up, redisbucket.Down, "partial", []string{"10.0.0.2:6379"}},
		{redisbucket.Down, redisbucket.Down, "down", nil},
	} {
		b.health.Store(&health{nodes: []redisbucket.Node{
			{Addr: "10.0.0.1:6379", State: test.first}, {Addr: "10.0.0.2:6379", State: test.second},
		}})
		word, down := b.State()
		if word != test.word || !slices.Equal(down, test.down) {
			t.Errorf("%s and %s: %s, down %v; want %s, %v", test.first, test.second, word, down, test.word, test.down)
		}
		warned := strings.Contains(strings.Join(b.warnings(), "\n"), "10.0.0.2:6379")
		if warned != (test.down != nil) {
			t.Errorf("%s and %s: the warnings are %q", test.first, test.second, b.warnings())
		}
	}
}
