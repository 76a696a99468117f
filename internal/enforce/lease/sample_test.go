package lease

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/lend"
)

func TestFewChecksOfALargeCallAreCounted(t *testing.T) {
	t.Parallel()
	now := lend.Instant{Mono: 1e9, Wall: 1e9}
	b := newBuckets(allowing{}, func() lend.Instant { return now }, slog.New(slog.DiscardHandler), counters)
	b.TurnOn(true)
	used := func() (n int) {
		for i := range b.recent.counters {
			if b.recent.counters[i].Load() > 0 {
				n++
			}
		}
		return n
	}
	call := func(users int) (checks []enforce.BucketCheck) {
		for user := range users {
			checks = append(checks, *checkOf(1, user))
		}
		return checks
	}
	for users, most := range map[int]int{1: 1, 8: 8, 100: 8} {
		b.recent = newRecent(counters)
		if err := b.Take(context.Background(), call(users)); err != nil {
			t.Fatal(err)
		}
		if got := used(); got == 0 || got > most {
			t.Errorf("of %d checks %d are counted, want at most %d", users, got, most)
		}
	}
	for _, busy := range []int{100, 101} { // the last one comes beside leased ones
		for range 40 * busy / maxSampled { // each is counted some forty times
			now = now.Plus(hotWithin/1000 + time.Nanosecond)
			if err := b.Take(context.Background(), call(busy)); err != nil {
				t.Fatal(err)
			}
			b.admit()
		}
		if got := b.Len(); got != busy {
			t.Errorf("%d of %d busy buckets are leased", got, busy)
		}
	}
}
