package pgbucket

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// maxBatch is the most tiers of a batch, unless it is a single check.
	maxBatch = 256
	// quantum is how many tiers a visit adds to a flow's deficit: sixteen checks of four.
	quantum = 64
	// maxWaiting caps the waiting tiers of a tenant. A call beyond it would only fail later.
	maxWaiting = 1 << 14
	// turnShare is the part of the budget within which a call must be sent; the rest is PostgreSQL's.
	turnShare = 2
)

// combiner lets concurrent calls share transactions (flat combining). While fewer than inFlight batches are in flight, a
// call sends its own at once, in its own goroutine. Other calls wait. When a batch ends, the first in line becomes the
// leader of the next batch, and those that fit become its followers. Nobody waits for others to come: a batch holds what
// came during the last one. No timer runs: each batch ends within the budget of its oldest call, and whoever leads the
// next one fails the calls that waited for more than half of theirs, with nothing taken.
//
// Waiting calls are in a first-in first-out flow for each tenant. Flows take turns by deficit round robin, so an overload
// fails the calls of the tenants that send more than their share.
type combiner struct {
	budget time.Duration
	send   func(*batch)

	mu       sync.Mutex
	flows    []*flow // in the order of their turns, none empty
	byTenant map[rules.TenantID]*flow
	inFlight int // batches
}

// flow is the waiting calls of one tenant.
type flow struct {
	tenant  rules.TenantID
	calls   []*call
	tiers   int // of all its calls
	deficit int // how many tiers it may still send
}

// call is one Take in flight.
type call struct {
	checks   []enforce.BucketCheck // not sent yet
	sending  []enforce.BucketCheck // in the batch that is being filled or in flight
	tenant   rules.TenantID
	waiting  int // its tiers while it waits
	queuedAt time.Time
	err      error
	turn     chan bool // true makes a waiting call the leader of the next batch, false ends it
}

// batch is what one transaction decides.
type batch struct {
	calls    []*call   // with the checks that each is sending
	tiers    int       // of all checks
	deadline time.Time // of the call that has waited longest
	sentAt   time.Time
	err      error // why some checks have no answer
}

func newCombiner(budget time.Duration, send func(*batch)) *combiner {
	return &combiner{budget: budget, send: send, byTenant: map[rules.TenantID]*flow{}}
}

// submit has checks answered within the budget; err says why some were not. A call of several batches has a budget for
// each.
func (q *combiner) submit(checks []enforce.BucketCheck) error {
	c := &call{checks: checks, tenant: tenantOf(checks), queuedAt: time.Now(), turn: make(chan bool, 1)}
	for leads := q.enter(c) || <-c.turn; leads; {
		leads = q.lead(c) && <-c.turn
	}
	return c.err
}

func tenantOf(checks []enforce.BucketCheck) rules.TenantID {
	for i := range checks {
		if len(checks[i].Tiers) > 0 {
			return checks[i].Tiers[0].Key.Tenant
		}
	}
	return 0
}

// enter reports whether the call leads a batch at once. If not, it waits, or has failed because its tenant has too much
// waiting.
func (q *combiner) enter(c *call) (leads bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inFlight < inFlight {
		q.inFlight++
		return true
	}
	if !q.push(c) {
		c.turn <- false
	}
	return false
}

// push makes a call wait. It reports false, and fails the call, if its tenant has too much waiting.
func (q *combiner) push(c *call) bool {
	f := q.byTenant[c.tenant]
	if f == nil {
		f = &flow{tenant: c.tenant}
		q.byTenant[c.tenant] = f
		q.flows = append(q.flows, f)
	} else if f.tiers > maxWaiting {
		c.err = errNoTurn
		return false
	}
	c.waiting = 0
	for i := range c.checks {
		c.waiting += len(c.checks[i].Tiers)
	}
	f.tiers += c.waiting
	f.calls = append(f.calls, c)
	return true
}

// shift removes the first call of the first flow.
func (q *combiner) shift() *call {
	f := q.flows[0]
	c := f.calls[0]
	f.calls[0] = nil
	f.calls = f.calls[1:]
	f.tiers -= c.waiting
	return c
}

// rotate ends the turn of the first flow: it becomes the last, or is dropped if it is empty.
func (q *combiner) rotate() {
	f := q.flows[0]
	q.flows[0] = nil
	q.flows = q.flows[1:]
	if len(f.calls) > 0 {
		q.flows = append(q.flows, f)
	} else {
		delete(q.byTenant, f.tenant)
	}
}

// lead sends a batch, ends its followers and wakes the next leader. It reports whether the leader has more checks, for
// which it waits. If send panics, the followers get an error and the leader gets the panic.
func (q *combiner) lead(leader *call) (waits bool) {
	b := q.fill(leader)
	sent := false
	defer func() {
		if !sent {
			b.err = errPanicked
		}
		waits = q.finish(b, leader)
	}()
	q.send(b)
	sent = true
	return waits
}

// fill gathers the next batch: checks of its leader, then of waiting calls by deficit round robin.
func (q *combiner) fill(leader *call) *batch {
	b := &batch{sentAt: time.Now()}
	q.mu.Lock()
	defer q.mu.Unlock()
	share := maxBatch
	switch {
	case len(q.flows) == 1 && q.flows[0].tenant == leader.tenant:
		share = maxBatch / 2 // single checks do not wait behind a whole large call of their tenant
	case len(q.flows) > 0:
		share = quantum
	}
	q.addTo(b, leader, share)
	for len(q.flows) > 0 && q.visit(b, q.flows[0]) {
		q.rotate()
	}
	for len(q.flows) > 0 && len(q.flows[0].calls) == 0 {
		q.rotate()
	}
	return b
}

// visit adds calls of the first flow to a batch as far as its deficit allows, and reports whether the batch has room for
// other flows.
func (q *combiner) visit(b *batch, f *flow) (room bool) {
	f.deficit += quantum
	for len(f.calls) > 0 {
		c := f.calls[0]
		before := b.tiers
		if !q.addTo(b, c, f.deficit) {
			return b.tiers+max(1, len(c.checks[0].Tiers)) <= maxBatch
		}
		f.deficit -= b.tiers - before
		q.shift()
		if c.err == nil && len(c.checks) > 0 && f.deficit > 0 {
			break // the rest waits again, behind others of its tenant
		}
	}
	return b.tiers < maxBatch
}

// addTo adds up to share tiers of a call's checks to a batch, and reports whether there was room for any. A call that
// waited too long fails instead: PostgreSQL would have to answer in the little time that it has left.
func (q *combiner) addTo(b *batch, c *call, share int) bool {
	if b.sentAt.Sub(c.queuedAt) > q.budget/turnShare {
		c.err = errNoTurn
		b.calls = append(b.calls, c)
		return true
	}
	n, room := 0, min(share, maxBatch-b.tiers)
	for n < len(c.checks) && (len(c.checks[n].Tiers) <= room || b.tiers == 0) {
		room -= len(c.checks[n].Tiers)
		b.tiers += len(c.checks[n].Tiers)
		n++
	}
	if n == 0 && len(c.checks) > 0 {
		return false
	}
	b.calls = append(b.calls, c)
	c.sending, c.checks = c.checks[:n], c.checks[n:]
	if due := c.queuedAt.Add(q.budget); b.deadline.IsZero() || due.Before(b.deadline) {
		b.deadline = due
	}
	return true
}

// finish ends a batch: it wakes the followers that are done, queues calls with more checks, and wakes the next leader.
func (q *combiner) finish(b *batch, leader *call) (waits bool) {
	now := time.Now()
	q.mu.Lock()
	done := b.calls[:0]
	for _, c := range b.calls {
		if b.err != nil && c.err == nil && !allAnswered(c.sending) {
			c.err = b.err
		}
		c.sending = nil
		if c.err == nil && len(c.checks) > 0 {
			c.queuedAt = now
			if q.push(c) {
				waits = waits || c == leader
				continue
			}
		}
		if c != leader {
			done = append(done, c)
		}
	}
	var next *call
	if len(q.flows) == 0 {
		q.inFlight--
	} else {
		next = q.shift()
		q.rotate()
	}
	q.mu.Unlock()
	for _, c := range done {
		c.turn <- false
	}
	if next != nil {
		next.turn <- true
	}
	return waits
}

func allAnswered(checks []enforce.BucketCheck) bool {
	for i := range checks {
		if !checks[i].Answered {
			return false
		}
	}
	return true
}

// depth returns how many tiers wait.
func (q *combiner) depth() (tiers int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range q.flows {
		tiers += f.tiers
	}
	return tiers
}

// errPanicked fails the followers of a leader whose goroutine panicked.
var errPanicked = fmt.Errorf("deciding the batch panicked")

// errNoTurn fails a call that waited too long behind other calls of its tenant. It does not count as a failure of
// PostgreSQL.
var errNoTurn = fmt.Errorf("waited for a turn: %w", context.DeadlineExceeded)
