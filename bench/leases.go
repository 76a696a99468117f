package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// hotTiers are fourTiers with limits that busy users stay below.
const hotTiers = `rules:
  - {key_pattern: "user:{user_id}", rate: 100000/second, burst_capacity: 100000}
  - {key_pattern: "endpoint:{endpoint}", rate: 1000000/second, burst_capacity: 1000000}
  - {key_pattern: global, rate: 10000000/second, burst_capacity: 10000000}
  - {key_pattern: "ip:{ip}", rate: 100000/second, burst_capacity: 100000}
`

const (
	hotUsers  = 100
	manyUsers = 100_000
	// leaseRounds is how much longer rounds are than others. A lap begins with leaseWarmUp, which does not count:
	// buckets are leased only while busy, and given back during the other side's lap.
	leaseRounds = 4
	leaseWarmUp = 750 * time.Millisecond
)

type leased struct {
	name    string
	draw    func(token string) [][]byte
	checks  int // in one request
	warmUp  time.Duration
	atLeast float64
}

func leases(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	return withLeases(ctx, rounds, round*leaseRounds, []leased{
		{fmt.Sprintf("four tiers on Redis, %d hot users", hotUsers), hotCrowd, 1, leaseWarmUp, 1.7},
		{fmt.Sprintf("four tiers on Redis, %d users, Zipf 1", manyUsers), zipfCrowd, 1, leaseWarmUp, 1.2},
	}, func(f *field, token string) ([]line, error) {
		return f.loneLeased(ctx, rounds, round, token)
	})
}

// needlessLeases compares workloads that leases cannot help, and must not slow down.
func needlessLeases(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	return withLeases(ctx, rounds, round, []leased{
		{fmt.Sprintf("by batches of %d, from nothing held", batchSize), crowdBatches, batchSize, 0, 0.97},
		{fmt.Sprintf("by batches of %d", batchSize), crowdBatches, batchSize, leaseWarmUp, 0.97},
		{fmt.Sprintf("%d hot users, from nothing held", hotUsers), hotCrowd, 1, 0, 0.97},
		{fmt.Sprintf("%d users alike", manyUsers), evenCrowd, 1, leaseWarmUp, 0.97},
		{"half of the checks of hot users", halfHotCrowd, 1, leaseWarmUp, 0.97},
	}, nil)
}

func withLeases(
	ctx context.Context, rounds int, round time.Duration, workloads []leased,
	more func(f *field, token string) ([]line, error),
) ([]line, error) {
	return withField(ctx, func(f *field) (lines []line, err error) {
		without, err := f.startAPI(ctx, f.database, f.redis.URL(), "SLUICE_LEASES=off")
		if err != nil {
			return nil, err
		}
		tokens := map[*process]string{}
		for _, side := range []*process{f.onRedis, without} {
			if tokens[side], err = createTenant(ctx, f.database, fmt.Sprint("leases-", len(tokens)),
				hotTiers); err != nil {
				return nil, err
			}
		}
		for _, server := range []*process{f.onRedis, without} { // until it has read its tenant
			if err := server.awaitCheck(ctx, singleCheck(tokens[server], 0)); err != nil {
				return nil, err
			}
		}
		for _, w := range workloads {
			off := &contender{
				name: w.name + " without leases", server: without, requests: w.draw(tokens[without]),
				checks: w.checks, warmUp: w.warmUp,
			}
			on := &contender{
				name: w.name, server: f.onRedis, requests: w.draw(tokens[f.onRedis]), checks: w.checks,
				warmUp: w.warmUp,
			}
			inRAM := &contender{
				name: w.name + " in memory", server: f.inRAM, requests: on.requests, checks: w.checks,
				warmUp: w.warmUp,
			}
			if err := f.race(ctx, rounds, round, connections, off, on, inRAM); err != nil {
				return nil, err
			}
			lines = append(lines,
				versus(w.name+" ÷ without leases", off, on, w.atLeast),
				versus("  in memory ÷ without leases", off, inRAM, 0),
				lineOf("  checks per second of all processors' time", "%.0f",
					off.median("checks/CPU s"), on.median("checks/CPU s"), on.over(off.figures, "checks/CPU s"), 0),
				note("  server CPU per check, µs", "%.1f", off.median("server"), on.median("server")),
				note("  Redis CPU per check, µs", "%.2f", off.median("redis"), on.median("redis")),
				note("  allocations per check", "%.1f", off.median("allocations"), on.median("allocations")),
				note("  share of checks decided from lots alone, and in part", "%.3f", on.median("leased"),
					on.median("split")),
				note("  checks per script", "%.1f", off.median("batch"), on.median("batch")),
				note("  buckets asked for, per check", "%.4f", 0, on.median("asks")),
				note("  denied, ‰", "%.2f", 0, 1000*on.median("denied")))
		}
		if more == nil {
			return lines, nil
		}
		rest, err := more(f, tokens[f.onRedis])
		return append(lines, rest...), err
	})
}

// loneLeased compares the cost of a lone check of leased buckets with the round trip that it spares. A check in memory
// shows what every check costs, such as reading JSON and matching rules.
func (f *field) loneLeased(ctx context.Context, rounds int, round time.Duration, token string) ([]line, error) {
	one := [][]byte{singleCheck(token, 0).bytes()}
	found, err := takeTurns(ctx, time.Duration(rounds)*round, loneRequest("no-op", f.noop, one),
		loneRequest("leased", f.onRedis, one),
		loneRequest("in memory", f.inRAM, one), lonePing("ping", f.redis.Addr()))
	if err != nil {
		return nil, err
	}
	row := func(name, of string, atMost float64) line {
		return ratioLine(name, "%.1f", found.median("ping"), found.beyond(of, "no-op"), -atMost)
	}
	return []line{
		row("(lone check − lone no-op) ÷ PING, leased, µs", "leased", 0.2),
		row("  the same of buckets in memory", "in memory", 0),
		note("  lone request, µs", "%.1f", found.median("no-op"), found.median("leased")),
	}, nil
}

// hotCrowd's users are each busy enough for their buckets to be leased.
func hotCrowd(token string) [][]byte { return singleChecks(token, hotUsers) }

// evenCrowd's users ask a few times a second at most.
func evenCrowd(token string) [][]byte {
	requests := singleChecks(token, manyUsers)
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(requests),
		func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
	return requests
}

func halfHotCrowd(token string) [][]byte {
	requests, hot := evenCrowd(token), hotCrowd(token)
	for i := 0; i < len(requests); i += 2 {
		requests[i] = hot[i/2%len(hot)]
	}
	return requests
}

// zipfCrowd's n-th user asks 1/n as often as the first.
func zipfCrowd(token string) [][]byte {
	sums, sum := make([]float64, manyUsers), 0.0
	for i := range sums {
		sum += 1 / float64(i+1)
		sums[i] = sum
	}
	random, of := rand.New(rand.NewPCG(1, 2)), map[int][]byte{}
	requests := make([][]byte, 1<<18)
	for i := range requests {
		user, _ := slices.BinarySearch(sums, random.Float64()*sum)
		if of[user] == nil {
			of[user] = singleCheck(token, user).bytes()
		}
		requests[i] = of[user]
	}
	return requests
}
