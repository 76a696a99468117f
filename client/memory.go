package sluice

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxDenials bounds the cache, because callers can invent identities.
	maxDenials  = 10_000
	withoutWait = time.Second // such as by a block rule
)

// memory caches denials by identity. A check of lower cost may pass, so it is not answered.
type memory struct {
	longest time.Duration // 0: no cache
	now     func() time.Time

	mu      sync.Mutex
	denials map[string]denial
	holds   atomic.Bool // there are denials; read without the lock
}

type denial struct {
	decision  Decision
	cost      float64
	at, until time.Time
}

// recall returns a cached denial.
func (m *memory) recall(q *question) (Decision, bool) {
	if m.longest <= 0 || q.cost <= 0 || !m.holds.Load() {
		return Decision{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.denials[q.identity]
	if !ok {
		return Decision{}, false
	}
	now := m.now()
	if !now.Before(d.until) {
		delete(m.denials, q.identity)
		m.holds.Store(len(m.denials) > 0)
		return Decision{}, false
	}
	if q.cost < d.cost {
		return Decision{}, false
	}
	return d.decided(now), true
}

func (d *denial) decided(now time.Time) Decision {
	passed := now.Sub(d.at)
	decision := d.decision
	decision.Source, decision.Tiers = FromMemory, slices.Clone(d.decision.Tiers)
	if decision.RetryAfter > 0 {
		decision.RetryAfter = max(1, decision.RetryAfter-passed)
	}
	decision.ResetAfter = max(0, decision.ResetAfter-passed)
	for i := range decision.Tiers {
		t := &decision.Tiers[i]
		t.ResetAfter, t.MoreAfter = max(0, t.ResetAfter-passed), max(0, t.MoreAfter-passed)
		if t.RetryAfter > 0 {
			t.RetryAfter = max(1, t.RetryAfter-passed)
		}
	}
	return decision
}

// learn caches a denial, unless it may end at any moment, as by a concurrency limit.
func (m *memory) learn(q *question, d *Decision) {
	if m.longest <= 0 || q.cost <= 0 || d.Source != FromServer || d.Status != http.StatusTooManyRequests || d.Degraded {
		return
	}
	wait := d.RetryAfter
	switch d.Reason {
	case "limit_exceeded":
	case "blocked", "cost_exceeds_limit":
		wait = withoutWait
	default:
		return
	}
	kept, now := *d, m.now()
	kept.Tiers = slices.Clone(d.Tiers) // the caller may change its own
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.denials == nil {
		m.denials = make(map[string]denial)
	}
	if len(m.denials) >= maxDenials {
		m.evict(now)
	}
	m.holds.Store(true)
	m.denials[q.identity] = denial{kept, q.cost, now, now.Add(min(wait, m.longest))}
}

// evict drops an entry, and expired ones among the first 16. mu must be held.
func (m *memory) evict(now time.Time) {
	looked := 0
	for identity, d := range m.denials { // random order
		if looked++; looked == 1 || !now.Before(d.until) {
			delete(m.denials, identity)
		}
		if looked == 16 {
			return
		}
	}
}
