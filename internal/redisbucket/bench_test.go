package redisbucket

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// BenchmarkTake is a check of four tiers, asked by few callers and by many at once.
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
