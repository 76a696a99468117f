package leasesim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// Hostile is a setup with about half of all faults.
func Hostile(seed uint64, processes int) Setup {
	r := rand.New(rand.NewPCG(seed, 2))
	maybe := func(rate float64) float64 { return rate * float64(r.IntN(2)) }
	nodes := int(math.Exp(r.Float64() * math.Log(float64(processes))))
	each := 1 / float64(nodes)
	rate := math.Exp(3.5*r.Float64()) * 20 * math.Sqrt(float64(nodes))
	s := Setup{
		Seed: seed, Nodes: nodes, Limit: enforce.Limit{Rate: rate, Burst: 1 + int64(rate*math.Exp(3*r.Float64()-2))},
		Skew: r.Float64(), Largest: 1 + r.Int64N(3), Delay: time.Duration(1+r.IntN(50)) * time.Millisecond,
		Drift: maybe(0.0005),
		Lost:  maybe(0.05), Kills: maybe(0.5 * each), Stops: maybe(each), Suspends: maybe(each), Sets: maybe(each),
		StepsBack: maybe(0.2), Forgets: maybe(0.1), Failovers: maybe(0.3),
		Credits: maybe(1), Reserves: maybe(2), Edits: maybe(0.3), Direct: maybe(0.5 * r.Float64()),
		Length: 10 * time.Second,
	}
	if r.IntN(3) == 0 {
		s.Load = 0.8 + 3*r.Float64()
	} else { // the bucket is full, and then emptied at once
		s.Load, s.Spike = 0.2+0.5*r.Float64(), 5+15*r.Float64()
	}
	switch r.IntN(3) {
	case 1: // limits that are too small to be leased
		s.Users = 1 + r.IntN(40)
		s.UserLimit = enforce.Limit{Rate: rate / float64(s.Users), Burst: 15}
	case 2:
		s.Users = 1 + r.IntN(3)
		s.UserLimit = enforce.Limit{Rate: rate * (0.1 + r.Float64()), Burst: 16 + int64(rate*r.Float64())}
	}
	s.Recovers = r.IntN(2) == 0
	return s
}

// RunHostile runs hostile setups, and fails if no check passes.
func RunHostile(t *testing.T, runs uint64, processes int, start func(*Node) Process) {
	t.Helper()
	var checks, passed atomic.Int64
	t.Run("runs", func(t *testing.T) {
		for seed := range runs {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				w := Run(t, Hostile(seed, processes), start)
				checks.Add(int64(w.Checks))
				passed.Add(int64(w.Passed))
			})
		}
	})
	if t.Logf("of %d checks %d passed", checks.Load(), passed.Load()); passed.Load() == 0 {
		t.Error("no check passed, so nothing was tested")
	}
}

// Fault breaks a run that passes without it.
type Fault struct {
	Name   string
	OfLots bool
	Setup  Setup
	Damage func(*Setup)
}

// Faults each break the promise.
func Faults() []Fault {
	faults := []Fault{
		{"a bucket that fills up behind what is lent", true, Setup{Load: 0.3, Spike: 20}, func(s *Setup) {
			s.Break = func(_ enforce.Key, state *enforce.State, _ *enforce.Ask) { state.Entries = "" }
		}},
		{
			"a user's bucket that fills up behind what is lent", true,
			Setup{Nodes: 3, Load: 0.2, Spike: 20, Users: 1},
			func(s *Setup) {
				s.Break = func(key enforce.Key, state *enforce.State, _ *enforce.Ask) {
					if key != SharedKey {
						state.Entries = ""
					}
				}
			},
		},
		{"reports of another epoch", true, Setup{Load: 0.5, Spike: 10, Forgets: 2}, func(s *Setup) {
			s.Break = func(_ enforce.Key, state *enforce.State, ask *enforce.Ask) { ask.Epoch = state.Epoch() }
		}},
		{
			"a holder without a wall clock", true,
			Setup{Nodes: 3, Load: 0.5, Spike: 20, Suspends: 1},
			func(s *Setup) { s.NoWall = true },
		},
		{
			"a holder without a monotonic clock", true,
			Setup{Nodes: 3, Load: 0.5, Spike: 20, Stops: 1, Sets: 3},
			func(s *Setup) { s.NoMono = true },
		},
		{"a refund that counts twice", false, Setup{Load: 1.5, Reserves: 5}, func(s *Setup) { s.RefundsTwice = true }},
		{"debt that is forgotten", false, Setup{Load: 1.5, Reserves: 5}, func(s *Setup) {
			s.Break = func(_ enforce.Key, state *enforce.State, _ *enforce.Ask) {
				state.Level.Micros = max(0, state.Level.Micros)
			}
		}},
		{"an edit that fills the bucket", false, Setup{Load: 1.5, Edits: 1}, func(s *Setup) {
			since := int64(0)
			s.Break = func(_ enforce.Key, state *enforce.State, _ *enforce.Ask) {
				if state.Limit.Since > since {
					since = state.Limit.Since
					state.Credit(enforce.Fill)
				}
			}
		}},
		{
			"a failover that fills the buckets", false,
			Setup{Load: 1.5, Failovers: 1},
			func(s *Setup) { s.FailsFull = true },
		},
		{
			"an era that is ignored", false,
			Setup{Load: 1.5, Forgets: 1, Recovers: true},
			func(s *Setup) { s.IgnoresEras = true },
		},
	}
	for i := range faults {
		s := &faults[i].Setup
		if s.Nodes == 0 {
			s.Nodes = 10
		}
		s.Delay, s.Length = 2*time.Millisecond, 20*time.Second
		s.Limit, s.UserLimit = enforce.Limit{Rate: 1000, Burst: 500}, enforce.Limit{Rate: 200, Burst: 100}
	}
	return faults
}

// RunFaults fails unless the checker finds each fault in one of ten runs.
func RunFaults(t *testing.T, start func(*Node) Process) {
	t.Helper()
	for _, fault := range Faults() {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(10) {
				setup := fault.Setup
				setup.Seed = seed
				Run(t, setup, start)
				fault.Damage(&setup)
				w := Run(t, setup, start)
				if w.Lowest < -slack && (w.Unbacked > slack) == fault.OfLots {
					t.Logf("run %d: an ideal bucket lacks %.1f tokens; processes held %.1f that were not lent", seed,
						-w.Lowest, w.Unbacked)
					return
				}
			}
			t.Error("not seen")
		})
	}
}
