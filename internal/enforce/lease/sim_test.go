package lease

import (
	"context"
	"flag"
	"log/slog"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/leasesim"
	"github.com/sluicegate/sluice/internal/enforce/lend"
)

type holder struct {
	*leasesim.Node
	buckets   *Buckets
	lentAfter map[*lend.Lot]int // how many losses of the store
}

func startHolder(n *leasesim.Node) leasesim.Process {
	h := &holder{Node: n, lentAfter: map[*lend.Lot]int{}}
	h.buckets = newBuckets(nil, h.clock, slog.New(slog.DiscardHandler), 16)
	h.buckets.TurnOn(true)
	n.After(n.Draw(10_000), h.tick)
	return h
}

func (h *holder) clock() lend.Instant {
	mono, wall := h.Clocks()
	return lend.Instant{Mono: mono, Wall: wall}
}

// Grants before the bucket's last loss are the one exception to the promise.
func (h *holder) counts(l *lend.Lot, loss int) bool { return h.lentAfter[l] >= loss }

func (h *holder) spent(key enforce.Key, loss int) (sum int64) {
	if e := (*h.buckets.held.Load())[key]; e != nil {
		e.Lots(h.clock(), func(l *lend.Lot, _ bool, _, spent, _ lend.Tokens) {
			if h.counts(l, loss) {
				sum += int64(spent)
			}
		})
	}
	return sum
}

func (h *holder) Held(key enforce.Key) (sum int64) {
	if e := (*h.buckets.held.Load())[key]; e != nil {
		e.Lots(h.clock(), func(l *lend.Lot, isAlive bool, left, spent, undecided lend.Tokens) {
			if isAlive && h.counts(l, h.LossOf(key)) {
				sum += int64(left + spent + undecided)
			}
		})
	}
	return sum
}

func (h *holder) taken(rest *sent, key enforce.Key, loss int) (sum int64) {
	for i := range rest.splits {
		for j, e := range rest.splits[i].of {
			if e == nil || e.key != key {
				continue
			}
			rest.splits[i].taken[j].Parts(func(l *lend.Lot, amount lend.Tokens) {
				if h.counts(l, loss) {
					sum += int64(amount)
				}
			})
		}
	}
	return sum
}

type tally struct {
	key    enforce.Key
	loss   int // the last of the bucket, when the check began
	amount int64
}

func (h *holder) Decide(check enforce.BucketCheck) {
	checks := []enforce.BucketCheck{check}
	began, now, held := h.Now(), h.clock(), *h.buckets.held.Load()
	tallies := make([]tally, len(check.Tiers))
	for i := range tallies {
		key := check.Tiers[i].Key
		tallies[i] = tally{key, h.LossOf(key), -h.spent(key, h.LossOf(key))}
	}
	rest := h.buckets.begin(checks, held, now)
	for i := range tallies {
		t := &tallies[i]
		h.Admit(t.key, began, t.amount+h.spent(t.key, t.loss))
	}
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
		for i := range tallies {
			tallies[i].amount = h.taken(rest, tallies[i].key, tallies[i].loss)
		}
		h.buckets.end(checks, rest, *h.buckets.held.Load(), err, h.clock())
		if err != nil || checks[0].Allowed {
			for _, t := range tallies {
				h.Admit(t.key, began, t.amount)
			}
		}
		if err == nil && checks[0].Allowed {
			h.Passed++
		}
	})
}

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
			e.Lots(h.clock(), func(l *lend.Lot, _ bool, _, _, _ lend.Tokens) {
				if _, known := h.lentAfter[l]; !known {
					h.lentAfter[l] = losses
				}
			})
		}
	})
}

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
			leasesim.Setup{
				Nodes: 10, Limit: enforce.Limit{Rate: 1e4, Burst: 1e4}, Load: 0.95, Users: 5000,
				UserLimit: enforce.Limit{Rate: 2, Burst: leastBurst - 1},
			},
			0.999, 0.55,
		},
		{
			"checks come for half a second and then for a second not",
			leasesim.Setup{
				Nodes: 100, Limit: enforce.Limit{Rate: 1e4, Burst: 1e4}, Load: 1, On: 500 * time.Millisecond,
				Off: time.Second,
			},
			0.9, 0.5,
		},
		{
			"one process with a small limit",
			leasesim.Setup{Nodes: 1, Limit: enforce.Limit{Rate: 1e3, Burst: 1e3}, Load: 2},
			0.98, 1.1,
		},
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

var soak = flag.Bool("soak", false, "play more and larger runs")

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
	runs, processes := uint64(100), 30
	if *soak {
		runs, processes = 1000, 1000
	}
	leasesim.RunHostile(t, runs, processes, startHolder)
}

func TestTheCheckerSeesFaults(t *testing.T) {
	t.Parallel()
	leasesim.RunFaults(t, startHolder)
}
