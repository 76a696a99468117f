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

// checks have a user and an address of their own, and share the endpoint and the tenant.
func checks(first, n int) []enforce.BucketCheck {
	batch := make([]enforce.BucketCheck, n)
	for i := range batch {
		user := (first + i) % users
		tier := func(rule rules.RuleID, subject string, rate float64, burst int64) enforce.Tier {
			return enforce.Tier{
				Key:   enforce.Key{Tenant: 1, Rule: rule, Subject: subject},
				Limit: enforce.Limit{Rate: rate, Burst: burst, Since: 1},
			}
		}
		batch[i] = enforce.BucketCheck{Cost: enforce.Token, Tiers: []enforce.Tier{
			tier(1, fmt.Sprint("user-", user), 100, 500),
			tier(2, ipv4(user), 200, 1000),
			tier(3, fmt.Sprint("/api/", user%20), 1e6, 1e6),
			tier(4, "", 1e7, 1e7),
		}}
	}
	return batch
}

type batch struct {
	what    string
	checks  int
	atLeast float64
}

type ofThreeMeters struct{ taker }

func (t ofThreeMeters) Take(ctx context.Context, checks []enforce.BucketCheck) error {
	costs := [...]enforce.MeterCost{
		{Cost: enforce.Token},
		{Meter: "input_tokens", Cost: 3 * enforce.Token / 2},
		{Meter: "usd", Cost: enforce.Token / 100},
	}
	for i := range checks {
		check := &checks[i]
		check.Mixed, check.Cost = true, costs[1].Cost
		for j := range check.Tiers {
			tier := &check.Tiers[j]
			tier.Meter, tier.Cost = costs[j%len(costs)].Meter, costs[j%len(costs)].Cost
		}
	}
	return t.taker.Take(ctx, checks)
}

// meters compares four rules of three meters with four of one, with one script for either.
func meters(ctx context.Context, rounds int, round time.Duration) (lines []line, err error) {
	err = withRedis(ctx, func(rdb redis.UniversalClient) error {
		ours := redisbucket.New(rdb, budget)
		for _, batch := range []batch{{"1 alone", 1, 0.9}, {"16 together, 1 script", 16, 0.9}} {
			was, is := figures{}, figures{}
			for range rounds {
				if err := measure(ctx, rdb, ours, batch.checks, callers, round, was); err != nil {
					return err
				}
				if err := measure(ctx, rdb, ofThreeMeters{ours}, batch.checks, callers, round, is); err != nil {
					return err
				}
			}
			lines = append(lines,
				ratioLine("checks/s, "+batch.what, "%.0f", was.median("checks/s"), is.median("checks/s"),
					batch.atLeast),
				ratioLine("  per second of redis's processor", "%.0f", was.median("checks/CPU s"),
					is.median("checks/CPU s"), 0))
		}
		return nil
	})
	return lines, err
}

// measure notes the checks per second, and per second of Redis's processor time.
func measure(ctx context.Context, rdb redis.UniversalClient, taker taker, together, callers int, round time.Duration,
	found figures,
) error {
	busyBefore, err := processorSeconds(ctx, rdb)
	if err != nil {
		return err
	}
	var done atomic.Int64
	var failed atomic.Value
	var wg sync.WaitGroup
	start := time.Now()
	for caller := range callers {
		wg.Go(func() {
			prepared := make([][]enforce.BucketCheck, 64)
			for i := range prepared {
				prepared[i] = checks((caller*64+i)*together*7, together)
			}
			for i := 0; time.Since(start) < round && ctx.Err() == nil; i++ {
				if err := taker.Take(ctx, prepared[i%len(prepared)]); err != nil {
					failed.Store(err)
					return
				}
				done.Add(int64(together))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	if err, ok := failed.Load().(error); ok {
		return err
	}
	busyAfter, err := processorSeconds(ctx, rdb)
	if err != nil {
		return err
	}
	found.add("checks/s", float64(done.Load())/elapsed.Seconds())
	found.add("checks/CPU s", float64(done.Load())/(busyAfter-busyBefore))
	return ctx.Err()
}

func processorSeconds(ctx context.Context, rdb redis.UniversalClient) (float64, error) {
	return info(ctx, rdb, "cpu", "used_cpu_user:%g", "used_cpu_sys:%g")
}

// info returns the sum of some figures of a section of INFO, each in the form of its line, such as "used_memory:%g".
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
