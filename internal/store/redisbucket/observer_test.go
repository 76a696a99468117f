package redisbucket

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type noted struct {
	mu          sync.Mutex
	waits       int
	scripts     []int
	early, late atomic.Int64
}

func (n *noted) Shed(checks int, early bool) {
	if early {
		n.early.Add(int64(checks))
	} else {
		n.late.Add(int64(checks))
	}
}

func (n *noted) Waited(time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waits++
}

func (n *noted) ScriptSent(checks int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.scripts = append(n.scripts, checks)
}

func TestWhatAnObserverIsTold(t *testing.T) {
	t.Parallel()
	server, s := generous(t)
	seen := &noted{}
	s.Observe(seen)
	mustTake(t, s, checks200(still))
	total := 0
	for _, checks := range seen.scripts {
		total += checks
	}
	if total != 200 || len(seen.scripts) < 4 || seen.waits == 0 {
		t.Errorf("%d checks in scripts of %v, and %d waits; want 200 checks, at most 64 in a script", total,
			seen.scripts, seen.waits)
	}
	if n := s.Waiting(); n != 0 {
		t.Errorf("%d tiers wait, want none", n)
	}
	if node := s.Nodes()[0]; node.Trips != 0 {
		t.Errorf("the breaker opened %d times before there was an error", node.Trips)
	}
	server.Kill()
	for range 2 * tripAfter {
		_ = s.Take(t.Context(), one(user("42", still)))
	}
	if node := s.Nodes()[0]; node.Trips != 1 {
		t.Errorf("the breaker opened %d times, want once", node.Trips)
	}
}
