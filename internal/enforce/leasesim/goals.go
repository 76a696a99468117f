package leasesim

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

type goal struct {
	nodes    int
	load     float64
	share    float64 // least, of what one bucket would have admitted
	perCheck float64 // most round trips to the store; 0 for any number
}

// goals are for a bucket that earns 10,000 tokens per second; under overload every denied check asks the store.
var goals = []goal{
	{nodes: 1, load: 0.95, share: 0.999, perCheck: 0.02},
	{nodes: 10, load: 0.95, share: 0.999, perCheck: 0.02},
	{nodes: 100, load: 0.95, share: 0.999, perCheck: 0.15},
	{nodes: 100, load: 0.5, share: 0.999},
	{nodes: 1, load: 2, share: 0.98},
	{nodes: 10, load: 2, share: 0.98},
	{nodes: 100, load: 2, share: 0.98},
}

// RunGoals fails if processes miss a goal.
func RunGoals(t *testing.T, start func(*Node) Process) {
	t.Helper()
	for _, g := range goals {
		t.Run(fmt.Sprintf("%d processes, load %g", g.nodes, g.load), func(t *testing.T) {
			t.Parallel()
			w := Run(t, Setup{
				Seed: 1, Nodes: g.nodes, Limit: enforce.Limit{Rate: 1e4, Burst: 1e4}, Load: g.load, Skew: 0.8,
				Delay: 2 * time.Millisecond, Length: 5 * time.Second,
			}, start)
			w.WantShare(t, g.share)
			if g.perCheck > 0 {
				w.WantPerCheck(t, g.perCheck)
			}
		})
	}
}

// WantShare fails below a share of one bucket's admissions.
func (w *World) WantShare(t *testing.T, least float64) {
	t.Helper()
	t.Logf("admitted %.2f %% of what one bucket would have, %.4f round trips per check", 100*w.Share(), w.PerCheck())
	if w.Share() < least {
		t.Errorf("admitted %.2f %%, want at least %.2f %%", 100*w.Share(), 100*least)
	}
}

// WantPerCheck fails above a number of round trips per check.
func (w *World) WantPerCheck(t *testing.T, most float64) {
	t.Helper()
	if w.PerCheck() > most {
		t.Errorf("%.4f round trips per check, want at most %g", w.PerCheck(), most)
	}
}
