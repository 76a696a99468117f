package redisbucket

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

func BenchmarkTake(b *testing.B) {
	_, s := generous(b)
	mustTake(b, s, one(user("warm", still)))
	limit := enforce.Limit{Rate: rules.MaxRate, Burst: rules.MaxBurst}
	for _, callers := range []int{2, 32} {
		b.Run(fmt.Sprintf("%d callers", callers), func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
			before := scriptCalls(b, s)
			var next atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				checks := []enforce.BucketCheck{fourTiers(int(next.Add(1)), limit)}
				for pb.Next() {
					if err := s.Take(context.Background(), checks); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/float64(scriptCalls(b, s)-before), "checks/script")
		})
	}
}

// A list has held entries before, 100 on average during the measurement, and every check passes.
var algorithms = []struct {
	name  string
	limit enforce.Limit
	held  int
}{
	{"token bucket", enforce.Limit{Rate: 1e6, Burst: 1e6}, 0},
	{"steps", enforce.Limit{Rate: 1e6, Burst: 1e6, Interval: 1e6}, 0},
	{"queue", enforce.Limit{Kind: rules.KindLeakyBucket, Rate: 1e6, Burst: 1e6}, 0},
	{"fixed window", enforce.Limit{Kind: rules.KindFixedWindow, Burst: 1e8, Interval: 6e7}, 0},
	{"sliding window", enforce.Limit{Kind: rules.KindSlidingWindow, Burst: 1e8, Interval: 1e4}, 0},
	{"log", enforce.Limit{Kind: rules.KindSlidingWindowLog, Burst: rules.MaxListed, Interval: 36e8}, 90},
	{"concurrency", enforce.Limit{Kind: rules.KindConcurrency, Burst: rules.MaxListed, Interval: 36e8}, 90},
}

// BenchmarkScript reports Redis's own time for one check of one bucket, as ratios of medians to the token bucket's.
func BenchmarkScript(b *testing.B) {
	const buckets, checksOfEach = 5, 20
	_, s := generous(b)
	micros := make([][]float64, len(algorithms))
	for round := 0; b.Loop(); round++ {
		for i, algorithm := range algorithms {
			tiers := make([]enforce.Tier, buckets)
			for j := range tiers {
				tiers[j] = user(fmt.Sprint(algorithm.name, round, j), algorithm.limit)
				fill := make([]enforce.BucketCheck, max(1, algorithm.held))
				for k := range fill {
					fill[k] = one(tiers[j])[0]
				}
				for k := range fill { // one at a time: entries of a log with the same time are one
					mustTake(b, s, fill[k:k+1])
				}
			}
			if err := s.rdb.ConfigResetStat(b.Context()).Err(); err != nil {
				b.Fatal(err)
			}
			for n := range buckets * checksOfEach {
				if check := mustTake(b, s, one(tiers[n%buckets])); !check[0].Allowed {
					b.Fatalf("%s denied", algorithm.name)
				}
			}
			micros[i] = append(micros[i], scriptTime(b, s))
		}
		if err := s.rdb.FlushDB(b.Context()).Err(); err != nil {
			b.Fatal(err)
		}
	}
	median := func(i int) float64 { return micros[i][len(micros[i])/2] }
	for i := range micros {
		slices.Sort(micros[i])
	}
	fmt.Fprintf(os.Stderr, "\n%-16s %10s %10s %16s %13s\n", "algorithm", "median µs", "least µs", "ratio of medians",
		"of the least")
	for i, algorithm := range algorithms {
		ratio := median(i) / median(0)
		fmt.Fprintf(os.Stderr, "%-16s %10.2f %10.2f %16.2f %13.2f\n", algorithm.name, median(i), micros[i][0], ratio,
			micros[i][0]/micros[0][0])
		if i > 0 {
			b.ReportMetric(ratio, strings.ReplaceAll(algorithm.name, " ", "-")+"/token-bucket")
		}
	}
	b.ReportMetric(median(0), "token-bucket-µs")
	b.ReportMetric(0, "ns/op") // says nothing
}

// 200,000 buckets of each algorithm.
func BenchmarkMemory(b *testing.B) {
	const buckets, inCall = 200_000, 1000
	for _, kind := range slices.Sorted(maps.Keys(longLimits)) {
		b.Run(kind, func(b *testing.B) {
			_, s := generous(b)
			mustTake(b, s, one(user("warm", longLimits[kind])))
			before := usedMemory(b, s)
			for b.Loop() {
				for first := 0; first < buckets; first += inCall {
					checks := make([]enforce.BucketCheck, inCall)
					for i := range checks {
						checks[i] = one(user(fmt.Sprintf("user-%06d", first+i), longLimits[kind]))[0]
					}
					mustTake(b, s, checks)
				}
			}
			b.ReportMetric(float64(usedMemory(b, s)-before)/buckets, "bytes/bucket")
		})
	}
}

// Redis's time in buckets of checks that share scripts; see weight.
func BenchmarkWeight(b *testing.B) {
	const calls, callers = 5000, 256
	_, s := generous(b)
	mustCheck(b, s)
	costs := map[string]float64{} // µs
	kinds := kindsOfFlood(s)
	for b.Loop() {
		for _, kind := range kinds {
			var before float64
			for _, call := range []func(int) error{kind.prepare, kind.call} {
				before = processorTime(b, s)
				var all sync.WaitGroup
				for caller := range callers {
					all.Go(func() {
						for i := caller; call != nil && i < calls; i += callers {
							if err := call(i); err != nil {
								b.Error(err)
							}
						}
					})
				}
				all.Wait()
			}
			costs[kind.name] += processorTime(b, s) - before
			if err := s.rdb.FlushDB(b.Context()).Err(); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, kind := range kinds {
		b.ReportMetric(costs[kind.name]/(costs["checks"]/4), strings.ReplaceAll(kind.name, " ", "-"))
	}
	b.ReportMetric(costs["checks"]/4/calls/float64(b.N), "µs/bucket")
	b.ReportMetric(0, "ns/op") // says nothing
}

func processorTime(b *testing.B, s *Store) (micros float64) {
	b.Helper()
	info, err := s.rdb.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		var seconds float64
		for _, mode := range []string{"sys", "user"} {
			if _, err := fmt.Sscanf(line, "used_cpu_"+mode+":%g", &seconds); err == nil {
				micros += seconds * 1e6
			}
		}
	}
	return micros
}

// Redis's own time to renew one bucket or 32, by bucket.
func BenchmarkLeaseScript(b *testing.B) {
	_, s := generous(b)
	for _, buckets := range []int{1, 32} {
		b.Run(fmt.Sprint(buckets), func(b *testing.B) {
			leases := make([]enforce.Lease, buckets)
			for i := range leases {
				leases[i] = enforce.Lease{
					Key:   user(fmt.Sprint("leased", i), still).Key,
					Limit: enforce.Limit{Rate: 1e6, Burst: 1e6},
				}
			}
			if err := s.rdb.ConfigResetStat(b.Context()).Err(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				for i := range leases {
					l := &leases[i]
					held := l.Grant.Amount
					l.Ask = enforce.Ask{
						Epoch: l.Grant.Epoch, Presence: l.Grant.Slot, Want: 1000 * enforce.Token,
						Since: 10_000,
					}
					if held > 0 {
						l.Ask.Returns = []enforce.Return{{Slot: l.Grant.Slot, Spent: held}}
					}
				}
				if err := s.Lease(context.Background(), leases); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(scriptTime(b, s)/float64(buckets), "redis-µs/bucket")
		})
	}
}

func scriptTime(t testing.TB, s *Store) float64 {
	t.Helper()
	info, err := s.rdb.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		var calls, micros float64
		if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%g,usec=%g,", &calls, &micros); err == nil {
			return micros / calls
		}
	}
	t.Fatalf("no EVALSHA in %s", info)
	return 0
}
