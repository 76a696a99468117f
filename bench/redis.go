package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/devdb"
	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/store/redisbucket"
)

const (
	users   = 50_000
	callers = 8 // goroutines that ask at once: enough to keep one Redis busy with batches
	budget  = 10 * time.Second
)

type taker interface {
	Take(ctx context.Context, checks []enforce.BucketCheck) error
}

// withRedis runs a function with a Redis of its own, empty, and ends that.
func withRedis(ctx context.Context, do func(redis.UniversalClient) error) error {
	dir, err := os.MkdirTemp("", "sluice-bench-")
	if err != nil {
		return fmt.Errorf("make a directory for redis: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := devdb.StartRedis(ctx, dir)
	if err != nil {
		return err
	}
	defer server.Kill()
	options, err := redisbucket.Options(server.URL(), budget)
	if err != nil {
		return err
	}
	rdb := redis.NewUniversalClient(options)
	defer func() { _ = rdb.Close() }()
	return do(rdb)
}

// check is a check as most are: a user and an address of its own, an endpoint and the tenant shared.
func check(tenant rules.TenantID, user int) enforce.BucketCheck {
	tiers := []enforce.Tier{
		{
			Key:   enforce.Key{Tenant: tenant, Rule: 1, Subject: fmt.Sprint("user-", user)},
			Limit: enforce.Limit{Rate: 100, Burst: 500, Since: 1},
		},
		{
			Key:   enforce.Key{Tenant: tenant, Rule: 2, Subject: fmt.Sprintf("203.0.%d.%d", user/256, user%256)},
			Limit: enforce.Limit{Rate: 200, Burst: 1000, Since: 1},
		},
		{
			Key:   enforce.Key{Tenant: tenant, Rule: 3, Subject: fmt.Sprint("/api/", user%20)},
			Limit: enforce.Limit{Rate: 1e6, Burst: 1e6, Since: 1},
		},
		{Key: enforce.Key{Tenant: tenant, Rule: 4}, Limit: enforce.Limit{Rate: 1e7, Burst: 1e7, Since: 1}},
	}
	return enforce.BucketCheck{Cost: enforce.Token, Tiers: tiers}
}

func checks(first, n, tenants int) []enforce.BucketCheck {
	batch := make([]enforce.BucketCheck, n)
	for i := range batch {
		batch[i] = check(rules.TenantID(1+i%tenants), (first+i)%users)
	}
	return batch
}

// batch is how many checks go together, which for ours is a script per tenant.
type batch struct {
	what            string
	checks, tenants int
	atLeast         float64
}

var batches = []batch{
	{"1 alone", 1, 1, 0},
	{"16 together, 1 per script", 16, 16, 1.5},
	{"16 together, 1 script", 16, 1, 0},
	{"64 together, 1 script", 64, 1, 2.5},
}

// speed is how fast one round went.
type speed struct {
	perSecond    float64 // checks
	perCPUSecond float64 // checks per second of Redis's processor time, however slow the client is
}

// redisThroughput compares checks of four tiers at several sizes of batch.
func redisThroughput(ctx context.Context, rounds int, round time.Duration) (lines []line, err error) {
	err = withRedis(ctx, func(rdb redis.UniversalClient) error {
		seed, err := newSeedDesign(ctx, rdb)
		if err != nil {
			return err
		}
		ours := redisbucket.New(rdb, budget)
		for _, batch := range batches {
			measured, err := beside(ctx, rdb, seed, ours, batch, rounds, round)
			if err != nil {
				return err
			}
			lines = append(lines, measured...)
		}
		return nil
	})
	return lines, err
}

// beside measures two takers in turns.
func beside(
	ctx context.Context, rdb redis.UniversalClient, baseline, ours taker, batch batch, rounds int, round time.Duration,
) ([]line, error) {
	var was, is []speed
	for range rounds {
		for _, side := range []struct {
			taker
			speeds *[]speed
		}{{baseline, &was}, {ours, &is}} {
			measured, err := measure(ctx, rdb, side.taker, batch, callers, round)
			if err != nil {
				return nil, err
			}
			*side.speeds = append(*side.speeds, measured)
		}
	}
	return []line{
		compare("checks/s, "+batch.what, was, is, batch.atLeast, func(s speed) float64 { return s.perSecond }),
		compare("  per second of redis's processor", was, is, 0, func(s speed) float64 { return s.perCPUSecond }),
	}, nil
}

// measure asks with several callers for the length of a round.
func measure(
	ctx context.Context, rdb redis.UniversalClient, taker taker, batch batch, callers int, round time.Duration,
) (speed, error) {
	busyBefore, err := processorSeconds(ctx, rdb)
	if err != nil {
		return speed{}, err
	}
	var done atomic.Int64
	var failed atomic.Value
	var wg sync.WaitGroup
	start := time.Now()
	for caller := range callers {
		wg.Go(func() {
			prepared := make([][]enforce.BucketCheck, 64)
			for i := range prepared {
				prepared[i] = checks((caller*64+i)*batch.checks*7, batch.checks, batch.tenants)
			}
			for i := 0; time.Since(start) < round && ctx.Err() == nil; i++ {
				if err := taker.Take(ctx, prepared[i%len(prepared)]); err != nil {
					failed.Store(err)
					return
				}
				done.Add(int64(batch.checks))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	if err, ok := failed.Load().(error); ok {
		return speed{}, err
	}
	busyAfter, err := processorSeconds(ctx, rdb)
	if err != nil {
		return speed{}, err
	}
	return speed{float64(done.Load()) / elapsed.Seconds(), float64(done.Load()) / (busyAfter - busyBefore)}, ctx.Err()
}

// processorSeconds returns how long Redis has kept a processor busy.
func processorSeconds(ctx context.Context, rdb redis.UniversalClient) (float64, error) {
	return info(ctx, rdb, "cpu", "used_cpu_user:%g", "used_cpu_sys:%g")
}

// info returns the sum of some figures of a section of INFO, each in the form of its line.
func info(ctx context.Context, rdb redis.UniversalClient, section string, forms ...string) (sum float64, err error) {
	text, err := rdb.Info(ctx, section).Result()
	if err != nil {
		return 0, fmt.Errorf("read redis's %s figures: %w", section, err)
	}
	for figure := range strings.Lines(text) {
		for _, form := range forms {
			var value float64
			if n, _ := fmt.Sscanf(figure, form, &value); n == 1 {
				sum += value
			}
		}
	}
	return sum, nil
}

// redisMemory compares what 131,072 buckets occupy whose keys are 40 bytes on both sides.
func redisMemory(ctx context.Context, _ int, _ time.Duration) ([]line, error) {
	const buckets, keyBytes = 131_072, 40
	used := func(fill func(rdb redis.UniversalClient) (taker, error), prefix int) (bytes float64, err error) {
		err = withRedis(ctx, func(rdb redis.UniversalClient) error {
			taker, err := fill(rdb)
			if err != nil {
				return err
			}
			empty, err := info(ctx, rdb, "memory", "used_memory:%g")
			if err != nil {
				return err
			}
			for first := 0; first < buckets; first += 256 {
				batch := make([]enforce.BucketCheck, 256)
				for i := range batch {
					subject := fmt.Sprintf("%0*d", keyBytes-prefix, first+i)
					batch[i] = enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{{
						Key:   enforce.Key{Tenant: 1, Rule: rules.RuleID(1), Subject: subject},
						Limit: enforce.Limit{Rate: 0.001, Burst: 500, Since: 1},
					}}}
				}
				if err := taker.Take(ctx, batch); err != nil {
					return err
				}
			}
			full, err := info(ctx, rdb, "memory", "used_memory:%g")
			bytes = full - empty
			return err
		})
		return bytes, err
	}
	seed, err := used(func(rdb redis.UniversalClient) (taker, error) { return newSeedDesign(ctx, rdb) },
		len(seedKey(enforce.Key{Tenant: 1, Rule: 1})))
	if err != nil {
		return nil, err
	}
	ours, err := used(func(rdb redis.UniversalClient) (taker, error) { return redisbucket.New(rdb, budget), nil },
		len("{s1}1:"))
	if err != nil {
		return nil, err
	}
	return []line{note("bytes per bucket in redis, 40-byte keys", "%.0f", seed/buckets, ours/buckets)}, nil
}
