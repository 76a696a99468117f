package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/store/redisbucket"
)

// ofThreeMeters gives the four rules of a check three meters, with costs that their limits have.
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

// meters compares four rules of one meter, the baseline, with four of three meters. Either has a script for a check.
func meters(ctx context.Context, rounds int, round time.Duration) (lines []line, err error) {
	err = withRedis(ctx, func(rdb redis.UniversalClient) error {
		ours := redisbucket.New(rdb, budget)
		for _, batch := range []batch{{"1 alone", 1, 1, 0.9}, {"16 together, 1 script", 16, 1, 0.9}} {
			measured, err := beside(ctx, rdb, ours, ofThreeMeters{ours}, batch, rounds, round)
			if err != nil {
				return err
			}
			lines = append(lines, measured...)
		}
		return nil
	})
	return lines, err
}
