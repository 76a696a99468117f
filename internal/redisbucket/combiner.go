package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

const (
	// usualInFlight is how many batches are in flight while Redis is quick: it executes one while the reply to another is
	// read. With one, Redis would need a seventh less time on two shared cores, but every check would wait out a round
	// trip before its own. More would make each batch smaller.
	usualInFlight = 2
	maxInFlight   = 16
	// patienceShare is the part of the budget that calls wait for a batch to end before one more is started.
	patienceShare = 10
	// turnShare is the part of the budget within which a call must be sent; the rest is Redis's.
	turnShare = 2
	// sharedTurnShare is that part while several tenants wait. It is smaller because a batch must end within what is left
	// to its oldest call, and all calls of a flooding tenant are old.
	sharedTurnShare = 4
)

// combiner lets concurrent calls share batches (flat combining). While fewer than usualInFlight batches are in flight, a
// call sends its own at once, in its own goroutine. Other calls wait. When a batch ends, one of them becomes the leader
// of the next batch, and those that fit become its followers. Nobody waits for others to come: a batch holds what came
// during the last one.
//
// If calls have waited for a tenth of the budget and no batch has ended, Redis is far away or a connection hangs. Then
// one more batch is started, up to maxInFlight, so that a hanging connection delays few checks but its own. If batches do
// end, Redis is overloaded and no more are started: their checks would time out inside Redis with their tokens taken. A
// call that is not sent within half of the budget fails, with nothing taken.
//
// Tenants take turns (see fairQueue), so an overload fails the calls of the tenants that send more than their share.
// Batches shrink then (see pace), so that nobody waits long behind one.
//
// While others of its tenant wait, a call fills at most half of a batch, so that single checks do not wait behind a whole
// large call. The rest of its checks waits again once the first are answered, and so is decided in order.
type combiner struct {
	budget   time.Duration
	send     func(*batch)
	callPool sync.Pool

	mu         sync.Mutex
	waiting    fairQueue
	inFlight   int       // batches; nobody waits while there are fewer than usualInFlight
	lastAnswer time.Time // to any batch
	pace       pace
	// spill runs while calls wait.
	spill    *time.Timer
	spilling bool
}

// call is one Take in flight. Once it has entered, the combiner owns it until its turn.
type call struct {
	checks  []enforce.BucketCheck // not sent yet
	sending []enforce.BucketCheck // in the batch that is being filled or in flight
	tenant  int64                 // whose flow it waits in

	flow        *flow // nil unless it waits
	next        *call // in the flow
	queuedTiers int   // while it waits

	// queuedAt is when the call began to wait for its turn; it is answered within the budget from then.
	queuedAt time.Time
	err      error
	// turn wakes a waiting call: true makes it the leader of the next batch, false ends it.
	turn chan bool
}

func newCombiner(budget time.Duration, send func(*batch)) *combiner {
	q := &combiner{budget: budget, send: send, pace: newPace(budget)}
	q.callPool.New = func() any { return &call{turn: make(chan bool, 1)} }
	q.spill = time.AfterFunc(budget, q.spillOver)
	q.spill.Stop()
	return q
}

// submit has checks answered within the budget from queuedAt; err says why some were not. A call of several batches has
// a budget for each: last is when that of the last one began.
func (q *combiner) submit(checks []enforce.BucketCheck, queuedAt time.Time) (last time.Time, err error) {
	c := q.callPool.Get().(*call)
	defer q.callPool.Put(c)
	c.checks, c.sending, c.queuedAt, c.err, c.tenant = checks, nil, queuedAt, nil, tenantOf(checks)
	for leads := q.enter(c) || <-c.turn; leads; {
		switch q.lead(c) {
		case leadAgain:
		case done:
			leads = false
		case waitTurn:
			leads = <-c.turn
		}
	}
	return c.queuedAt, c.err
}

func tenantOf(checks []enforce.BucketCheck) int64 {
	for i := range checks {
		if len(checks[i].Tiers) > 0 {
			return int64(checks[i].Tiers[0].Key.Tenant)
		}
	}
	return 0
}

// enter reports whether the call leads a batch at once. If not, it waits, or has failed because its tenant has too much
// waiting.
func (q *combiner) enter(c *call) (leads bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inFlight < usualInFlight {
		q.inFlight++
		return true
	}
	if !q.waiting.push(c) {
		c.err = errNoTurn
		c.turn <- false
		return false
	}
	if !q.spilling {
		q.spilling = true
		q.spill.Reset(q.patience())
	}
	return false
}

// lead sends a batch and wakes its followers. If send panics, they get an error and the leader gets the panic.
func (q *combiner) lead(c *call) (next afterBatch) {
	b := q.fill(c)
	sent := false
	defer func() {
		if !sent {
			b.err = errPanicked
		}
		next = q.finish(b, c)
		b.release()
	}()
	q.send(b)
	sent = true
	return next
}

// fill gathers the next batch: checks of its leader, then of waiting calls by deficit round robin.
func (q *combiner) fill(leader *call) *batch {
	b := batchPool.Get().(*batch)
	now := time.Now()
	b.sentAt = now
	q.mu.Lock()
	defer q.mu.Unlock()
	size, since := q.pace.size, now.Add(-q.budget/turnShare)
	switch {
	case q.waiting.empty():
		q.addTo(b, leader, maxBatch, maxBatch, since) // nobody waits behind it
	case q.waiting.alone(leader.tenant):
		q.addTo(b, leader, size/2, size, since)
	default:
		since = now.Add(-q.budget / sharedTurnShare)
		q.addTo(b, leader, quantum, size, since)
	}
	for !q.waiting.empty() && q.visit(b, q.waiting.first, size, since) {
		q.waiting.rotate()
	}
	if q.waiting.empty() && len(leader.checks) > 0 && leader.err == nil {
		q.addTo(b, leader, size, size, since) // into the room that is left
	}
	b.full = !q.waiting.empty() || len(leader.checks) > 0
	emptied := false
	for _, c := range b.calls { // those with more checks are still first in their flows
		if f := c.flow; f != nil {
			f.shift()
			emptied = emptied || f.first == nil
		}
	}
	if emptied {
		q.waiting.dropEmpty()
	}
	return b
}

// visit adds calls of a flow to a batch as far as the flow's deficit allows, and reports whether the batch may have room
// for other flows.
func (q *combiner) visit(b *batch, f *flow, size int, since time.Time) (room bool) {
	if f.next == nil { // no other tenant waits
		for f.first != nil && q.addTo(b, f.first, size/2, size, since) {
			f.shift()
		}
		f.deficit = 0
		return f.first == nil
	}
	f.deficit += quantum
	for c := f.first; c != nil; c = f.first {
		before := b.tiers
		if !q.addTo(b, c, f.deficit, size, since) {
			return len(c.checks[0].Tiers) <= size-b.tiers
		}
		f.deficit -= b.tiers - before
		if c.err == nil && len(c.checks) > 0 {
			return b.tiers < size // the next visit goes on with it
		}
		f.shift()
	}
	return true
}

// addTo adds up to share tiers of a call's checks to a batch, and reports whether there was room for any. A call queued
// before since fails instead: the batch would have to end in the little time that it has left.
func (q *combiner) addTo(b *batch, c *call, share, size int, since time.Time) bool {
	if c.queuedAt.Before(since) {
		c.err = errNoTurn
		b.calls = append(b.calls, c)
		return true
	}
	n, room := 0, min(share, size-b.tiers)
	for n < len(c.checks) && (len(c.checks[n].Tiers) <= room || b.tiers == 0) {
		room -= len(c.checks[n].Tiers)
		b.tiers += len(c.checks[n].Tiers)
		n++
	}
	if n == 0 {
		return false
	}
	if c.sending == nil {
		b.calls = append(b.calls, c)
		c.sending = c.checks[:0]
	}
	c.sending = c.sending[:len(c.sending)+n]
	c.checks = c.checks[n:]
	if due := c.queuedAt.Add(q.budget); b.deadline.IsZero() || due.Before(b.deadline) {
		b.deadline = due
	}
	return true
}

// afterBatch is what the leader of a batch does after its reply.
type afterBatch int

const (
	done      afterBatch = iota
	waitTurn             // it has more checks, and others come first
	leadAgain            // it has more checks, and it is its turn
)

// depth returns how many tiers wait.
func (q *combiner) depth() (tiers int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for f := q.waiting.first; f != nil; f = f.next {
		tiers += f.tiers
	}
	return tiers
}

// finish ends a batch: it wakes the followers that are done, queues calls with more checks, and wakes the next leader.
func (q *combiner) finish(b *batch, leader *call) afterBatch {
	now := time.Now()
	if b.err != nil {
		b.assignErrors()
	}
	q.mu.Lock()
	if b.answered {
		q.lastAnswer = now
	}
	if b.answered || now.Sub(b.sentAt) > q.patience() {
		q.pace.record(b.tiers, b.full, b.sentAt, now)
	}
	own := done
	followers := b.calls[:0]
	for _, c := range b.calls {
		c.sending = nil
		switch {
		case c.err == nil && len(c.checks) > 0 && q.requeue(c, now):
			if c == leader {
				own = waitTurn
			}
		case c != leader:
			followers = append(followers, c)
		}
	}
	next := q.nextLeader()
	q.mu.Unlock()
	for _, c := range followers {
		c.turn <- false
	}
	if next == leader {
		return leadAgain
	}
	if next != nil {
		next.turn <- true
	}
	return own
}

// requeue makes a call with more checks wait with a new budget, and reports whether there was room.
func (q *combiner) requeue(c *call, now time.Time) bool {
	c.queuedAt = now
	if !q.waiting.push(c) {
		c.err = errNoTurn
		return false
	}
	return true
}

// nextLeader returns the leader of the next batch; nil if no call waits or enough batches are in flight.
func (q *combiner) nextLeader() *call {
	if q.waiting.empty() || q.inFlight > usualInFlight {
		q.inFlight--
		return nil
	}
	return q.waiting.pop()
}

// spillOver starts one more batch if calls have waited too long for one to end.
func (q *combiner) spillOver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting.empty() {
		q.spilling = false
		return
	}
	since := q.waiting.head().queuedAt
	if q.lastAnswer.After(since) {
		since = q.lastAnswer
	}
	if remaining := q.patience() - time.Since(since); remaining > 0 {
		q.spill.Reset(remaining)
		return
	}
	if q.inFlight < maxInFlight {
		q.inFlight++
		q.waiting.pop().turn <- true
	}
	q.spill.Reset(q.patience())
}

func (q *combiner) patience() time.Duration { return q.budget / patienceShare }

// errPanicked fails the followers of a leader whose goroutine panicked.
var errPanicked = errors.New("sending the batch panicked")

// errNoTurn fails a call that waited too long behind other calls of its tenant. It does not count as a failure of Redis.
var errNoTurn = fmt.Errorf("waited for a turn: %w", context.DeadlineExceeded)
