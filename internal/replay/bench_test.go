package replay_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/replay"
	"github.com/sluicegate/sluice/internal/rules"
	"github.com/sluicegate/sluice/internal/rules/snapshot"
	"github.com/sluicegate/sluice/internal/traffic"
)

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func BenchmarkADay(b *testing.B) {
	const checks, users, limits = 10_000_000, 100_000, 1000
	random := rand.New(rand.NewPCG(5, 6))
	rows := snapshot.Rows{Tenants: []rules.Tenant{{ID: 1, Settings: rules.DefaultSettings()}}}
	add := func(pattern string, rate float64, burst int64) {
		parsed, err := rules.ParsePattern(pattern)
		if err != nil {
			b.Fatal(err)
		}
		rows.Rules = append(rows.Rules, rules.Rule{
			ID: rules.RuleID(len(rows.Rules) + 1), TenantID: 1, Pattern: parsed, RatePerSecond: rate,
			RateUnit: rules.PerSecond, Burst: burst,
			Algorithm: rules.TokenBucket, Mode: rules.ModeEnforce, Action: rules.ActionLimit, Active: true, Version: 1,
		})
	}
	add("user:{user_id}", 0.0001, 5)
	add("ip:{ip}", 1, 100)
	add("global", 1000, 2000)
	for len(rows.Rules) < limits {
		add(fmt.Sprint("endpoint:/api/", len(rows.Rules)), 100, 200)
	}
	began := time.Now()
	var blocks []traffic.Block
	const length = 5 * time.Minute
	perBlock := checks / int(24*time.Hour/length)
	bytes := 0
	for at := noon; at.Before(noon.Add(24 * time.Hour)); at = at.Add(length) {
		runs := make([]traffic.Run, 0, perBlock)
		for range perBlock {
			user := int(math.Floor(random.ExpFloat64() * users / 5))
			runs = append(runs, traffic.Run{
				UserID: fmt.Sprint("user-", user%users), Endpoint: fmt.Sprint("/api/", random.IntN(limits)),
				Method: "GET", Cost: 1_000_000,
				IP:    netip.AddrFrom4([4]byte{10, byte(user >> 8), byte(user), 1}),
				Times: []uint32{uint32(random.Int64N(length.Milliseconds()))},
			})
		}
		block := traffic.Block{Tenant: 1, First: at, Last: at.Add(length)}
		block.SetRuns(runs)
		bytes += block.Bytes()
		blocks = append(blocks, block)
	}
	b.Logf("%d checks take %d MB as blocks, made in %v", perBlock*len(blocks), bytes>>20,
		time.Since(began).Round(time.Second))
	candidate := rows.Rules[0]
	candidate.RatePerSecond = 0.00005
	runtime.GC()
	for b.Loop() {
		var peak uint64
		start, worked := time.Now(), processorTime(b)
		result, err := replay.Run(b.Context(), &replay.Input{
			Tenant: 1, Since: noon, Until: noon.Add(24 * time.Hour), Candidate: candidateOf(candidate),
			History: &replay.History{Start: rows}, Blocks: replay.Slice(blocks),
		}, replay.Options{Parallel: true, Progress: func(float64) {
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			peak = max(peak, stats.HeapInuse)
		}})
		if err != nil {
			b.Fatal(err)
		}
		b.Logf("%d checks in %v, with %v of processors, at most %d MB of heap with %d MB of blocks; %+v", result.Read,
			time.Since(start).Round(10*time.Millisecond), (processorTime(b) - worked).Round(10*time.Millisecond),
			peak>>20, bytes>>20, result.Counts)
	}
}
