package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/store/redisbucket"
)

// A Redis that is far away, behind a link so narrow that it bears some hundred checks a second: the processors have
// nothing to do with it. All times are ten times the usual, so that other programs on the machine hardly matter.
const (
	fairBudget    = 10 * redisbucket.DefaultBudget
	fairDelay     = 100 * time.Millisecond // there and back
	fairBandwidth = 256 << 10              // bytes a second
	quietTenants  = 10
	quietRate     = 40.0 // checks a second of all of them
	floodBatch    = 20   // checks of one call
)

// fairness compares the latencies of quiet tenants beside one that asks for ten times what Redis bears with those
// without it.
func fairness(ctx context.Context, rounds int, round time.Duration) (lines []line, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = withRedis(ctx, func(direct redis.UniversalClient) error {
		addr, err := behindLink(ctx, direct.(*redis.Client).Options().Addr, fairDelay, fairBandwidth)
		if err != nil {
			return err
		}
		target := url.URL{Scheme: "redis", Host: addr}
		options, err := redisbucket.Options(target.String(), fairBudget)
		if err != nil {
			return err
		}
		rdb := redis.NewUniversalClient(options)
		defer func() { _ = rdb.Close() }()
		store := redisbucket.New(rdb, fairBudget)
		if err := store.Take(ctx, checks(0, 1, 1)); err != nil { // from here on Redis knows the script
			return err
		}
		borne := flood(ctx, store, 5000, 4*time.Second)
		var alone, beside []float64
		var failed [2]int
		round *= 5
		for range rounds {
			latencies, n := quiet(ctx, store, round)
			alone, failed[0] = append(alone, p99(latencies)), failed[0]+n
			flooding, stop := context.WithCancel(ctx)
			var ended sync.WaitGroup
			ended.Go(func() { flood(flooding, store, 10*borne, time.Hour) })
			quiet(ctx, store, round/2) // the flood begins
			latencies, n = quiet(ctx, store, round)
			stop()
			ended.Wait()
			beside, failed[1] = append(beside, p99(latencies)), failed[1]+n
		}
		lines = append(lines,
			ratioLine("p99 of quiet tenants, ms, beside a flood ÷ without", "%.1f", median(alone), median(beside), -2),
			line{
				what: "  degraded checks of quiet tenants", baseline: fmt.Sprint(failed[0]),
				ours:   fmt.Sprint(failed[1]),
				target: "at most 0", met: yesNo(failed[1] == 0),
			},
			note("  checks/s that the store bears", "%.0f", 0, borne))
		return nil
	})
	return lines, err
}

// p99 is in milliseconds.
func p99(latencies []time.Duration) float64 {
	return float64(outcome{latencies: latencies}.percentile(0.99).Microseconds()) / 1000
}

// flood asks for a tenant at a constant rate, and returns how many checks a second were answered.
func flood(ctx context.Context, store taker, rate float64, length time.Duration) float64 {
	var answered atomic.Int64
	var calls sync.WaitGroup
	start := time.Now()
	interval := time.Duration(floodBatch / rate * float64(time.Second))
	for at := start; at.Sub(start) < length && ctx.Err() == nil; at = at.Add(interval) {
		awaitMoment(at)
		calls.Go(func() {
			batch := checks(int(at.Sub(start)/interval)*floodBatch, floodBatch, 1)
			_ = store.Take(context.WithoutCancel(ctx), batch)
			for i := range batch {
				if batch[i].Answered {
					answered.Add(1)
				}
			}
		})
	}
	calls.Wait()
	return float64(answered.Load()) / time.Since(start).Seconds()
}

// quiet asks for the quiet tenants at a constant rate, and returns the latencies and how many checks failed.
func quiet(ctx context.Context, store taker, length time.Duration) (latencies []time.Duration, failed int) {
	var mu sync.Mutex
	var calls sync.WaitGroup
	interval := time.Duration(float64(time.Second) / quietRate)
	start := time.Now()
	for i := 0; time.Duration(i)*interval < length && ctx.Err() == nil; i++ {
		due := start.Add(time.Duration(i) * interval)
		awaitMoment(due)
		calls.Go(func() {
			batch := []enforce.BucketCheck{check(rules.TenantID(2+i%quietTenants), i)}
			err := store.Take(context.WithoutCancel(ctx), batch)
			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, time.Since(due))
			if err != nil {
				failed++
			}
		})
	}
	calls.Wait()
	slices.Sort(latencies)
	return latencies, failed
}
