package lease

import (
	"cmp"
	"container/heap"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

// sim is a store and processes over virtual time. The processes are Buckets as in production, but for the goroutine that looks
// after them, and the store is the reference of its scripts. The store's clock is the true time, in microseconds.
type sim struct {
	setup
	t         testing.TB
	random    *rand.Rand
	now       int64
	skewed    int64 // of the store's clock
	losses    int   // of the store's data
	events    events
	store     states
	ideal     states                  // buckets without leases
	idealTook int                     // checks
	admitted  int                     // checks
	log       map[enforce.Key][]entry // what the checker replays
	limits    map[enforce.Key]enforce.Limit
	nodes     []*node
	commands  int
	checks    int
	scheduled int
	lowest    float64 // tokens of ideal buckets that admitted the same
}

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
	users     int     // half of the checks also take from the bucket of one of them, which is too small to be leased
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

// node is a process with its clocks.
type node struct {
	*sim
	share     float64
	rate      float64 // of its clocks
	buckets   *Buckets
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

var sharedKey = enforce.Key{Tenant: 1, Rule: 1}

// newCheck draws a check.
func (s *sim) newCheck() enforce.BucketCheck {
	check := enforce.BucketCheck{Cost: enforce.Tokens(1+s.random.Int64N(s.largest)) * enforce.Token}
	keys := []enforce.Key{sharedKey}
	if s.users > 0 && s.random.IntN(2) == 0 {
		keys = append(keys, enforce.Key{Tenant: 1, Rule: 2, Subject: fmt.Sprint(s.random.IntN(s.users))})
	}
	for _, key := range keys {
		limit := s.limit
		if key.Rule == 2 {
			limit = enforce.Limit{Rate: s.limit.Rate / float64(s.users), Burst: max(s.largest, leastBurst-1)}
		}
		s.limits[key] = limit
		check.Tiers = append(check.Tiers, enforce.Tier{Key: key, Limit: limit, Cost: check.Cost})
	}
	return check
}

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
	n.checks++
	checks := []enforce.BucketCheck{n.newCheck()}
	offered := checks[0]
	offered.Tiers = slices.Clone(offered.Tiers)
	n.ideal.take(&offered, n.now)
	if offered.Allowed {
		n.idealTook++
	}
	checks[0].Mixed = n.random.Float64() < n.direct // such checks go to the store
	n.decide(checks)
}

// spent returns what was spent of lots that the store had lent since it lost its data so often. Tokens that it lent before are the
// one exception to the promise.
func (n *node) spent(losses int) (sum int64) {
	if e := (*n.buckets.held.Load())[sharedKey]; e != nil && e.lots.Load() != nil {
		for _, l := range *e.lots.Load() {
			if n.lentAfter[l] == losses {
				sum += l.spent.Load()
			}
		}
	}
	return sum
}

// taken is spent for what a check took that the store has not answered.
func (n *node) taken(rest *sent, losses int) (sum int64) {
	for i := range rest.splits {
		for j := range rest.splits[i].taken {
			for _, p := range rest.splits[i].taken[j].parts[:rest.splits[i].taken[j].n] {
				if rest.splits[i].of[j] != nil && n.lentAfter[p.lot] == losses {
					sum += p.amount
				}
			}
		}
	}
	return sum
}

// admit adds to the log what lots gave to a check when it was found that they were alive.
func (n *node) admit(at, amount int64) {
	if amount > 0 {
		n.log[sharedKey] = append(n.log[sharedKey], entry{at: at, amount: enforce.Tokens(amount)})
	}
}

func (n *node) decide(checks []enforce.BucketCheck) {
	began, losses, now, held := n.now, n.losses, n.clock(), *n.buckets.held.Load()
	before := n.spent(losses)
	rest := n.buckets.begin(checks, held, now)
	n.admit(began, n.spent(losses)-before)
	if rest == nil {
		n.admitted++
		return
	}
	n.commands++
	life := n.life
	n.after(n.oneWay(), func() {
		for i := range rest.checks {
			check := &rest.checks[i]
			n.store.take(check, n.now+n.skewed)
			for j := range check.Tiers {
				if check.Allowed && check.Takes(j) {
					key := check.Tiers[j].Key
					n.log[key] = append(n.log[key], entry{at: n.now, amount: check.Cost})
				}
			}
		}
		if n.life != life {
			return
		}
		var err error
		delay := n.oneWay()
		if n.random.Float64() < n.lost {
			err, delay = context.DeadlineExceeded, 50_000
		}
		n.act(delay, func() {
			taken := n.taken(rest, losses)
			n.buckets.end(checks, rest, *n.buckets.held.Load(), err, n.clock())
			if err != nil || checks[0].Allowed {
				n.admit(began, taken)
			}
			if err == nil && checks[0].Allowed {
				n.admitted++
			}
		})
	})
}

// tick looks after the buckets as Buckets.run does.
func (n *node) tick() {
	n.act(int64(tickEvery/time.Microsecond), n.tick)
	n.buckets.admit()
	for tenant, calls := range n.buckets.collect() {
		n.buckets.sending.Store(tenant, true)
		for _, call := range calls {
			n.ask(call)
		}
	}
	n.buckets.leave()
}

func (n *node) ask(call *asking) {
	n.commands++
	life, buckets := n.life, n.buckets
	answer := func(delay, losses int64) {
		n.act(delay, func() {
			buckets.answered(call, n.clock())
			buckets.sending.Clear()
			lots := call.entries[0].lots.Load()
			if lots == nil {
				return
			}
			for _, l := range *lots {
				if _, known := n.lentAfter[l]; !known {
					n.lentAfter[l] = int(losses)
				}
			}
		})
	}
	n.after(n.oneWay(), func() {
		l := &call.leases[0]
		state := n.store[l.Key]
		if state == nil {
			fresh := enforce.NewState(l.Limit, n.now+n.skewed)
			state = &fresh
			n.store[l.Key] = state
		}
		state.Settle(l.Limit, 0, n.now+n.skewed)
		if n.isBroken != nil {
			n.isBroken(state, &l.Ask)
		}
		l.Grant = state.Lease(&l.Ask)
		switch {
		case n.life != life:
		case n.random.Float64() < n.lost:
			answer(50_000, 0)
		default:
			l.Answered = true
			answer(n.oneWay(), int64(n.losses))
		}
	})
}

func (n *node) start() {
	n.buckets, n.lentAfter = newBuckets(nil, n.clock, slog.New(slog.DiscardHandler), 16), map[*lot]int{}
	n.buckets.TurnOn(true)
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
	s.store, s.ideal, s.log, s.limits = states{}, states{}, map[enforce.Key][]entry{}, map[enforce.Key]enforce.Limit{}
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
		if shared := s.store[sharedKey]; shared != nil {
			shared.Settle(s.limit, 0, s.now+s.skewed)
			amount := enforce.Tokens(s.random.Int64N(s.limit.Burst)+1) * enforce.Token
			shared.Credit(amount)
			s.log[sharedKey] = append(s.log[sharedKey], entry{at: s.now, amount: -amount})
		}
	})
	s.every(s.stepsBack, func() {
		s.skewed -= s.random.Int64N(1_000_000)
	})
	s.every(s.forgets, func() {
		for key := range s.limits {
			s.log[key] = append(s.log[key], entry{at: s.now, isLoss: true})
		}
		s.losses++
		clear(s.store)
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

// check replays what was admitted through one bucket of each key, which must never lack a token: then no interval has more than its
// burst and what it earns.
func (s *sim) check() (share float64) {
	s.t.Helper()
	for key, limit := range s.limits {
		lowest := s.replay(key, limit)
		if s.isBroken == nil && lowest < -0.001 {
			s.t.Errorf("%+v: an ideal bucket of %v lacks %.3f tokens", s.setup, key, -lowest)
		}
		s.lowest = min(s.lowest, lowest)
	}
	return float64(s.admitted) / float64(s.idealTook)
}

func (s *sim) replay(key enforce.Key, limit enforce.Limit) (lowest float64) {
	log := s.log[key]
	slices.SortStableFunc(log, func(a, b entry) int { return cmp.Compare(a.at, b.at) }) // lots count from when they were found alive
	level, at := float64(limit.Burst), int64(1_000_000_000)
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
			s, share := run(t, setup{
				seed: 1, nodes: c.nodes, limit: enforce.Limit{Rate: c.rate, Burst: int64(c.rate)}, load: c.load, skew: 0.8,
				on: c.on, off: c.off, users: c.users, delay: 2 * time.Millisecond, length: 20 * time.Second,
			})
			t.Logf("admitted %.2f %% of what one bucket would have, %.3f commands per check", 100*share, float64(s.commands)/float64(s.checks))
			if share < c.least {
				t.Errorf("admitted %.2f %%, want %.2f %%", 100*share, 100*c.least)
			}
			if got := float64(s.commands) / float64(s.checks); got > c.most {
				t.Errorf("%.3f commands per check, want at most %g", got, c.most)
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
		load: 0.3 + 4*r.Float64(), users: r.IntN(2) * r.IntN(40), skew: r.Float64(), largest: 1 + r.Int64N(3), delay: time.Duration(1+r.IntN(50)) * time.Millisecond,
		lost: 0.05, drift: 0.0005, kills: 0.1, stops: 0.1, stepsBack: 0.1, credits: 0.2, forgets: 0.05 * float64(r.IntN(2)), direct: 0.5 * r.Float64() * float64(r.IntN(2)),
		length: 20 * time.Second,
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
		s, share := run(t, setup{
			seed: 1, nodes: 1000, limit: enforce.Limit{Rate: 1e5, Burst: 1e5}, load: c.load, skew: 0.8,
			delay: 2 * time.Millisecond, length: 10 * time.Second,
		})
		t.Logf("1000 nodes, load %g: admitted %.2f %% of what one bucket would have, %.3f commands per check",
			c.load, 100*share, float64(s.commands)/float64(s.checks))
		if share < c.least {
			t.Errorf("admitted %.2f %%, want %.2f %%", 100*share, 100*c.least)
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
