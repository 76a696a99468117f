package lease

import (
	"fmt"
	"testing"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/lend"
)

func TestTwoBusyBucketsThatShareCountersAreBothNoticed(t *testing.T) {
	t.Parallel()
	r := newRecent(2)
	now := lend.Instant{Mono: 1e9, Wall: 1e9}
	drawn := map[uint64]bool{} // what a counter knows of each bucket
	draw := func() *enforce.Key {
		for n := 0; ; n++ {
			key := &enforce.Key{Tenant: 1, Rule: 1, Subject: fmt.Sprint(n)}
			if known := r.hash(key) >> 32 & hashBits; !drawn[known] {
				drawn[known] = true
				return key
			}
		}
	}
	one, another := draw(), draw()
	for n := range mostCounted + 10 {
		for _, busy := range []*enforce.Key{one, another} {
			if got, want := r.count(busy, now), min(n+1, mostCounted); got != want {
				t.Fatalf("check %d of a busy bucket counts as %d, want %d", n+1, got, want)
			}
		}
	}
	for range 100 {
		if got := r.count(draw(), now); got != 0 {
			t.Fatalf("an idle bucket has a counter, with %d", got)
		}
	}
	if got := r.count(another, now); got <= hotAfter {
		t.Errorf("a busy bucket that others shared counters with counts as %d", got)
	}
	later := now.Plus(hotWithin)
	for range 2 {
		if got := r.count(draw(), later); got != 1 {
			t.Errorf("after a while another bucket counts as %d, want 1", got)
		}
	}
}
