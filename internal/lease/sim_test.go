package lease

import (
	"context"
	"flag"
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

// TestModel wants the goals of leases, and logs what is reached.
func TestModel(t *testing.T) {
	t.Parallel()
	leasesim.RunGoals(t, startHolder)
	for _, c := range []struct {
		name            string
		setup           leasesim.Setup
		share, perCheck float64
	}{
		{
			"half of the checks have a limit that is not leased",
			leasesim.Setup{Nodes: 10, Limit: enforce.Limit{Rate: 1e4, Burst: 1e4}, Load: 0.95, Users: 5000, UserBurst: leastBurst - 1},
			0.999, 0.55,
		},
		{
			"checks come for half a second and then for a second not",
			leasesim.Setup{Nodes: 100, Limit: enforce.Limit{Rate: 1e4, Burst: 1e4}, Load: 1, On: 500 * time.Millisecond, Off: time.Second},
			0.9, 0.5,
		},
		{"one process with a small limit", leasesim.Setup{Nodes: 1, Limit: enforce.Limit{Rate: 1e3, Burst: 1e3}, Load: 2}, 0.98, 1.1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.setup.Seed, c.setup.Skew, c.setup.Delay, c.setup.Length = 1, 0.8, 2*time.Millisecond, 10*time.Second
			w := leasesim.Run(t, c.setup, startHolder)
			w.WantShare(t, c.share)
			w.WantPerCheck(t, c.perCheck)
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
		t.Logf("load %g:", c.load)
		w.WantShare(t, c.least)
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
