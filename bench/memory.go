package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/store/membucket"
)

// memoryTake compares a check of four tiers in memory with the least that a shared bucket could
// cost: one increment in a map of the same keys behind one mutex.
func memoryTake(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	const inTurn = 4096
	prepared := make([][]enforce.BucketCheck, inTurn)
	counts := map[enforce.Key]int64{}
	for i := range prepared {
		prepared[i] = checks(i, 1, 1)
		counts[prepared[i][0].Tiers[0].Key] = 0
	}
	store := membucket.New(membucket.Options{})
	var mu sync.Mutex
	var failed error
	increment := func(check []enforce.BucketCheck) {
		mu.Lock()
		counts[check[0].Tiers[0].Key]++
		mu.Unlock()
	}
	take := func(check []enforce.BucketCheck) {
		if err := store.Take(ctx, check); err != nil {
			failed = err
		}
	}
	var was, is []float64
	for range rounds {
		was = append(was, nanoseconds(prepared, round/2, increment))
		is = append(is, nanoseconds(prepared, round/2, take))
	}
	before, after := median(was), median(is)
	return []line{ratioLine("four tiers in memory ÷ a map increment, ns", "%.0f", before, after, -10)}, failed
}

// nanoseconds returns how long one call takes, over a round of them.
func nanoseconds(prepared [][]enforce.BucketCheck, round time.Duration, do func([]enforce.BucketCheck)) float64 {
	start, calls := time.Now(), 0
	for time.Since(start) < round {
		for _, check := range prepared {
			do(check)
		}
		calls += len(prepared)
	}
	return float64(time.Since(start).Nanoseconds()) / float64(calls)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values)) // the rounds stay in their order
	return sorted[len(sorted)/2]
}

// compare makes a row of the medians of one figure of both sides.
func compare(what string, was, is []speed, atLeast float64, figure func(speed) float64) line {
	var before, after []float64
	for i := range was {
		before, after = append(before, figure(was[i])), append(after, figure(is[i]))
	}
	return ratioLine(what, "%.0f", median(before), median(after), atLeast)
}
