package leasesim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// entry is what the checker replays.
type entry struct {
	at     int64
	amount enforce.Tokens // admitted; below 0: credited
	isLoss bool           // the store lost its data
}

// slack is what rounding may cost an ideal bucket, in tokens.
const slack = 0.001

// IsAbove reports whether more was admitted than one bucket would have.
func (w *World) IsAbove() bool { return w.Lowest < -slack }

// check replays what was admitted through one bucket of each key, which must never lack a token: then no interval has more than its
// burst and what it earns.
func (w *World) check(t testing.TB) {
	t.Helper()
	for key, limit := range w.limits {
		lowest := w.replay(key, limit)
		if !w.isDamaged() && lowest < -slack {
			t.Errorf("%+v: an ideal bucket of %v lacks %.3f tokens", w.Setup, key, -lowest)
		}
		w.Lowest = min(w.Lowest, lowest)
	}
}

func (w *World) replay(key enforce.Key, limit enforce.Limit) (lowest float64) {
	log := w.log[key]
	slices.SortStableFunc(log, func(a, b entry) int { return cmp.Compare(a.at, b.at) }) // lots count from when they were found alive
	level, at := float64(limit.Burst), int64(began)
	for _, e := range log {
		level = min(float64(limit.Burst), level+limit.Rate*float64(e.at-at)/1e6)
		at = e.at
		if e.isLoss {
			level = float64(limit.Burst)
			continue
		}
		level -= float64(e.amount) / float64(enforce.Token)
		if e.amount < 0 {
			level = min(level, float64(limit.Burst))
		}
		lowest = min(lowest, level)
	}
	return lowest
}

// Hostile is a setup in which everything goes wrong that may.
func Hostile(seed uint64) Setup {
	r := rand.New(rand.NewPCG(seed, 2))
	rate := math.Exp(r.Float64()*5) * 10 // 10 to 1500
	s := Setup{
		Seed: seed, Nodes: 1 + r.IntN(30), Limit: enforce.Limit{Rate: rate, Burst: 1 + int64(rate*math.Exp(r.Float64()*4-2))},
		Load: 0.3 + 4*r.Float64(), Users: r.IntN(2) * r.IntN(40), Skew: r.Float64(), Largest: 1 + r.Int64N(3),
		Delay: time.Duration(1+r.IntN(50)) * time.Millisecond,
		Lost:  0.05, Drift: 0.0005, Kills: 0.1, Stops: 0.1, StepsBack: 0.1, Credits: 0.2,
		Forgets: 0.05 * float64(r.IntN(2)), Direct: 0.5 * r.Float64() * float64(r.IntN(2)),
		Suspends: 0.1 * float64(r.IntN(2)), Sets: 0.1 * float64(r.IntN(2)), Length: 20 * time.Second,
	}
	s.UserBurst = 15 // too small to be leased
	return s
}

// Fault damages a run. The run without it shows nothing.
type Fault struct {
	Name   string
	Setup  Setup
	Damage func(*Setup)
}

// Faults would each break the promise.
func Faults() []Fault {
	faults := []Fault{
		{"a bucket that fills up behind what is lent", Setup{Load: 0.3, Spike: 20}, func(s *Setup) {
			s.Break = func(state *enforce.State, _ *enforce.Ask) { state.Entries = "" }
		}},
		{"reports of another epoch", Setup{Load: 0.5, Spike: 10, Forgets: 2}, func(s *Setup) {
			s.Break = func(state *enforce.State, ask *enforce.Ask) { ask.Epoch = state.Epoch() }
		}},
		{"a holder without a wall clock", Setup{Nodes: 3, Load: 0.5, Spike: 20, Suspends: 1}, func(s *Setup) { s.NoWall = true }},
		{"a holder without a monotonic clock", Setup{Nodes: 3, Load: 0.5, Spike: 20, Stops: 1, Sets: 3}, func(s *Setup) { s.NoMono = true }},
	}
	for i := range faults {
		s := &faults[i].Setup
		if s.Nodes == 0 {
			s.Nodes = 10
		}
		s.Limit, s.Delay, s.Length = enforce.Limit{Rate: 1000, Burst: 500}, 2*time.Millisecond, 20*time.Second
	}
	return faults
}

// RunFaults wants the checker to see each fault in one of ten runs.
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
				if w := Run(t, setup, start); w.IsAbove() {
					t.Logf("run %d: an ideal bucket lacks %.1f tokens", seed, -w.Lowest)
					return
				}
			}
			t.Error("not seen")
		})
	}
}
