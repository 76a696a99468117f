package violations_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/violations"
)

func TestRecordingARepeatedDenialAllocatesNothing(t *testing.T) { //nolint:paralleltest // counts all allocations
	r := violations.NewRecorder(newLedger(), violations.Options{})
	check := denied(1, "42")
	for range 1000 { // until every counter has seen it
		r.Record(noon, check)
	}
	if allocated := testing.AllocsPerRun(1000, func() { r.Record(noon, check) }); allocated > 0 {
		t.Errorf("%g allocations for a repeated denial, want none", allocated)
	}
}

func TestRecordingARepeatedCheckAllocatesNothing(t *testing.T) { //nolint:paralleltest // counts all allocations
	r := violations.NewRecorder(newLedger(), violations.Options{})
	check := allowed(1, "42", "203.0.113.9")
	for range 1000 { // until every counter has seen it
		r.Record(noon, check)
	}
	hundred := func() { // because one in eight is counted by its callers
		for range 100 {
			r.Record(noon, check)
		}
	}
	if allocated := testing.AllocsPerRun(100, hundred); allocated > 0 {
		t.Errorf("%g allocations for a hundred repeated checks, want none", allocated)
	}
}

func TestMemoryStaysWithinItsBound(t *testing.T) { //nolint:paralleltest // measures all memory
	const bound = 16 << 20
	r := violations.NewRecorder(newLedger(), violations.Options{MaxBytes: bound, MaxDetails: 1 << 20})
	before := heap()
	for i := range 200_000 {
		check := denied(1, fmt.Sprintf("user-%d", i))
		check.Request.Endpoint = fmt.Sprintf("/endpoint/%d", i)
		r.Record(noon.Add(time.Duration(i%120)*time.Second), check)
	}
	if used := heap() - before; used > bound/2*11/10 {
		t.Errorf("%d MiB are used, want at most half of %d and a tenth of that", used>>20, bound>>20)
	}
	if stats := r.Stats(); stats.Bytes < bound/8 {
		t.Errorf("the bound was not reached: %+v", stats)
	}
	runtime.KeepAlive(r)
}

func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func BenchmarkRecord(b *testing.B) {
	kinds := []struct {
		name string
		of   func(user int) *violations.Check
	}{
		{"denied", func(user int) *violations.Check { return denied(1, fmt.Sprint(user)) }},
		{"allowed", func(user int) *violations.Check {
			return allowed(1, fmt.Sprint(user), fmt.Sprintf("203.%d.%d.9", user>>8&0xff, user&0xff))
		}},
	}
	for _, kind := range kinds {
		for _, users := range []int{1, 100_000} {
			b.Run(fmt.Sprintf("%s/%d users", kind.name, users), func(b *testing.B) {
				r := violations.NewRecorder(newLedger(), violations.Options{})
				checks := make([]*violations.Check, users)
				for i := range checks {
					checks[i] = kind.of(i)
					r.Record(noon, checks[i])
				}
				var next atomic.Int64
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					for i := int(next.Add(7919)); pb.Next(); i++ {
						r.Record(noon, checks[i%users])
					}
				})
			})
		}
	}
}
