package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/devdb/awake"
	"github.com/sluicegate/sluice/internal/devdb/devdbtest"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

const testTimeout = time.Minute

func TestMain(m *testing.M) {
	logging.Disable() // the driver reports each failed dial
	code := m.Run()
	deadline := time.Now().Add(testTimeout)
	// A cut toxiproxy connection that is busy may leave a goroutine behind.
	theirs := goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run")
	err := goleak.Find(theirs)
	for err != nil && time.Now().Before(deadline) {
		err = goleak.Find(theirs)
	}
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left:", err)
		code = 1
	}
	os.Exit(code)
}

func client(t testing.TB, url string, budget time.Duration) redis.UniversalClient {
	t.Helper()
	options, err := Options(url, budget)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewUniversalClient(options)
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil {
			t.Errorf("close client: %v", err)
		}
	})
	return rdb
}

func generous(t testing.TB) (*devdb.Redis, *Store) {
	t.Helper()
	server := devdbtest.Redis(t)
	return server, New(client(t, server.URL(), testTimeout), testTimeout)
}

func user(subject string, limit enforce.Limit) enforce.Tier {
	return enforce.Tier{Key: enforce.Key{Tenant: 1, Rule: 1, Subject: subject}, Limit: limit}
}

func one(tiers ...enforce.Tier) []enforce.BucketCheck {
	return []enforce.BucketCheck{{Cost: enforce.Token, Tiers: tiers}}
}

func fourTiers(subject int, limit enforce.Limit) enforce.BucketCheck {
	check := enforce.BucketCheck{Cost: enforce.Token, Tiers: make([]enforce.Tier, 4)}
	for i, subject := range []string{
		fmt.Sprint("user-", subject), fmt.Sprint("203.0.113.", subject), "/api/search",
		"",
	} {
		check.Tiers[i] = enforce.Tier{
			Key:   enforce.Key{Tenant: 1, Rule: rules.RuleID(i), Subject: subject},
			Limit: limit,
		}
	}
	return check
}

func mustTake(t testing.TB, s *Store, checks []enforce.BucketCheck) []enforce.BucketCheck {
	t.Helper()
	if err := s.Take(context.Background(), checks); err != nil { // as from enforce.Limiter
		t.Fatalf("take: %v", err)
	}
	return checks
}

func mustCheck(t testing.TB, s *Store) {
	t.Helper()
	if _, err := s.CheckSettings(t.Context()); err != nil {
		t.Fatalf("check: %v", err)
	}
}

func ofTenants(tenants, n int, limit enforce.Limit) []enforce.BucketCheck {
	all := make([]enforce.BucketCheck, n)
	for i := range all {
		tier := user("{hijack}", limit)
		tier.Key.Tenant = rules.TenantID(i % tenants)
		all[i] = enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{tier}}
	}
	return all
}

func takeAt(s *Store, now int64, checks []enforce.BucketCheck) error {
	s.stamp = func() int64 { return now }
	return s.Take(context.Background(), checks)
}

// eventually does not count what others kept this process waiting for.
func eventually(t testing.TB, what string, within time.Duration, condition func() bool) time.Duration {
	t.Helper()
	watch := awake.Start()
	defer watch.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		if watch.Now() > within {
			t.Fatalf("%s: not within %v", what, within)
		}
		<-tick.C
	}
	return watch.Now()
}

func contents(t testing.TB, rdb redis.UniversalClient) map[string]string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	all := map[string]string{}
	keys := rdb.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		value, err := rdb.Get(ctx, keys.Val()).Result()
		if redis.HasErrorPrefix(err, "WRONGTYPE") { // the index of reservations
			value, err = rdb.Dump(ctx, keys.Val()).Result()
		}
		if err != nil {
			t.Fatalf("get %q: %v", keys.Val(), err)
		}
		all[keys.Val()] = value
	}
	if err := keys.Err(); err != nil {
		t.Fatalf("scan: %v", err)
	}
	return all
}

// expire acts for Redis's own clock, by which a test's keys live 300 s instead of 10.
func expire(t testing.TB, rdb redis.UniversalClient, now int64, checks []enforce.BucketCheck) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	type kept struct {
		value *redis.StringCmd
		ttl   *redis.DurationCmd
	}
	keys := map[string]kept{}
	pipe := rdb.Pipeline()
	for i := range checks {
		for j := range checks[i].Tiers {
			key := keyText(checks[i].Tiers[j].Key)
			if _, asked := keys[key]; !asked {
				keys[key] = kept{pipe.Get(ctx, key), pipe.PTTL(ctx, key)}
			}
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("look for what expired: %v", err)
	}
	// Some of the 290 s have passed since the write.
	const more = 290*time.Second - testTimeout
	for key, k := range keys {
		value := k.value.Val()
		stampAt := 13
		switch {
		case len(value) >= 58 && value[0] == 2:
			stampAt = 14
		case len(value) != 41:
			continue
		}
		stamp := int64(float(value[stampAt:]))
		if now >= stamp+(k.ttl.Val()-more).Microseconds() {
			if err := rdb.Del(ctx, key).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
