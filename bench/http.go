package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluice/internal/store/redisbucket"
)

const (
	connections = 32 // of the closed loops
	batchSize   = 100
)

type field struct {
	*stage
	database, token      string
	noop, onRedis, inRAM *process
	rdb                  redis.UniversalClient
}

func withField(ctx context.Context, do func(*field) ([]line, error)) (lines []line, err error) {
	s, err := setStage(ctx)
	if err != nil {
		return nil, err
	}
	defer s.clear()
	f := &field{stage: s}
	if f.database, err = s.database(ctx, "four_tiers"); err != nil {
		return nil, err
	}
	if f.token, err = createTenant(ctx, f.database, "bench", fourTiers); err != nil {
		return nil, err
	}
	if f.onRedis, err = s.startAPI(ctx, f.database, s.redis.URL()); err != nil {
		return nil, err
	}
	if f.inRAM, err = s.startAPI(ctx, f.database, ""); err != nil {
		return nil, err
	}
	if f.noop, err = s.startNoop(ctx, "nethttp", f.onRedis, singleCheck(f.token, 1)); err != nil {
		return nil, err
	}
	options, err := redisbucket.Options(s.redis.URL(), budget)
	if err != nil {
		return nil, err
	}
	f.rdb = redis.NewUniversalClient(options)
	defer func() { err = errors.Join(err, f.rdb.Close()) }()
	return do(f)
}

// figures are one side's rounds of a comparison, each figure by its name.
type figures map[string][]float64

func (f figures) add(name string, value float64) { f[name] = append(f[name], value) }

func (f figures) median(name string) float64 {
	if len(f[name]) == 0 {
		return 0
	}
	return median(f[name])
}

func (f figures) mean(name string) float64 {
	sum := 0.0
	for _, value := range f[name] {
		sum += value
	}
	return sum / float64(len(f[name]))
}

// over returns the median of the ratios of a figure, each of the same round or lap.
func (f figures) over(baseline figures, name string) float64 {
	var ratios []float64
	for i, value := range f[name] {
		ratios = append(ratios, value/baseline[name][i])
	}
	return median(ratios)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values)) // the rounds stay in their order
	return sorted[len(sorted)/2]
}

type contender struct {
	name     string
	server   *process
	requests [][]byte
	checks   int // in one request
	warmUp   time.Duration
	closed   func(ctx context.Context, callers int, length time.Duration) (outcome, error)
	figures  // of each round
	laps     figures
}

// race lets contenders take turns in closed loops, and notes each round's figures.
func (f *field) race(ctx context.Context, rounds int, round time.Duration, connections int,
	contenders ...*contender,
) error {
	for i := range rounds + 1 {
		laps := make([]figures, len(contenders))
		for range lapsPerRound {
			for j, c := range contenders {
				measured, err := f.lap(ctx, c, round/lapsPerRound, connections)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				if laps[j] == nil {
					laps[j] = figures{}
				}
				for name, value := range measured {
					laps[j].add(name, value)
				}
			}
		}
		for j, c := range contenders {
			if c.figures == nil {
				c.figures, c.laps = figures{}, figures{}
			}
			if i == 0 { // the first round warms up connections, pools and buckets
				continue
			}
			for name, values := range laps[j] {
				c.add(name, laps[j].mean(name))
				c.laps[name] = append(c.laps[name], values...)
			}
		}
	}
	return nil
}

// lapsPerRound is high because the machine's other load changes within seconds.
const lapsPerRound = 4

func (f *field) lap(ctx context.Context, c *contender, round time.Duration, connections int) (map[string]float64,
	error,
) {
	closed := c.closed
	if closed == nil {
		closed = load{addrs: []string{c.server.addr}, requests: c.requests}.closed
	}
	if c.warmUp > 0 {
		if _, err := closed(ctx, connections, c.warmUp); err != nil {
			return nil, err
		}
	}
	before, err := f.count(ctx, c.server)
	if err != nil {
		return nil, err
	}
	// The processors are read last, because reading the counts costs the server something.
	began, err := f.processors(ctx, c.server)
	if err != nil {
		return nil, err
	}
	found, err := closed(ctx, connections, round)
	if err != nil {
		return nil, err
	}
	ended, err := f.processors(ctx, c.server)
	if err != nil {
		return nil, err
	}
	after, err := f.count(ctx, c.server)
	if err != nil {
		return nil, err
	}
	if n := after.degraded - before.degraded; n > 0 {
		return nil, fmt.Errorf("%.0f checks were decided without Redis", n)
	}
	checks := float64(found.answers) * float64(c.checks)
	server, redis := ended.server-began.server, ended.redis-began.redis
	measured := map[string]float64{
		"checks/s": found.perSecond * float64(c.checks), "denied": float64(found.denied) / float64(found.answers),
		"server": server * 1e6 / checks, "redis": redis * 1e6 / checks,
		"allocations": (after.allocations - before.allocations) / checks,
		"bytes":       (after.bytes - before.bytes) / checks,
		"leased":      (after.leased - before.leased) / checks, "split": (after.split - before.split) / checks,
		"asks":         (after.asks - before.asks) / checks,
		"checks/CPU s": checks / (server + redis + ended.load - began.load),
	}
	if scripts := after.scripts - before.scripts; scripts > 0 {
		measured["batch"] = checks / scripts
	}
	return measured, nil
}

type busy struct{ server, redis, load float64 }

func (f *field) processors(ctx context.Context, server *process) (b busy, err error) {
	took, err := server.processor()
	if err != nil {
		return b, err
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return b, fmt.Errorf("read the load's own times: %w", err)
	}
	b.server = took.Seconds()
	b.load = time.Duration(own.Utime.Nano() + own.Stime.Nano()).Seconds()
	b.redis, err = processorSeconds(ctx, f.rdb)
	return b, err
}

type counts struct{ allocations, bytes, scripts, degraded, leased, split, asks float64 }

func (f *field) count(ctx context.Context, server *process) (c counts, err error) {
	if c.scripts, err = info(ctx, f.rdb, "commandstats", "cmdstat_evalsha:calls=%g,"); err != nil {
		return c, err
	}
	if server.metrics == "" { // it is the no-op server
		return c, nil
	}
	shown, err := server.shown(ctx) // once: a scrape allocates, too
	if err != nil {
		return c, err
	}
	c.allocations, c.bytes = shown["go_memstats_mallocs_total"], shown["go_memstats_alloc_bytes_total"]
	c.degraded = shown["sluice_degraded_decisions_total"]
	c.leased, c.split = shown["sluice_leased_checks_total"], shown["sluice_split_checks_total"]
	c.asks = shown["sluice_lease_asks_total"]
	return c, nil
}

func throughput(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	return withField(ctx, func(f *field) ([]line, error) {
		single := crowd(f.token)
		fast, err := f.startNoop(ctx, "fasthttp", f.onRedis, singleCheck(f.token, 1))
		if err != nil {
			return nil, err
		}
		noop := &contender{name: "no-op", server: f.noop, requests: single, checks: 1}
		noopFast := &contender{name: "no-op on fasthttp", server: fast, requests: single, checks: 1}
		onRedis := &contender{name: "on Redis", server: f.onRedis, requests: single, checks: 1}
		inRAM := &contender{name: "in memory", server: f.inRAM, requests: single, checks: 1}
		attacked := &contender{name: "attack", server: f.onRedis, requests: attack(f.token), checks: 1}
		batches := &contender{name: "batches", server: f.onRedis, requests: crowdBatches(f.token), checks: batchSize}
		if err := f.race(ctx, rounds, round, connections, noop, noopFast, onRedis, inRAM, attacked,
			batches); err != nil {
			return nil, err
		}
		lines := []line{
			versus("four tiers on Redis ÷ no-op, checks/s", noop, onRedis, 0.60),
			versus("four tiers in memory ÷ no-op", noop, inRAM, 0.85),
			versus(fmt.Sprintf("attack, %.0f %% denied ÷ no-op", 100*attacked.median("denied")), noop, attacked, 0.85),
			versus("by batches of 100 ÷ single checks", onRedis, batches, 4),
			versus("  a no-op on fasthttp ÷ no-op", noop, noopFast, 0),
			versus("  four tiers in memory ÷ the no-op on fasthttp", noopFast, inRAM, 0),
			versus("  four tiers on Redis ÷ the no-op on fasthttp", noopFast, onRedis, 0),
		}
		for _, c := range []*contender{onRedis, inRAM, attacked, batches} {
			lines = append(lines,
				lineOf("  "+c.name+": checks per second of all processors' time ÷ no-op", "%.0f",
					noop.median("checks/CPU s"), c.median("checks/CPU s"), c.over(noop.figures, "checks/CPU s"), 0),
				note("  "+c.name+": server CPU per check, µs", "%.1f", noop.median("server"), c.median("server")),
				note("  "+c.name+": allocations per check", "%.1f", 0, c.median("allocations")))
		}
		more, err := f.latencies(ctx, rounds, round, onRedis.median("checks/s")/2)
		return append(lines, more...), err
	})
}

// versus makes a row of checks per second. The ratio is the median of the laps' ratios, whose two sides ran one right
// after the other.
func versus(what string, baseline, ours *contender, atLeast float64) line {
	return lineOf(what, "%.0f", baseline.laps.median("checks/s"), ours.laps.median("checks/s"),
		ours.laps.over(baseline.laps, "checks/s"), atLeast)
}

func (f *field) latencies(ctx context.Context, rounds int, round time.Duration, rate float64) ([]line, error) {
	single := crowd(f.token)
	noop, ours := figures{}, figures{}
	for range rounds {
		for _, side := range []struct {
			server *process
			figures
		}{{f.noop, noop}, {f.onRedis, ours}} {
			l := load{addrs: []string{side.server.addr}, requests: single}
			open, err := l.open(ctx, rate, 4*connections, 2*round)
			if err != nil {
				return nil, err
			}
			side.add("p50", micros(open.percentile(0.5)))
			side.add("p99", micros(open.percentile(0.99)))
		}
	}
	alone, err := takeTurns(ctx, time.Duration(rounds)*round,
		loneRequest("no-op", f.noop, single), loneRequest("check", f.onRedis, single), lonePing("ping", f.redis.Addr()))
	if err != nil {
		return nil, err
	}
	return []line{
		ratioLine(fmt.Sprintf("p99 at %.0f/s, half of saturation, open loop ÷ no-op, µs", rate), "%.0f",
			noop.median("p99"), ours.median("p99"), -3),
		note("  p50, µs", "%.0f", noop.median("p50"), ours.median("p50")),
		ratioLine("lone check − lone no-op ÷ one PING, µs", "%.1f", alone.median("ping"),
			alone.beyond("check", "no-op"), -2),
		note("  lone request, µs", "%.1f", alone.median("no-op"), alone.median("check")),
	}, nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func redisCost(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	const clients = 64
	return withField(ctx, func(f *field) ([]line, error) {
		seed, err := newSeedDesign(ctx, f.rdb)
		if err != nil {
			return nil, err
		}
		single := &contender{name: "single", server: f.onRedis, requests: crowd(f.token), checks: 1}
		batches := &contender{name: "batches", server: f.onRedis, requests: crowdBatches(f.token), checks: batchSize}
		was := figures{}
		for range rounds {
			if err := measure(ctx, f.rdb, seed, 1, clients, round, was); err != nil {
				return nil, err
			}
			if err := f.race(ctx, 1, round, clients, single, batches); err != nil {
				return nil, err
			}
		}
		what := "Redis CPU per check, seed design ÷ ours, µs: 64 clients, %.1f checks a script"
		seedCost := 1e6 / was.median("checks/CPU s")
		return []line{
			inverseLine(fmt.Sprintf(what, single.median("batch")), seedCost, single.median("redis"), 1.8),
			inverseLine(fmt.Sprintf("  by batches of 100, %.1f checks a script", batches.median("batch")), seedCost,
				batches.median("redis"), 3),
		}, nil
	})
}

func processes(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	return withField(ctx, func(f *field) (lines []line, err error) {
		sides, addrs := make([]*contender, 4), []string{f.onRedis.addr}
		for i := range sides {
			if i > 0 {
				p, err := f.startAPI(ctx, f.database, f.redis.URL())
				if err != nil {
					return nil, err
				}
				addrs = append(addrs, p.addr)
			}
			sides[i] = &contender{
				name: fmt.Sprint(i+1, " processes"), server: f.onRedis, checks: 1,
				closed: load{addrs: slices.Clone(addrs), requests: crowd(f.token)}.closed,
			}
		}
		if err := f.race(ctx, rounds, round, connections, sides...); err != nil {
			return nil, err
		}
		for _, side := range sides[1:] {
			lines = append(lines, versus(side.name+" on one Redis ÷ 1, checks/s", sides[0], side, 0))
		}
		return lines, nil
	})
}
