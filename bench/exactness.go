package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// compareExactness prints the requests that the systems admit, as a share of what their limits allow, and the memory of
// a bucket.
func compareExactness(ctx context.Context, w *bytes.Buffer, st *stage, rdb redis.UniversalClient,
	systems []*system,
) error {
	fmt.Fprintln(w, "\n**Exactness and memory**\n\n| | admitted ÷ limit, 64 callers | a denied check takes | "+
		"after an edit to a tenth | while Redis is down | MiB per million buckets |")
	fmt.Fprintln(w, "| --- | ---: | ---: | ---: | ---: | ---: |")
	for i, s := range systems {
		if s.grpc != nil {
			continue
		}
		fmt.Fprintln(os.Stderr, s.name)
		user := 10_000_000 * (i + 1) // nobody else's
		concurrent, _, err := admitted(ctx, s, tight, user, 50, 10)
		if err != nil {
			return fmt.Errorf("%s, concurrent callers: %w", s.name, err)
		}
		taken, err := takenByDenied(ctx, s, user+1)
		if err != nil {
			return fmt.Errorf("%s, denied checks: %w", s.name, err)
		}
		memory, err := perMillionBuckets(ctx, rdb, s, user)
		if err != nil {
			return fmt.Errorf("%s, memory: %w", s.name, err)
		}
		outage := "–"
		if s.onRedis {
			if outage, err = withoutRedis(ctx, st, s, user+3); err != nil {
				return fmt.Errorf("%s, without Redis: %w", s.name, err)
			}
		}
		afterEdit, err := edit(ctx, s, user+2)
		if err != nil {
			return fmt.Errorf("%s, an edit: %w", s.name, err)
		}
		fmt.Fprintf(w, "| %s | %.2f | %s | %.1f | %s | %.0f |\n", s.name, concurrent, taken, afterEdit, outage, memory)
	}
	return nil
}

const exactFor = 3 * time.Second

// admitted returns the requests of 64 callers with one user and an address each that pass within exactFor, divided by
// the limit, and the share that got no decision.
func admitted(ctx context.Context, s *system, c class, user int, burst, perSecond float64) (ratio, failed float64,
	err error,
) {
	requests := make([][]byte, 64)
	for i := range requests {
		requests[i] = s.request(c, user, user+i)
	}
	start := time.Now()
	done, err := s.load(requests).closed(ctx, len(requests), exactFor)
	if err != nil {
		return 0, 0, err
	}
	allowed := float64(done.answers - done.denied - done.failed)
	return allowed / (burst + perSecond*time.Since(start).Seconds()), float64(done.failed) / float64(done.answers), nil
}

// takenByDenied returns what a denied check takes from the limits that would have passed it. A user is denied 200 times
// at an exhausted address, and then uses its tokens elsewhere.
func takenByDenied(ctx context.Context, s *system, user int) (string, error) {
	one := func(user, address, times int) (allowed int, err error) {
		open, err := s.load(nil).dial(ctx, 1)
		defer closeAll(open)
		if err != nil {
			return 0, err
		}
		for range times {
			status, err := open[0].ask(s.request(tight, user, address), s.denies)
			if err != nil {
				return 0, err
			}
			if status == 200 {
				allowed++
			}
		}
		return allowed, nil
	}
	for other := range 6 { // 6 × 50 is more than an address gets
		if _, err := one(user+1000+other, user, 50); err != nil {
			return "", err
		}
	}
	inVain, err := one(user, user, 200)
	if err != nil {
		return "", err
	}
	left, err := one(user, user+1, 50-inVain)
	if err != nil {
		return "", err
	}
	if left >= 50-inVain-2 {
		return "nothing", nil
	}
	return fmt.Sprintf("%d of 50", 50-inVain-left), nil
}

// edit cuts the limit of a user with an empty bucket to a tenth, and returns the requests that pass then as a share of
// what the new limit allows.
func edit(ctx context.Context, s *system, user int) (float64, error) {
	if _, _, err := admitted(ctx, s, tight, user, 50, 10); err != nil {
		return 0, err
	}
	start := time.Now()
	after := edited
	if s.edit != nil {
		after = tight
		if err := s.edit(ctx); err != nil {
			return 0, err
		}
	}
	// Until the edit holds, the bucket fills as before.
	ratio, _, err := admitted(ctx, s, after, user, 10*time.Since(start).Seconds(), 1)
	return ratio, err
}

func withoutRedis(ctx context.Context, st *stage, s *system, user int) (string, error) {
	st.redis.Kill()
	ratio, failed, err := admitted(ctx, s, tight, user, 50, 10)
	if err := errors.Join(err, st.redis.Restart(ctx)); err != nil {
		return "", err
	}
	if failed > 0.5 {
		return "errors", nil
	}
	return fmt.Sprintf("%.2f", ratio), nil
}

// perMillionBuckets returns the growth of a server and Redis in MiB, measured with 200,000 buckets.
func perMillionBuckets(ctx context.Context, rdb redis.UniversalClient, s *system, first int) (float64, error) {
	size := func() (float64, error) {
		server, err := s.server.resident()
		if err != nil || !s.onRedis {
			return float64(server), err
		}
		inRedis, err := info(ctx, rdb, "memory", "used_memory:%g")
		return float64(server) + inRedis, err
	}
	before, err := size()
	if err != nil {
		return 0, err
	}
	requests := make([][]byte, compareUsers)
	for i := range requests {
		requests[i] = s.request(slow, first+i, first+i)
	}
	if err := s.load(requests).once(ctx, connections); err != nil {
		return 0, err
	}
	after, err := size()
	return (after - before) / (1 << 20) * 1e6 / (2 * compareUsers), err
}
