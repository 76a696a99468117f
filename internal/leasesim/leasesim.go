// Package leasesim plays processes that spend leased tokens over virtual time, and checks that in no interval they admit more than
// one bucket would. It is for tests: the processes run the code of production, and the store is the reference of its scripts.
//
// Everything that may go wrong does, as a Setup says: answers are lost, processes are killed and stopped, machines are suspended,
// clocks drift and are set, and the store loses its data. A run depends on its seed alone.
package leasesim

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// Setup says what happens. Rates are per second, and each process does what it does on its own.
type Setup struct {
	Seed      uint64
	Nodes     int
	Limit     enforce.Limit
	Load      float64       // of the limit's rate, Poisson
	On, Off   time.Duration // arrivals come for On, then not for Off
	Spike     float64       // multiplies the load for half of every two seconds
	Skew      float64       // of the processes' shares, Zipf
	Largest   int64         // the most that a check costs
	Delay     time.Duration // most, one way
	Lost      float64       // share of answers
	Drift     float64       // of the processes' clocks, most
	Kills     float64
	Stops     float64 // SIGSTOP, for up to 3 s
	Suspends  float64 // of the machine, for up to 3 s, in which its monotonic clock stands still
	Sets      float64 // of the machine's wall clock, by up to 2 s
	StepsBack float64 // of the store's clock, in all
	Forgets   float64 // the store loses its data, in all
	Credits   float64 // in all
	Direct    float64 // share of checks that the store decides alone
	Users     int     // half of the checks also take from the bucket of one of them, whose burst is UserBurst
	UserBurst int64
	Length    time.Duration

	// What damages a run, to see that the checker sees it.

	// Break damages the store before each ask.
	Break func(*enforce.State, *enforce.Ask)
	// NoMono and NoWall keep one of a process's clocks from it: it gets the other twice.
	NoMono, NoWall bool
}

func (s *Setup) isDamaged() bool { return s.Break != nil || s.NoMono || s.NoWall }

// Process is the code under test in one process, with its background.
type Process interface {
	// Decide decides a check, which takes from the bucket of SharedKey. The store decides alone if it is Mixed.
	Decide(check enforce.BucketCheck)
}

// SharedKey is of the bucket that all checks take from.
var SharedKey = enforce.Key{Tenant: 1, Rule: 1}

// World is a store and processes. The store's clock is the true time, in microseconds, unless it steps back.
type World struct {
	Setup
	// Checks counts what came, Commands the round trips to the store, Passed the checks that were allowed, and IdealPassed those that
	// a bucket without leases would have allowed.
	Checks, Commands, Passed, IdealPassed int
	// Lowest is what an ideal bucket that admitted the same would have had at the worst moment, in tokens.
	Lowest float64

	start     func(*Node) Process
	random    *rand.Rand
	now       int64
	skewed    int64 // of the store's clock
	losses    int   // of the store's data
	events    events
	scheduled int
	store     states
	ideal     states
	log       map[enforce.Key][]entry
	limits    map[enforce.Key]enforce.Limit
}

// began is when a run begins.
const began = 1_000_000_000

// states are the buckets of a store.
type states map[enforce.Key]*enforce.State

// take decides a check.
func (s states) take(check *enforce.BucketCheck, now int64) {
	held, state := make([]*enforce.State, len(check.Tiers)), make([]enforce.State, len(check.Tiers))
	for i := range check.Tiers {
		held[i] = s[check.Tiers[i].Key]
	}
	taken := check.TakeFrom(held, state, now)
	for i := range check.Tiers {
		if taken && held[i] == nil && check.Takes(i) {
			s[check.Tiers[i].Key] = &state[i]
		}
	}
}

type event struct {
	at  int64
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (w *World) after(d int64, do func()) {
	w.scheduled++
	heap.Push(&w.events, event{w.now + d, w.scheduled, do})
}

// every does something at a rate.
func (w *World) every(rate float64, do func()) {
	if rate > 0 {
		w.after(w.exponential(rate), func() {
			do()
			w.every(rate, do)
		})
	}
}

func (w *World) exponential(rate float64) int64 {
	return int64(min(w.random.ExpFloat64()/rate, 1e6) * 1e6)
}

func (w *World) oneWay() int64 { return 50 + w.random.Int64N(max(1, w.Delay.Microseconds())) }

// Run plays a setup with processes that start starts, and checks it.
func Run(t testing.TB, setup Setup, start func(*Node) Process) *World {
	t.Helper()
	setup.Largest = max(1, setup.Largest)
	w := &World{Setup: setup, start: start, random: rand.New(rand.NewPCG(setup.Seed, 1)), now: began}
	w.store, w.ideal, w.log, w.limits = states{}, states{}, map[enforce.Key][]entry{}, map[enforce.Key]enforce.Limit{}
	nodes := make([]*Node, w.Nodes)
	var sum float64
	for i := range nodes {
		nodes[i] = &Node{World: w, ID: i, share: math.Pow(float64(i+1), -w.Skew), rate: 1 + w.Drift*(2*w.random.Float64()-1)}
		sum += nodes[i].share
	}
	for _, n := range nodes {
		n.share /= sum
		n.begin()
	}
	w.every(w.Credits, func() {
		if shared := w.store[SharedKey]; shared != nil {
			shared.Settle(w.Limit, 0, w.now+w.skewed)
			amount := enforce.Tokens(w.random.Int64N(w.Limit.Burst)+1) * enforce.Token
			shared.Credit(amount)
			w.log[SharedKey] = append(w.log[SharedKey], entry{at: w.now, amount: -amount})
		}
	})
	w.every(w.StepsBack, func() {
		w.skewed -= w.random.Int64N(1_000_000)
	})
	w.every(w.Forgets, func() {
		for key := range w.limits {
			w.log[key] = append(w.log[key], entry{at: w.now, isLoss: true})
		}
		w.losses++
		clear(w.store)
	})
	for end := w.now + w.Length.Microseconds(); ; {
		e := heap.Pop(&w.events).(event)
		if e.at > end {
			break
		}
		w.now = max(w.now, e.at)
		e.do()
	}
	w.check(t)
	return w
}

// newCheck draws a check.
func (w *World) newCheck() enforce.BucketCheck {
	check := enforce.BucketCheck{Cost: enforce.Tokens(1+w.random.Int64N(w.Largest)) * enforce.Token}
	keys := []enforce.Key{SharedKey}
	if w.Users > 0 && w.random.IntN(2) == 0 {
		keys = append(keys, enforce.Key{Tenant: 1, Rule: 2, Subject: fmt.Sprint(w.random.IntN(w.Users))})
	}
	for _, key := range keys {
		limit := w.Limit
		if key.Rule == 2 {
			limit = enforce.Limit{Rate: w.Limit.Rate / float64(w.Users), Burst: w.UserBurst}
		}
		w.limits[key] = limit
		check.Tiers = append(check.Tiers, enforce.Tier{Key: key, Limit: limit, Cost: check.Cost})
	}
	return check
}

// Share is what passed of what one bucket would have let pass.
func (w *World) Share() float64 { return float64(w.Passed) / float64(w.IdealPassed) }

// PerCheck is how many round trips to the store a check cost.
func (w *World) PerCheck() float64 { return float64(w.Commands) / float64(w.Checks) }
