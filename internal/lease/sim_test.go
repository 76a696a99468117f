package lease

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// sim is a store and processes over virtual time. The processes are Buckets as in production, and the store is the reference
// of its scripts. The store's clock is the true time, in microseconds.
type sim struct {
	setup
	t         testing.TB
	random    *rand.Rand
	now       int64
	skewed    int64 // of the store's clock
	losses    int   // of the store's data
	events    events
	store     enforce.State
	ideal     enforce.State // one bucket without leases
	idealTook enforce.Tokens
	nodes     []*node
	log       []entry // what the checker replays
	asks      int
	checks    int
	scheduled int
	lowest    float64 // tokens of an ideal bucket that admitted the same
}

// setup says what happens. Rates are per second, and each process does what it does on its own.
type setup struct {
	seed      uint64
	nodes     int
	limit     enforce.Limit
	load      float64       // of the limit's rate, Poisson
	on, off   time.Duration // arrivals come for on, then not for off
	spike     float64       // multiplies the load for half of every two seconds
	skew      float64       // of the processes' shares, Zipf
	largest   int64         // the most that a check costs
	delay     time.Duration // most, one way
	lost      float64       // share of answers
	drift     float64       // of the processes' clocks, most
	kills     float64
	stops     float64 // SIGSTOP, for up to 3 s
	stepsBack float64 // of the store's clock, in all
	forgets   float64 // the store loses its data, in all
	credits   float64 // in all
	direct    float64 // share of checks that take at the store
	length    time.Duration
	isBroken  func(*enforce.State, *enforce.Ask) // damages the store before each ask, to see that the checker sees it
}

type entry struct {
	at     int64
	amount enforce.Tokens // admitted; below 0: credited
	isLoss bool           // the store lost its data
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

func (s *sim) after(d int64, do func()) {
	s.scheduled++
	heap.Push(&s.events, event{s.now + d, s.scheduled, do})
}

// offer is what one bucket would have done with a check.
func (s *sim) offer(cost enforce.Tokens) {
	s.ideal.Settle(s.limit, 0, s.now)
	if s.ideal.Holds(cost) {
		s.ideal.Level.Micros -= cost
		s.idealTook += cost
	}
}

// node is a process with its clocks.
type node struct {
	*sim
	share     float64
	rate      float64 // of its clocks
	bucket    *Bucket
	waiting   []enforce.Tokens
	lentAfter map[*lot]int // how many losses
	life      int          // counts kills, so that answers to the dead are dropped
	stoppedTo int64        // SIGSTOP
}

func (n *node) clock() Instant {
	local := int64(float64(n.now) * n.rate * 1000)
	return Instant{local, local}
}

// act does something when the process is not stopped.
func (n *node) act(d int64, do func()) {
	life := n.life
	var try func()
	try = func() {
		switch {
		case n.life != life:
		case n.stoppedTo > n.now:
			n.after(n.stoppedTo-n.now, try)
		default:
			do()
		}
	}
	n.after(d, try)
}

func (s *sim) exponential(rate float64) int64 {
	return int64(min(s.random.ExpFloat64()/rate, 1e6) * 1e6)
}

func (s *sim) oneWay() int64 { return 50 + s.random.Int64N(max(1, s.delay.Microseconds())) }

// settle settles the store by its clock, which may have stepped back.
func (s *sim) settle() { s.store.Settle(s.limit, 0, s.now+s.skewed) }

// arrive is one check, and plans the next.
func (n *node) arrive() {
	rate := n.share * n.load * n.limit.Rate
	if n.off > 0 {
		if into := n.now % (n.on + n.off).Microseconds(); into >= n.on.Microseconds() {
			n.act((n.on+n.off).Microseconds()-into, n.arrive)
			return
		}
		rate *= float64(n.on+n.off) / float64(n.on)
	}
	if n.spike > 0 && n.now/500_000%4 == 3 {
		rate *= n.spike
	}
	mean := float64(1+n.largest) / 2
	n.act(n.exponential(rate/mean), n.arrive)
	cost := enforce.Tokens(1+n.random.Int64N(n.largest)) * enforce.Token
	n.checks++
	n.offer(cost)
	if n.random.Float64() < n.direct {
		n.after(n.oneWay(), func() {
			n.settle()
			if n.store.Holds(cost) {
				n.store.Level.Micros -= cost
				n.admit(cost)
			}
		})
		n.asks++
		return
	}
	n.decide(cost)
}

func (s *sim) admit(cost enforce.Tokens) { s.log = append(s.log, entry{at: s.now, amount: cost}) }

// spend admits a check. Tokens that the store has lent before it lost its data are the one exception to the promise.
func (n *node) spend(taken *Taken) {
	var amount enforce.Tokens
	for _, p := range taken.parts[:taken.n] {
		if n.lentAfter[p.lot] == n.losses {
			amount += enforce.Tokens(p.amount)
		}
	}
	taken.Spend()
	n.admit(amount)
}

func (n *node) decide(cost enforce.Tokens) {
	var taken Taken
	now := n.clock()
	n.bucket.Demand(cost)
	switch {
	case n.bucket.Take(now, cost, &taken):
		n.spend(&taken)
	case n.bucket.IsPaused(now):
	default:
		n.waiting = append(n.waiting, cost)
		n.ask()
	}
}

// ask asks the store if there is reason to.
func (n *node) ask() {
	var need, waiting enforce.Tokens
	for i, cost := range n.waiting {
		if i == 0 {
			need = cost
		}
		waiting += cost
	}
	sent := n.clock()
	ask, ok := n.bucket.Ask(sent, need, waiting)
	if !ok {
		return
	}
	n.asks++
	life := n.life
	n.after(n.oneWay(), func() {
		n.settle()
		if n.isBroken != nil {
			n.isBroken(&n.store, &ask)
		}
		grant := n.store.Lease(&ask)
		if n.life != life {
			return
		}
		if n.random.Float64() < n.lost {
			n.act(50_000, func() {
				n.bucket.Lost()
				n.waiting = nil
			})
			return
		}
		losses := n.losses
		n.act(n.oneWay(), func() { n.answered(sent, &grant, losses) })
	})
}

func (n *node) answered(sent Instant, grant *enforce.Grant, losses int) {
	now := n.clock()
	n.bucket.Answered(sent, now, grant)
	if grant.Amount > 0 {
		lots := *n.bucket.lots.Load()
		n.lentAfter[lots[len(lots)-1]] = losses
	}
	waiting := n.waiting
	n.waiting = nil
	for i, cost := range waiting {
		var taken Taken
		if n.bucket.Take(now, cost, &taken) {
			n.spend(&taken)
		} else if !grant.Refused && !n.bucket.IsPaused(now) {
			n.waiting = append(n.waiting, waiting[i:]...)
			break
		}
	}
	if len(n.waiting) > 0 {
		n.ask()
	}
}

func (n *node) tick() {
	n.act(10_000, n.tick)
	n.ask()
}

func (n *node) start() {
	n.bucket, n.waiting, n.lentAfter = NewBucket(n.limit, n.clock()), nil, map[*lot]int{}
	n.act(n.random.Int64N(10_000), n.tick)
	n.act(0, n.arrive)
	if n.kills > 0 {
		n.act(n.exponential(n.kills), func() {
			n.life++
			n.start()
		})
	}
	if n.stops > 0 {
		var stop func()
		stop = func() {
			n.stoppedTo = n.now + n.random.Int64N(3_000_000)
			n.act(n.exponential(n.stops), stop)
		}
		n.act(n.exponential(n.stops), stop)
	}
}

// run plays a setup, checks it, and returns the share of what one bucket would have admitted.
func run(t testing.TB, with setup) (s *sim, share float64) {
	t.Helper()
	with.largest = max(1, with.largest)
	s = &sim{setup: with, t: t, random: rand.New(rand.NewPCG(with.seed, 1)), now: 1_000_000_000}
	s.store = enforce.NewState(s.limit, s.now)
	s.ideal = s.store
	var sum float64
	for i := range s.setup.nodes {
		n := &node{sim: s, share: math.Pow(float64(i+1), -s.skew), rate: 1 + s.drift*(2*s.random.Float64()-1)}
		sum += n.share
		s.nodes = append(s.nodes, n)
	}
	for _, n := range s.nodes {
		n.share /= sum
		n.start()
	}
	s.every(s.credits, func() {
		s.settle()
		amount := enforce.Tokens(s.random.Int64N(s.limit.Burst)+1) * enforce.Token
		s.store.Credit(amount)
		s.log = append(s.log, entry{at: s.now, amount: -amount})
	})
	s.every(s.stepsBack, func() {
		s.skewed -= s.random.Int64N(1_000_000)
	})
	s.every(s.forgets, func() {
		s.settle()
		s.log = append(s.log, entry{at: s.now, isLoss: true})
		s.losses++
		s.store = enforce.NewState(s.limit, s.now+s.skewed)
	})
	for end := s.now + s.length.Microseconds(); ; {
		e := heap.Pop(&s.events).(event)
		if e.at > end {
			break
		}
		s.now = max(s.now, e.at)
		e.do()
	}
	return s, s.check()
}

func (s *sim) every(rate float64, do func()) {
	if rate > 0 {
		s.after(s.exponential(rate), func() {
			do()
			s.every(rate, do)
		})
	}
}

// check replays what was admitted through one bucket, which must never lack a token: then no interval has more than its burst and
// what it earns.
func (s *sim) check() (admitted float64) {
	s.t.Helper()
	level, at := float64(s.limit.Burst), int64(1_000_000_000)
	lowest := level
	for _, e := range s.log {
		level = min(float64(s.limit.Burst), level+s.limit.Rate*float64(e.at-at)/1e6)
		at = e.at
		if e.isLoss {
			level = float64(s.limit.Burst)
			continue
		}
		level -= float64(e.amount) / float64(enforce.Token)
		if e.amount < 0 {
			level = min(level, float64(s.limit.Burst))
		} else {
			admitted += float64(e.amount) / float64(enforce.Token)
		}
		lowest = min(lowest, level)
	}
	if s.isBroken == nil && lowest < -0.001 {
		s.t.Errorf("%+v: an ideal bucket lacks %.3f tokens", s.setup, -lowest)
	}
	s.lowest = lowest
	return admitted / (float64(s.idealTook) / float64(enforce.Token))
}

// TestModel prints what leases admit beside one bucket, and what they cost.
func TestModel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		nodes   int
		rate    float64
		load    float64
		on, off time.Duration
		least   float64
	}{
		{10, 1e4, 0.95, 0, 0, 0.999},
		{100, 1e4, 0.95, 0, 0, 0.999},
		{100, 1e4, 2, 0, 0, 0.98},
		{100, 1e4, 1, 500 * time.Millisecond, time.Second, 0.9},
		{1, 1e3, 2, 0, 0, 0.98},
	} {
		t.Run(fmt.Sprintf("%d nodes, %.0f/s, load %g", c.nodes, c.rate, c.load), func(t *testing.T) {
			t.Parallel()
			s, share := run(t, setup{
				seed: 1, nodes: c.nodes, limit: enforce.Limit{Rate: c.rate, Burst: int64(c.rate)}, load: c.load, skew: 0.8,
				on: c.on, off: c.off, delay: 2 * time.Millisecond, length: 20 * time.Second,
			})
			t.Logf("admitted %.2f %% of what one bucket would have, %.3f asks per check", 100*share, float64(s.asks)/float64(s.checks))
			if share < c.least {
				t.Errorf("admitted %.2f %%, want %.2f %%", 100*share, 100*c.least)
			}
		})
	}
}

// hostile is a setup in which everything goes wrong that may.
func hostile(seed uint64) setup {
	r := rand.New(rand.NewPCG(seed, 2))
	rate := math.Exp(r.Float64()*5) * 10 // 10 to 1500
	return setup{
		seed: seed, nodes: 1 + r.IntN(30), limit: enforce.Limit{Rate: rate, Burst: 1 + int64(rate*math.Exp(r.Float64()*4-2))},
		load: 0.3 + 4*r.Float64(), skew: r.Float64(), largest: 1 + r.Int64N(3), delay: time.Duration(1+r.IntN(50)) * time.Millisecond,
		lost: 0.05, drift: 0.0005, kills: 0.1, stops: 0.1, stepsBack: 0.1, credits: 0.2, forgets: 0.05 * float64(r.IntN(2)), direct: 0.5 * r.Float64() * float64(r.IntN(2)),
		length: 20 * time.Second,
	}
}

func TestHostile(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		s, share := run(t, hostile(seed))
		if testing.Verbose() && seed%10 == 0 {
			t.Logf("seed %d: %d checks, admitted %.1f %%", seed, s.checks, 100*share)
		}
	}
}

// TestTheCheckerSeesFaults: what would break the promise shows, in runs that show nothing without it.
func TestTheCheckerSeesFaults(t *testing.T) {
	t.Parallel()
	limit := enforce.Limit{Rate: 1000, Burst: 500}
	for name, c := range map[string]struct {
		setup
		isBroken func(*enforce.State, *enforce.Ask)
	}{
		"a bucket that fills up behind what is lent": {
			setup{load: 0.3, spike: 20},
			func(s *enforce.State, _ *enforce.Ask) { s.Entries = "" },
		},
		"reports of another epoch": {
			setup{load: 0.5, spike: 10, forgets: 2},
			func(s *enforce.State, ask *enforce.Ask) { ask.Epoch = s.Epoch() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := 0
			for seed := range uint64(10) {
				c.seed, c.nodes, c.limit, c.delay, c.length = seed, 10, limit, 2*time.Millisecond, 20*time.Second
				run(t, c.setup)
				broken := c.setup
				broken.isBroken = c.isBroken
				if s, _ := run(t, broken); s.lowest < -0.001 {
					seen++
				}
			}
			if t.Logf("seen in %d of 10 runs", seen); seen == 0 {
				t.Error("not seen")
			}
		})
	}
}
