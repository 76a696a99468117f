package lease

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/leasesim"
)

// holder is a process whose checks go through Buckets as in production, but for the goroutine that looks after them.
type holder struct {
	*leasesim.Node
	buckets   *Buckets
	lentAfter map[*lot]int // how many losses of the store
}

func startHolder(n *leasesim.Node) leasesim.Process {
	h := &holder{Node: n, lentAfter: map[*lot]int{}}
	h.buckets = newBuckets(nil, h.clock, slog.New(slog.DiscardHandler), 16)
	h.buckets.TurnOn(true)
	n.After(n.Draw(10_000), h.tick)
	return h
}

func (h *holder) clock() Instant {
	mono, wall := h.Clocks()
	return Instant{mono, wall}
}

// spent returns what was spent of lots that the store had lent since it lost its data so often. Tokens that it lent before are the
// one exception to the promise.
func (h *holder) spent(losses int) (sum int64) {
	if e := (*h.buckets.held.Load())[leasesim.SharedKey]; e != nil && e.lots.Load() != nil {
		for _, l := range *e.lots.Load() {
			if h.lentAfter[l] == losses {
				sum += l.spent.Load()
			}
		}
	}
	return sum
}

// taken is spent for what a check took that the store has not answered.
func (h *holder) taken(rest *sent, losses int) (sum int64) {
	for i := range rest.splits {
		for j := range rest.splits[i].taken {
			for _, p := range rest.splits[i].taken[j].parts[:rest.splits[i].taken[j].n] {
				if rest.splits[i].of[j] != nil && h.lentAfter[p.lot] == losses {
					sum += p.amount
				}
			}
		}
	}
	return sum
}

func (h *holder) Decide(check enforce.BucketCheck) {
	checks := []enforce.BucketCheck{check}
	began, losses, now, held := h.Now(), h.Losses(), h.clock(), *h.buckets.held.Load()
	before := h.spent(losses)
	rest := h.buckets.begin(checks, held, now)
	h.Admit(began, h.spent(losses)-before)
	if rest == nil {
		h.Passed++
		return
	}
	h.Call(func() {
		for i := range rest.checks {
			h.Take(&rest.checks[i])
		}
	}, func(isLost bool) {
		var err error
		if isLost {
			err = context.DeadlineExceeded
		}
		taken := h.taken(rest, losses)
		h.buckets.end(checks, rest, *h.buckets.held.Load(), err, h.clock())
		if err != nil || checks[0].Allowed {
			h.Admit(began, taken)
		}
		if err == nil && checks[0].Allowed {
			h.Passed++
		}
	})
}

// tick looks after the buckets as Buckets.run does.
func (h *holder) tick() {
	h.After(int64(tickEvery/time.Microsecond), h.tick)
	h.buckets.watchClocks()
	h.buckets.admit()
	for tenant, calls := range h.buckets.collect() {
		h.buckets.sending.Store(tenant, true)
		for _, call := range calls {
			h.ask(call)
		}
	}
	h.buckets.leave()
}

func (h *holder) ask(call *asking) {
	losses := 0
	h.Call(func() {
		for i := range call.leases {
			h.Lend(&call.leases[i])
		}
		losses = h.Losses()
	}, func(isLost bool) {
		for i := range call.leases {
			call.leases[i].Answered = !isLost
		}
		h.buckets.answered(call, h.clock())
		h.buckets.sending.Clear()
		for _, e := range call.entries {
			lots := e.lots.Load()
			if lots == nil {
				continue
			}
			for _, l := range *lots {
				if _, known := h.lentAfter[l]; !known {
					h.lentAfter[l] = losses
				}
			}
		}
	})
}

// TestModel prints what leases admit beside one bucket, and what they cost.
func TestModel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		nodes   int
		rate    float64
		load    float64
		on, off time.Duration
		users   int
		least   float64
		most    float64 // commands per check
	}{
		{10, 1e4, 0.95, 0, 0, 0, 0.999, 0.02},
		{10, 1e4, 0.95, 0, 0, 5000, 0.999, 0.55},
		{100, 1e4, 0.95, 0, 0, 0, 0.999, 0.1},
		{100, 1e4, 2, 0, 0, 0, 0.98, 1.1},
		{100, 1e4, 1, 500 * time.Millisecond, time.Second, 0, 0.9, 0.5},
		{1, 1e3, 2, 0, 0, 0, 0.98, 1.1},
	} {
		t.Run(fmt.Sprintf("%d nodes, %.0f/s, load %g, %d users", c.nodes, c.rate, c.load, c.users), func(t *testing.T) {
			t.Parallel()
			w := leasesim.Run(t, leasesim.Setup{
				Seed: 1, Nodes: c.nodes, Limit: enforce.Limit{Rate: c.rate, Burst: int64(c.rate)}, Load: c.load, Skew: 0.8,
				On: c.on, Off: c.off, Users: c.users, UserBurst: leastBurst - 1, Delay: 2 * time.Millisecond, Length: 20 * time.Second,
			}, startHolder)
			t.Logf("admitted %.2f %% of what one bucket would have, %.3f commands per check", 100*w.Share(), w.PerCheck())
			if w.Share() < c.least {
				t.Errorf("admitted %.2f %%, want %.2f %%", 100*w.Share(), 100*c.least)
			}
			if w.PerCheck() > c.most {
				t.Errorf("%.3f commands per check, want at most %g", w.PerCheck(), c.most)
			}
		})
	}
}

// soak is for make soak.
var soak = flag.Bool("soak", false, "play more and larger runs")

// TestManyProcesses is TestModel's for a thousand.
func TestManyProcesses(t *testing.T) {
	t.Parallel()
	if !*soak {
		t.Skip("takes minutes: make soak")
	}
	for _, c := range []struct{ load, least float64 }{{0.9, 0.999}, {2, 0.95}} {
		w := leasesim.Run(t, leasesim.Setup{
			Seed: 1, Nodes: 1000, Limit: enforce.Limit{Rate: 1e5, Burst: 1e5}, Load: c.load, Skew: 0.8,
			Delay: 2 * time.Millisecond, Length: 10 * time.Second,
		}, startHolder)
		t.Logf("1000 nodes, load %g: admitted %.2f %% of what one bucket would have, %.3f commands per check", c.load, 100*w.Share(), w.PerCheck())
		if w.Share() < c.least {
			t.Errorf("admitted %.2f %%, want %.2f %%", 100*w.Share(), 100*c.least)
		}
	}
}

func TestHostile(t *testing.T) {
	t.Parallel()
	runs := uint64(100)
	if *soak {
		runs = 1000
	}
	for seed := range runs {
		w := leasesim.Run(t, leasesim.Hostile(seed), startHolder)
		if testing.Verbose() && seed%10 == 0 {
			t.Logf("seed %d: %d checks, admitted %.1f %%", seed, w.Checks, 100*w.Share())
		}
	}
}

// TestTheCheckerSeesFaults: what would break the promise shows, in runs that show nothing without it.
func TestTheCheckerSeesFaults(t *testing.T) {
	t.Parallel()
	leasesim.RunFaults(t, startHolder)
}
