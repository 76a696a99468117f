package control

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/pgstore"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/store/redisbucket"
)

// The buckets of a descriptor's limit are in Redis for its window, up to a year.
func TestAnErasureFillsTheBucketsOfADescriptorsLimits(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	store, err := pgstore.Open(ctx, devdbtest.Postgres(t), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	by := store.As(rules.Actor{})
	acme, err := by.CreateTenant(ctx, rules.Tenant{
		Slug: "acme", Name: "acme", DefaultPlan: "free", Settings: rules.DefaultSettings(),
	})
	if err != nil {
		t.Fatal(err)
	}
	pattern, err := rules.ParsePattern("user:{user_id}:attr.descriptor:user_id")
	if err != nil {
		t.Fatal(err)
	}
	userPattern, err := rules.ParsePattern("user:{user_id}")
	if err != nil {
		t.Fatal(err)
	}
	rule, err := by.CreateRule(ctx, rules.Rule{
		TenantID: acme.ID, Pattern: pattern, RateUnit: rules.PerSecond, Burst: 10, Algorithm: rules.FixedWindow,
		Window: rules.Window{Length: time.Hour}, Mode: rules.ModeEnforce, Action: rules.ActionLimit, Active: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := by.CreatePlan(ctx, rules.Plan{TenantID: acme.ID, Name: "pro"}); err != nil {
		t.Fatal(err)
	}
	sent := rule // a check may name the plan
	sent.Plan, sent.Pattern = "pro", userPattern
	if sent, err = by.CreateRule(ctx, sent); err != nil {
		t.Fatal(err)
	}
	watcher := snapshot.NewWatcher(store, snapshot.WatcherOptions{Logger: slog.New(slog.DiscardHandler)})
	if err := watcher.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	options, err := redis.ParseURL(devdbtest.Redis(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	buckets := redisbucket.New(client, 10*time.Second)
	limit := enforce.Limit{Kind: rules.KindFixedWindow, Burst: 5, Interval: (365 * 24 * time.Hour).Microseconds()}
	var checks []enforce.BucketCheck
	for _, user := range []string{"mallory", "bob"} {
		m := rules.Match{Rule: &rule, Limit: limit, IsOwn: true, Subject: user}
		checks = append(checks, enforce.BucketCheck{
			Cost: 4 * enforce.Token, Tiers: []enforce.Tier{{Key: enforce.KeyOf(&acme, &m), Limit: limit}},
		})
	}
	if err := buckets.Take(ctx, checks); err != nil {
		t.Fatal(err)
	}
	filled, err := fillBuckets(watcher, buckets, func(enforce.Key) {})(ctx, acme.ID, "mallory")
	if err != nil || filled != 3 { // with the rules' own
		t.Errorf("%d buckets are filled (%v), want 3", filled, err)
	}
	const soon = time.Minute
	for user, isForgotten := range map[string]bool{"mallory": true, "bob": false} {
		keys, err := client.Keys(ctx, "*:5:31536000000000:"+user).Result()
		if err != nil || len(keys) != 1 {
			t.Fatalf("the keys of %s are %q (%v)", user, keys, err)
		}
		if left := client.PTTL(ctx, keys[0]).Val(); (left < soon) != isForgotten {
			t.Errorf("the bucket of %s is kept for %s", user, left)
		}
	}
}
