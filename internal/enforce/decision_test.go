package enforce

import (
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/rules"
)

// After its store's clock stepped back, a window is full later than at its end.
func TestAWindowHasMoreWhenItIsFull(t *testing.T) {
	t.Parallel()
	window := TierDecision{
		Limit:     Limit{Kind: rules.KindFixedWindow, Burst: 10, Interval: time.Minute.Microseconds()},
		Remaining: 5 * Token, Stamp: testEpoch, ResetAfter: 90 * time.Second,
	}
	if got := window.MoreAfter(); got != 90*time.Second {
		t.Errorf("more after %s, want when the window is full, after 1m30s", got)
	}
}
