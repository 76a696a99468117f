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
	// leaseRounds is how many times longer rounds are than others: tokens of a bucket are leased once it was busy for a while, and
	// given back once it is not.
	leaseRounds = 6
)

// leases compares a process that leases tokens with one that does not, each with a tenant of its own.
func leases(ctx context.Context, rounds int, round time.Duration) ([]line, error) {
	return withField(ctx, func(f *field) (lines []line, err error) {
		round *= leaseRounds
		without, err := f.startAPI(ctx, f.database, f.redis.URL(), "SLUICE_LEASES=off")
		if err != nil {
			return nil, err
		}
		tokens := map[*process]string{}
		for _, side := range []*process{f.onRedis, without} {
			if tokens[side], err = createTenantOf(ctx, f.database, fmt.Sprint("leases-", len(tokens)), hotTiers); err != nil {
				return nil, err
			}
		}
		for _, server := range []*process{f.onRedis, without} { // until it has read its tenant
			if err := server.awaitCheck(ctx, singleCheck(tokens[server], 0)); err != nil {
				return nil, err
			}
		}
		for _, c := range []struct {
			name    string
			draw    func(token string) [][]byte
			atLeast float64
		}{
			{fmt.Sprintf("four tiers on Redis, %d hot users", hotUsers), hotCrowd, 1.7},
			{fmt.Sprintf("four tiers on Redis, %d users, Zipf 1", manyUsers), zipfCrowd, 1.2},
		} {
			off := &contender{name: c.name + " without leases", server: without, requests: c.draw(tokens[without]), checks: 1}
			on := &contender{name: c.name, server: f.onRedis, requests: c.draw(tokens[f.onRedis]), checks: 1}
			if err := f.race(ctx, rounds, round, connections, off, on); err != nil {
				return nil, err
			}
			lines = append(lines,
				versus(c.name+" ÷ without leases", off, on, c.atLeast),
				note("  server CPU per check, µs", "%.1f", off.median("server"), on.median("server")),
				note("  Redis CPU per check, µs", "%.2f", off.median("redis"), on.median("redis")),
				note("  allocations per check", "%.1f", off.median("allocations"), on.median("allocations")),
				note("  checks of which lots served all buckets, and some", "%.3f", on.median("leased"), on.median("split")),
				note("  checks per script", "%.1f", off.median("batch"), on.median("batch")),
				note("  denied, ‰", "%.2f", 0, 1000*on.median("denied")))
		}
		alone, err := f.loneLeased(ctx, rounds, round, tokens[f.onRedis])
		return append(lines, alone), err
	})
}

// loneLeased compares what a lone check of leased buckets adds to a request with the round trip that it spares.
func (f *field) loneLeased(ctx context.Context, rounds int, round time.Duration, token string) (line, error) {
	one := [][]byte{singleCheck(token, 0).bytes()}
	var ratios, added, pings []float64
	for i := range rounds + 1 {
		checked, err := load{[]string{f.onRedis.addr}, one}.lone(ctx, round/leaseRounds)
		if err != nil {
			return line{}, err
		}
		noop, err := load{[]string{f.noop.addr}, one}.lone(ctx, round/leaseRounds)
		if err != nil {
			return line{}, err
		}
		ping, err := load{addrs: []string{f.redis.Addr()}}.ping(ctx, round/leaseRounds)
		if err != nil {
			return line{}, err
		}
		if i > 0 {
			added, pings = append(added, (checked-noop).Seconds()*1e6), append(pings, ping.Seconds()*1e6)
			ratios = append(ratios, (checked-noop).Seconds()/ping.Seconds())
		}
	}
	return lineOf("(lone check − lone no-op) ÷ PING, leased, µs", "%.1f", median(pings), median(added), median(ratios), -0.2), nil
}

// hotCrowd is single checks of a few users, each far above what it takes for its buckets to be leased.
func hotCrowd(token string) [][]byte {
	requests := make([][]byte, hotUsers)
	for i := range requests {
		requests[i] = singleCheck(token, i).bytes()
	}
	return requests
}

// zipfCrowd is single checks of many users, of whom the second asks half as often as the first, the third a third, and so on.
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
