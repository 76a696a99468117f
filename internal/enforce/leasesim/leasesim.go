// Package leasesim simulates processes that spend leased tokens, in virtual time, and checks that no interval admits
// more than one bucket would.
//
// A Setup turns on faults of answers, processes, machines, clocks and the store. A run depends on its seed alone.
package leasesim

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// Setup describes a run, with rates per second and process.
type Setup struct {
	Seed     uint64
	Nodes    int
	Limit    enforce.Limit
	Load     float64       // of the limit's rate, Poisson
	On, Off  time.Duration // arrivals come for On, then not for Off
	Spike    float64       // multiplies the load for half of every two seconds
	Skew     float64       // of the processes' shares, Zipf
	Largest  int64         // the most that a check costs
	Delay    time.Duration // most, one way
	Lost     float64       // share of answers
	Drift    float64       // of the processes' clocks, most
	Kills    float64
	Stops    float64 // SIGSTOP, for up to 3 s
	Suspends float64 // of the machine, for up to 3 s, in which its monotonic clock stands still
	Sets     float64 // of the machine's wall clock, by up to 2 s
	Direct   float64 // share of checks that the store decides alone
	Length   time.Duration

	Users     int
	UserLimit enforce.Limit

	StepsBack float64 // of the store's clock
	Forgets   float64 // it loses its data
	Recovers  bool    // after which buckets go on from their checkpoints
	Failovers float64
	Credits   float64 // resets and negative ones included
	Reserves  float64 // settled above or below the estimate
	Edits     float64 // of a limit, by up to a factor of e

	Break func(enforce.Key, *enforce.State, *enforce.Ask)
	// RefundsTwice gives back twice; FailsFull fills buckets in a failover, IgnoresEras after a loss.
	RefundsTwice, FailsFull, IgnoresEras bool
	NoMono, NoWall                       bool
}

func (s *Setup) isDamaged() bool {
	return s.Break != nil || s.RefundsTwice || s.FailsFull || s.IgnoresEras || s.NoMono || s.NoWall
}

// Process is the code under test in one process, with its background.
type Process interface {
	// Decide decides a check of SharedKey's bucket and perhaps a user's; the store alone if Mixed.
	Decide(check enforce.BucketCheck)
	Held(key enforce.Key) int64
}

// SharedKey is the bucket of all checks.
var SharedKey = enforce.Key{Tenant: 1, Rule: 1}

const userRule rules.RuleID = 2

// UserKey has the user's id as subject.
func UserKey(user int) enforce.Key {
	return enforce.Key{Tenant: SharedKey.Tenant, Rule: userRule, Subject: strconv.Itoa(user)}
}

// World is a store with its processes; the store's clock is true, in µs, unless it steps back.
type World struct {
	Setup
	// Commands are round trips to the store, and IdealPassed the checks that pass without leases.
	Checks, Commands, Passed, IdealPassed int
	Lowest                                float64
	Unbacked                              float64
	// Regained is the most that a recovery gave a bucket beyond 2 % of its limit, takes since its checkpoint, and lent
	// tokens.
	Regained float64

	start     func(*Node) Process
	random    *rand.Rand
	now       int64
	events    events
	scheduled int
	nodes     []*Node
	limits    map[rules.RuleID]enforce.Limit // in force
	ideal     states
	log       map[enforce.Key][]entry

	store     states
	skewed    int64 // of the store's clock
	steadyAt  int64 // until when it jumps ahead no more
	lent      map[enforce.Key]enforce.Tokens
	losses    int // of buckets
	lost      map[enforce.Key]int
	failovers int
	restored  map[enforce.Key]int64 // until when processes hold what an older state does not know

	checkpoints states
	taken, out  map[enforce.Key]enforce.Tokens // since checkpoints were last written, and lent at that time
}

const began = 1_000_000_000

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

func (w *World) factor() float64 { return math.Exp(2*w.random.Float64() - 1) }

func (w *World) oneWay() int64 { return 50 + w.random.Int64N(max(1, w.Delay.Microseconds())) }

// Run simulates a setup, and checks it.
func Run(t testing.TB, setup Setup, start func(*Node) Process) *World {
	t.Helper()
	setup.Largest = max(1, setup.Largest)
	w := &World{
		Setup: setup, start: start, random: rand.New(rand.NewPCG(setup.Seed, 1)), now: began,
		limits: map[rules.RuleID]enforce.Limit{SharedKey.Rule: setup.Limit, userRule: setup.UserLimit},
		ideal:  states{}, log: map[enforce.Key][]entry{},
		store: states{}, lent: map[enforce.Key]enforce.Tokens{}, lost: map[enforce.Key]int{},
		restored: map[enforce.Key]int64{}, checkpoints: states{}, taken: map[enforce.Key]enforce.Tokens{},
		out: map[enforce.Key]enforce.Tokens{},
	}
	var sum float64
	for i := range w.Nodes {
		n := &Node{World: w, ID: i, share: math.Pow(float64(i+1), -w.Skew), rate: 1 + w.Drift*(2*w.random.Float64()-1)}
		w.nodes = append(w.nodes, n)
		sum += n.share
	}
	for _, n := range w.nodes {
		n.share /= sum
		n.begin()
	}
	w.every(w.StepsBack, func() { w.skewed -= w.random.Int64N(1_000_000) })
	w.every(w.Forgets, w.forget)
	w.every(w.Failovers, w.failOver)
	w.every(w.Credits, w.credit)
	w.every(w.Reserves, w.reserve)
	w.every(w.Edits, w.edit)
	w.checkpoint()
	w.compare()
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

func (w *World) tiers(limits map[rules.RuleID]enforce.Limit) []enforce.Tier {
	tiers := []enforce.Tier{{Key: SharedKey, Limit: limits[SharedKey.Rule]}}
	if w.Users > 0 && w.random.IntN(2) == 0 {
		tiers = append(tiers, enforce.Tier{Key: UserKey(w.random.IntN(w.Users)), Limit: limits[userRule]})
	}
	return tiers
}

func (w *World) newCheck(limits map[rules.RuleID]enforce.Limit) enforce.BucketCheck {
	check := enforce.BucketCheck{
		Cost:  enforce.Tokens(1+w.random.Int64N(w.Largest)) * enforce.Token,
		Tiers: w.tiers(limits),
	}
	for i := range check.Tiers {
		check.Tiers[i].Cost = check.Cost
	}
	return check
}

// Share is of one bucket's admissions.
func (w *World) Share() float64 { return float64(w.Passed) / float64(w.IdealPassed) }

// PerCheck is the number of round trips per check.
func (w *World) PerCheck() float64 { return float64(w.Commands) / float64(w.Checks) }
