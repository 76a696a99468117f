package leasesim

import (
	"maps"
	"slices"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

// Node is a machine with its clocks; after a kill another process starts there.
type Node struct {
	*World
	ID int

	process Process
	known   map[rules.RuleID]enforce.Limit // the limits

	share     float64
	rate      float64 // of its clocks
	life      int     // counts kills, so that answers to the dead are dropped
	stoppedTo int64   // SIGSTOP, or suspended
	wakesAt   int64   // from being suspended
	suspended int64   // for how long, in all
	set       int64   // by how much its wall clock was set, in nanoseconds
}

// Clocks returns nanoseconds.
func (n *Node) Clocks() (mono, wall int64) {
	mono = int64(float64(n.now-n.suspended) * n.rate * 1000)
	wall = int64(float64(n.now)*n.rate*1000) + n.set
	switch {
	case n.NoMono:
		mono = wall
	case n.NoWall:
		wall = mono
	}
	return mono, wall
}

// Now is the true time in microseconds.
func (n *Node) Now() int64 { return n.now }

// Draw returns a random number below n.
func (n *Node) Draw(below int64) int64 { return n.random.Int64N(below) }

// SharedLimit returns the shared limit as this process knows it.
func (n *Node) SharedLimit() enforce.Limit { return n.known[SharedKey.Rule] }

// UserLimit returns the users' limit as this process knows it.
func (n *Node) UserLimit() enforce.Limit { return n.known[userRule] }

func (n *Node) hear(rule rules.RuleID, limit enforce.Limit) {
	if limit.Since > n.known[rule].Since {
		n.known[rule] = limit
	}
}

// Losses counts the buckets that the store lost; older leases are the one exception to the promise.
func (n *Node) Losses() int { return n.losses }

// LossOf is the number of a bucket's last loss.
func (n *Node) LossOf(key enforce.Key) int { return n.lost[key] }

// Life counts the processes on this machine.
func (n *Node) Life() int { return n.life }

// After calls do after d microseconds, or later if the process is stopped.
func (n *Node) After(d int64, do func()) {
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

// Call is a round trip: atStore runs even if the process was killed, then answered, perhaps without an answer.
func (n *Node) Call(atStore func(), answered func(isLost bool)) {
	n.Commands++
	life := n.life
	n.after(n.oneWay(), func() {
		atStore()
		if n.life != life {
			return
		}
		isLost, delay := n.random.Float64() < n.Lost, n.oneWay()
		if isLost {
			delay = 50_000
		}
		n.After(delay, func() { answered(isLost) })
	})
}

func (n *Node) begin() {
	n.known = maps.Clone(n.limits)
	n.process = n.start(n)
	n.After(0, n.arrive)
	if n.Kills > 0 {
		n.After(n.exponential(n.Kills), func() {
			n.life++
			n.begin()
		})
	}
	if n.life > 0 {
		return // what follows befalls the machine
	}
	n.every(n.Stops, func() {
		n.stoppedTo = max(n.stoppedTo, n.now+n.random.Int64N(3_000_000))
	})
	n.every(n.Suspends, func() {
		if n.stoppedTo <= n.now {
			length := n.random.Int64N(3_000_000)
			n.wakesAt, n.suspended = n.now+length, n.suspended+length
			n.stoppedTo = n.wakesAt
		}
	})
	n.every(n.Sets, func() {
		// A suspended machine whose wall clock is set hides the time from both clocks: the promise's exception.
		if n.wakesAt <= n.now {
			n.set += n.random.Int64N(4_000_000_000) - 2_000_000_000
		}
	})
}

func (n *Node) arrive() {
	rate := n.share * n.Load * n.Limit.Rate
	if n.Off > 0 {
		if into := n.now % (n.On + n.Off).Microseconds(); into >= n.On.Microseconds() {
			n.After((n.On+n.Off).Microseconds()-into, n.arrive)
			return
		}
		rate *= float64(n.On+n.Off) / float64(n.On)
	}
	if n.Spike > 0 && n.now/500_000%4 == 3 {
		rate *= n.Spike
	}
	mean := float64(1+n.Largest) / 2
	n.After(n.exponential(rate/mean), n.arrive)
	n.Checks++
	check := n.newCheck(n.known)
	offered := check
	offered.Tiers = slices.Clone(check.Tiers)
	n.ideal.take(&offered, n.now)
	if offered.Allowed {
		n.IdealPassed++
	}
	check.Mixed = n.random.Float64() < n.Direct
	n.process.Decide(check)
}

// Take lets the store decide a check.
func (n *Node) Take(check *enforce.BucketCheck) { n.take(check) }

// Lend lets the store answer a lease request.
func (n *Node) Lend(l *enforce.Lease) { n.lend(l) }

// Admit records what leases gave to checks, in millionths, at the time they were found alive.
func (n *Node) Admit(key enforce.Key, at, amount int64) {
	if amount > 0 {
		n.admit(key, at, enforce.Tokens(amount))
	}
}
