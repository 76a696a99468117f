package lease

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/enforce/lend"
	"github.com/sluicegate/sluice/internal/rules"
)

type crowd struct {
	buckets *Buckets
	store   map[enforce.Key]*enforce.State
	now     int64 // µs

	checks, missed, renewed, scripts int
}

func (c *crowd) clock() lend.Instant { return lend.Instant{Mono: c.now * 1000, Wall: c.now * 1000} }

func (c *crowd) state(key enforce.Key, limit enforce.Limit) *enforce.State {
	s := c.store[key]
	if s == nil {
		fresh := enforce.NewState(limit, c.now)
		s = &fresh
		c.store[key] = s
	}
	s.Advance(limit, 0, c.now)
	return s
}

func (c *crowd) check(tiers []enforce.Tier) {
	c.checks++
	checks := []enforce.BucketCheck{{Cost: enforce.Token, Tiers: tiers}}
	held := *c.buckets.held.Load()
	rest := c.buckets.begin(checks, held, c.clock())
	if rest == nil {
		return
	}
	c.missed++
	for i := range rest.checks {
		own := rest.checks[i].Tiers
		states := make([]*enforce.State, len(own))
		for j := range own {
			states[j] = c.state(own[j].Key, own[j].Limit)
		}
		rest.checks[i].TakeFrom(states, make([]enforce.State, len(own)), c.now)
		rest.checks[i].Answered = true
	}
	c.buckets.end(checks, rest, held, nil, c.clock())
}

func (c *crowd) tick() {
	c.buckets.admit()
	for _, calls := range c.buckets.collect() {
		for _, call := range calls {
			for i := range call.leases {
				l := &call.leases[i]
				l.Grant, l.Answered = c.state(l.Key, l.Limit).Lease(&l.Ask), true
			}
			c.renewed, c.scripts = c.renewed+len(call.leases), c.scripts+1
			c.buckets.answered(call, c.clock())
		}
	}
	c.buckets.leave()
}

func playCrowd(users, perSecond int, length time.Duration) *crowd {
	c := &crowd{store: map[enforce.Key]*enforce.State{}, now: 1e9}
	c.buckets = newBuckets(nil, c.clock, slog.New(slog.DiscardHandler), counters)
	c.buckets.TurnOn(true)
	limit := enforce.Limit{Rate: 1e6, Burst: 1e6}
	requests := make([][]enforce.Tier, users)
	for i := range requests {
		for rule, subject := range []string{fmt.Sprint("user-", i), "/api/search", "", fmt.Sprint("203.0.113.", i)} {
			key := enforce.Key{Tenant: 1, Rule: rules.RuleID(rule + 1), Subject: subject}
			requests[i] = append(requests[i], enforce.Tier{Key: key, Limit: limit})
		}
	}
	random, next := rand.New(rand.NewPCG(1, 2)), 0
	play := func(length time.Duration) {
		for end := c.now + length.Microseconds(); c.now < end; c.now += tickEvery.Microseconds() {
			for range int(float64(perSecond) * tickEvery.Seconds() * (0.8 + 0.4*random.Float64())) {
				c.check(requests[next%users])
				next++
			}
			c.tick()
		}
	}
	play(2 * time.Second)
	c.checks, c.missed, c.renewed, c.scripts = 0, 0, 0, 0
	play(length)
	return c
}

func TestRenewalsOfACrowd(t *testing.T) {
	t.Parallel()
	const seconds = 5
	c := playCrowd(100, 10_000, seconds*time.Second)
	t.Logf("a second %d buckets are renewed by %d scripts", c.renewed/seconds, c.scripts/seconds)
	if c.missed > c.checks/20 {
		t.Errorf("lots did not serve %d of %d checks", c.missed, c.checks)
	}
	if c.renewed < 10*c.scripts {
		t.Errorf("%d scripts renew %d buckets, fewer than 10 each", c.scripts, c.renewed)
	}
}
