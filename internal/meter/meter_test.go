package meter_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicegate/sluice/internal/meter"
)

func TestWaitsAndTheNetworkAreNoWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, m := meter.With(t.Context())
		pass := func(d time.Duration) { <-time.After(d) }
		pass(3 * time.Millisecond) // computes
		waiting := time.Now()
		pass(time.Second)
		meter.Waited(ctx, waiting)
		pass(10 * time.Millisecond)
		meter.Asked(ctx, 10*time.Millisecond, 8*time.Millisecond)
		if got := m.Worked(); got != 11*time.Millisecond {
			t.Errorf("worked for %v, want 11ms", got)
		}
		// Two queries in parallel keep two processors busy.
		pass(10 * time.Millisecond)
		meter.Asked(ctx, 10*time.Millisecond, 10*time.Millisecond)
		meter.Asked(ctx, 10*time.Millisecond, 10*time.Millisecond)
		if got := m.Worked(); got < 28*time.Millisecond {
			t.Errorf("worked for %v, want both queries", got)
		}
		meter.Waited(t.Context(), waiting) // without a Meter
	})
}

func TestTheFastestOfRecentAnswersIsTheDistance(t *testing.T) {
	t.Parallel()
	var d meter.Distance
	now := time.Unix(1_000_000, 0)
	for _, step := range []struct {
		after      time.Duration
		took, want time.Duration
	}{
		{0, 9, 0},
		{1, 4, 0},
		{1, 9, 5},
		{time.Minute, 20, 16}, // the former window still counts
		{1, 6, 2},
		{time.Minute, 20, 14},
		{time.Minute, 30, 10},
	} {
		now = now.Add(step.after)
		if got := d.Work(step.took, now); got != step.want {
			t.Errorf("of %d the server worked for %d, want %d", step.took, got, step.want)
		}
	}
}
