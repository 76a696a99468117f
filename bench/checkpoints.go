package main

import (
	"context"
	"fmt"
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

// checkpoints compares checks of limits that have checkpoints with those of a process that writes none. Each user's
// bucket moves by 2 % about each twentieth check, so one of twenty checks takes all of that.
func checkpoints(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	return withField(ctx, func(f *field) ([]line, error) {
		token, err := createTenantOf(ctx, f.database, "long", longTier)
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
		return append([]line{
			versus("long limits with checkpoints ÷ without, checks/s", off, on, 0.97),
			note("  denied, ‰", "%.2f", 0, 1000*on.median("denied")),
		}, loaded...), err
	})
}

// writes counts what a load has the database write.
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
