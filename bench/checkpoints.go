package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// longTier is a limit that has checkpoints: 2 % of it are 20.
	longTier = `rules:
  - {key_pattern: "user:{user_id}", rate: 1000000/day, burst_capacity: 1000}
`
	// longRounds is how many times longer rounds are than others, so that what a lap has moved is written in it.
	longRounds = 8
)

// checkpoints compares a process that writes checkpoints of long limits with one that writes none. Each user's bucket
// moves by the 2 % of a checkpoint in about twenty checks, so one check in twenty takes all of that.
func checkpoints(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	return withField(ctx, func(f *field) ([]line, error) {
		token, err := createTenant(ctx, f.database, "long", longTier)
		if err != nil {
			return nil, err
		}
		without, err := f.startAPI(ctx, f.database, f.redis.URL(), "SLUICE_CHECKPOINT_ABOVE=0")
		if err != nil {
			return nil, err
		}
		with, err := f.startAPI(ctx, f.database, f.redis.URL(), "SLUICE_CHECKPOINT_ABOVE=10s")
		if err != nil {
			return nil, err
		}
		requests := evenCrowd(token)
		for i := 0; i < len(requests); i += 20 {
			requests[i] = httpRequest{"/v1/check", token, fmt.Sprintf(`{"user_id":"%d","cost":20}`, i)}.bytes()
		}
		off := &contender{name: "without checkpoints", server: without, requests: requests, checks: 1}
		on := &contender{name: "with checkpoints", server: with, requests: requests, checks: 1}
		if err := f.race(ctx, rounds, round*longRounds, connections, off, on); err != nil {
			return nil, err
		}
		loaded, err := f.writes(ctx, with, load{addrs: []string{with.addr}, requests: requests}, 10*time.Second)
		if err != nil {
			return nil, err
		}
		beside, err := f.besideInvented(ctx, with, rounds, 2*round)
		return slices.Concat([]line{
			versus("long limits with checkpoints ÷ without, checks/s", off, on, 0.97),
			note("  denied, ‰", "%.2f", 0, 1000*on.median("denied")),
		}, loaded, beside), err
	})
}

const (
	knownUsers        = 1000
	quietPerSecond    = 200.0  // checks a second
	inventedPerSecond = 2000.0 // users a second
)

// besideInvented empties Redis, so that users are looked up, and compares a quiet tenant's latencies with those beside
// a tenant that invents users.
func (f *field) besideInvented(ctx context.Context, server *process, rounds int, round time.Duration) ([]line, error) {
	quiet, err := createTenant(ctx, f.database, "quiet", longTier)
	if err != nil {
		return nil, err
	}
	greedy, err := createTenant(ctx, f.database, "greedy", longTier)
	if err != nil {
		return nil, err
	}
	known := load{addrs: []string{server.addr}}
	for i := range knownUsers {
		known.requests = append(known.requests,
			httpRequest{"/v1/check", quiet, fmt.Sprintf(`{"user_id":"%d","cost":20}`, i)}.bytes())
	}
	first := httpRequest{"/v1/check", greedy, `{"user_id":"first","cost":20}`}
	if err := errors.Join(server.awaitCheck(ctx, singleCheck(quiet, 0)), server.awaitCheck(ctx, first),
		known.once(ctx, connections)); err != nil {
		return nil, err
	}
	if err := f.awaitCheckpoints(ctx, knownUsers); err != nil {
		return nil, err
	}
	invented := 0
	lose := func(invents bool) (float64, error) {
		if err := f.rdb.FlushAll(ctx).Err(); err != nil {
			return 0, fmt.Errorf("empty redis: %w", err)
		}
		var greedyErr error
		var inventing sync.WaitGroup
		if invents {
			l := load{addrs: known.addrs}
			for range int(inventedPerSecond * round.Seconds()) {
				invented++
				l.requests = append(l.requests,
					httpRequest{"/v1/check", greedy, fmt.Sprintf(`{"user_id":"invented-%d"}`, invented)}.bytes())
			}
			inventing.Go(func() { _, greedyErr = l.open(ctx, inventedPerSecond, connections, round) })
		}
		found, err := known.open(ctx, quietPerSecond, connections, round)
		inventing.Wait()
		return micros(found.percentile(0.99)) / 1e3, errors.Join(err, greedyErr)
	}
	var alone, beside []float64
	for range rounds {
		a, err := lose(false)
		if err != nil {
			return nil, err
		}
		b, err := lose(true)
		if err != nil {
			return nil, err
		}
		alone, beside = append(alone, a), append(beside, b)
	}
	return []line{
		ratioLine("p99 of a quiet tenant after a loss, ms, beside one that invents 2000 users a second ÷ alone",
			"%.1f", median(alone), median(beside), -2),
	}, nil
}

func (f *field) awaitCheckpoints(ctx context.Context, rows int) error {
	conn, err := pgx.Connect(ctx, f.database)
	if err != nil {
		return fmt.Errorf("await checkpoints: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for found := 0; found < rows; {
		err := conn.QueryRow(ctx, `SELECT count(*) FROM bucket_checkpoint AS c
			JOIN tenant AS t ON t.tenant_id = c.tenant_id WHERE t.slug = 'quiet'`).Scan(&found)
		if err != nil {
			return fmt.Errorf("await checkpoints: %w", err)
		}
	}
	return nil
}

func (f *field) writes(ctx context.Context, server *process, l load, length time.Duration) ([]line, error) {
	conn, err := pgx.Connect(ctx, f.database)
	if err != nil {
		return nil, fmt.Errorf("count writes: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	count := func() (rows, milliseconds float64, err error) {
		shown, err := server.shown(ctx)
		if err != nil {
			return 0, 0, err
		}
		err = conn.QueryRow(ctx, "SELECT active_time FROM pg_stat_database WHERE datname = current_database()").
			Scan(&milliseconds)
		return shown["sluice_checkpoints_written_total"], milliseconds, err
	}
	rows, busy, err := count()
	if err != nil {
		return nil, err
	}
	found, err := l.closed(ctx, connections, length)
	if err != nil {
		return nil, err
	}
	rowsAfter, busyAfter, err := count()
	if err != nil {
		return nil, err
	}
	rows, busy = rowsAfter-rows, busyAfter-busy
	return []line{
		note("  rows written a second at so many checks a second", "%.0f", found.perSecond, rows/length.Seconds()),
		note("  the database's time for a row, µs", "%.0f", 0, 1000*busy/rows),
	}, nil
}
