package main

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"golang.org/x/time/rate"

	sluice "github.com/sluicegate/sluice/client"
	"github.com/sluicegate/sluice/internal/rules"
)

const boundlessTier = `rules:
  - {key_pattern: "user:{user_id}", rate: 1000000000/second, burst_capacity: 1000000000}
`

// decideInProcess compares a handle of the Go client with golang.org/x/time/rate, a token bucket of one process, and
// with time.Now, which both need. Every decision takes a token, because the limit is never reached.
func decideInProcess(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	s, err := setStage(ctx)
	if err != nil {
		return nil, err
	}
	defer s.clear()
	database, err := s.database(ctx, "handles")
	if err != nil {
		return nil, err
	}
	token, err := createTenant(ctx, database, "bench", boundlessTier)
	if err != nil {
		return nil, err
	}
	server, err := s.startAPI(ctx, database, "")
	if err != nil {
		return nil, err
	}
	client, err := sluice.New(sluice.Config{
		URL: "http://" + server.addr, Key: token, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	handle, err := client.Handle(sluice.Check{UserID: "42"})
	if err != nil {
		return nil, err
	}
	limiter := rate.NewLimiter(rate.Limit(rules.MaxRate), rules.MaxBurst)
	try := func() bool { return handle.Try() == sluice.Allowed }
	now := func() bool { return !time.Now().IsZero() }
	var lines []line
	for _, c := range []struct {
		name       string
		goroutines int
		most       float64 // beside the clock
	}{
		{"one goroutine", 1, 1.5},
		{"all cores on one bucket", runtime.GOMAXPROCS(0), 1.8},
	} {
		var clock, theirs, ours, shares []float64
		for range rounds {
			reading, _ := decisions(c.goroutines, round/4, now)
			before, _ := decisions(c.goroutines, round/4, limiter.Allow)
			_, _ = decisions(c.goroutines, round/4, try) // an idle handle has given its tokens back
			after, allowed := decisions(c.goroutines, round/2, try)
			clock, theirs, ours = append(clock, reading), append(theirs, before), append(ours, after)
			shares = append(shares, allowed)
		}
		if share := median(shares); share < 0.9 {
			return nil, fmt.Errorf("only %.0f %% of the tries took a token, so little was measured", 100*share)
		}
		lines = append(lines,
			ratioLine("a handle's Try ÷ time.Now, "+c.name+", ns", "%.0f", median(clock), median(ours), -c.most),
			ratioLine("a handle's Try ÷ x/time/rate.Allow, "+c.name+", ns", "%.0f", median(theirs), median(ours), -1))
	}
	return lines, nil
}

func decisions(goroutines int, round time.Duration, decide func() bool) (nanoseconds, allowedShare float64) {
	const inTurn = 1000
	var mu sync.Mutex
	var all sync.WaitGroup
	calls, allowed := 0, 0
	began := time.Now()
	for range goroutines {
		all.Go(func() {
			n, passed := 0, 0
			for time.Since(began) < round {
				for range inTurn {
					if decide() {
						passed++
					}
				}
				n += inTurn
			}
			mu.Lock()
			defer mu.Unlock()
			calls, allowed = calls+n, allowed+passed
		})
	}
	all.Wait()
	took := time.Since(began)
	return float64(took.Nanoseconds()) * float64(goroutines) / float64(calls), float64(allowed) / float64(calls)
}
