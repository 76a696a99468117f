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
	// pipelines is how many are in flight while Redis is quick: one being executed, and one whose
	// answers are being read. One alone would save a seventh of Redis's time on two shared cores, and with
	// Redis a network away make every check wait for the one before it; more make each smaller.
	pipelines = 2
	// maxPipelines is how many are in flight at most.
	maxPipelines = 16
	// patienceShare is the part of the budget that calls wait for a pipeline to end before one more is started.
	patienceShare = 10
	// turnShare is the part of the budget in which a call must have its turn; the rest is Redis's.
	turnShare = 2
	// sharedTurnShare is that part while several tenants wait: a pipeline must end in what is left to its oldest call,
	// and the calls of a tenant that floods are all old.
	sharedTurnShare = 4
)

// queue lets concurrent calls share pipelines (flat combining). A call that finds fewer than a few of them in flight
// sends its own at once, in its own goroutine. Others wait. When a pipeline ends, one of them becomes the leader of the
// next, and the others, as many as fit, are its followers. Nobody waits for others to come: how large a pipeline is
// depends on how many came during the last.
//
// When calls have waited for a tenth of the budget and no pipeline has ended, because Redis is far away
// or a connection hangs, one more is started, up to 16. So a connection that hangs delays hardly anybody
// but those whose checks it carries. When Redis is quick, but asked for more than it can do, no more
// are started: they would only wait inside Redis, and time out there with their tokens taken. A call that
// has no turn within half of the budget fails instead, before anything was sent.
//
// Tenants take turns (see line), so those who fail when Redis is asked for too much are the calls of the tenants that ask
// for more than their share. Pipelines become smaller then (see pace), so that nobody waits long behind one.
//
// While others of its tenant wait, a call has at most half of a pipeline, so that single checks never stand behind the
// whole of a large batch. The rest of it waits again when the first were answered, and so is taken in order.
type queue struct {
	budget time.Duration
	send   func(*pipeline)
	calls  sync.Pool

	mu       sync.Mutex
	line     line      // of calls that wait for their turn
	inFlight int       // pipelines; nobody waits while there are fewer than a few
	ended    time.Time // when one was last answered
	pace     pace
	// spill runs while calls wait.
	spill    *time.Timer
	spilling bool
}

// call is one Take on its way. It is the queue's from enter until its turn.
type call struct {
	checks []enforce.BucketCheck // what is left to send
	tenant int64                 // whose flow it waits in
	waits  int                   // its tiers, while it waits
	next   *call                 // in the flow
	flow   *flow                 // nil unless it waits
	part   int                   // the place of its part in the pipeline that is filled, plus 1
	// asked is when the call began to wait for its turn. It is answered within the budget from there.
	asked time.Time
	err   error
	// turn wakes a call that waits: with true it leads the next pipeline, with false it is finished.
	turn chan bool
}

// pipeline is what one turn sends. Its memory is used again.
type pipeline struct {
	parts    []part
	tiers    int       // of all asks
	deadline time.Time // of the call that has waited longest
	sent     time.Time
	full     bool  // more waited than it had room for
	answered bool  // Redis said something
	err      error // why some asks were not answered

	scripts []*script
	open    map[int64]*script // the latest of each tenant, or of all; none if there is but one ask
}

var emptyPipelines = sync.Pool{New: func() any { return &pipeline{open: map[int64]*script{}} }}

// release gives the memory back. After a failure the driver might still look at it.
func (p *pipeline) release() {
	if p.err != nil {
		return
	}
	for _, s := range p.scripts {
		s.reset("", s.alone)
	}
	clear(p.parts[:cap(p.parts)])
	clear(p.open)
	p.parts, p.scripts, p.tiers, p.deadline = p.parts[:0], p.scripts[:0], 0, time.Time{}
	p.full, p.answered = false, false
	emptyPipelines.Put(p)
}

// part is the asks of one call that go in one pipeline.
type part struct {
	call   *call
	checks []enforce.BucketCheck
	err    error // why some of them were not answered
}

// blame gives each part with asks that were not answered its error: what Redis said of their own script, or else what
// happened to the whole pipeline.
func (p *pipeline) blame() {
	own := map[*enforce.BucketCheck]error{}
	for _, s := range p.scripts {
		if s.err != nil {
			for _, check := range s.checks {
				own[check] = s.err
			}
		}
	}
	for i := range p.parts {
		part := &p.parts[i]
		for j := range part.checks {
			if check := &part.checks[j]; !check.Answered {
				if part.err = own[check]; part.err == nil {
					part.err = p.err
				}
				break
			}
		}
	}
}

func newQueue(budget time.Duration, send func(*pipeline)) *queue {
	q := &queue{budget: budget, send: send, pace: newPace(budget)}
	q.calls.New = func() any { return &call{turn: make(chan bool, 1)} }
	q.spill = time.AfterFunc(budget, q.spillOver)
	q.spill.Stop()
	return q
}

// take has asks answered, within the budget from asked; the error is what kept some of them from it. A call of several
// pipelines has a budget for each: last is when that of the last one began.
func (q *queue) take(checks []enforce.BucketCheck, asked time.Time) (last time.Time, err error) {
	c := q.calls.Get().(*call)
	defer q.calls.Put(c)
	c.checks, c.asked, c.err, c.tenant = checks, asked, nil, tenantOf(checks)
	for lead := q.enter(c) || <-c.turn; lead; {
		switch q.lead(c) {
		case again:
		case finished:
			lead = false
		case waits:
			lead = <-c.turn
		}
	}
	return c.asked, c.err
}

// tenantOf returns whose call this is. Asks of several tenants are their first tenant's.
func tenantOf(checks []enforce.BucketCheck) int64 {
	for i := range checks {
		if len(checks[i].Tiers) > 0 {
			return int64(checks[i].Tiers[0].Key.Tenant)
		}
	}
	return 0
}

// lead sends a pipeline and wakes its followers. If send panics, they get an error, and the panic goes on in the
// leader's goroutine.
func (q *queue) lead(c *call) (next fate) {
	p := q.fill(c)
	sent := false
	defer func() {
		if !sent {
			p.err = errPanicked
		}
		next = q.finish(p, c)
		p.release()
	}()
	q.send(p)
	sent = true
	return next
}

// enter reports whether the call leads: it may send a pipeline at once, or it has failed because its tenant has too
// much waiting. If not, it waits.
func (q *queue) enter(c *call) (lead bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inFlight < pipelines {
		q.inFlight++
		return true
	}
	if !q.line.push(c) {
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

// fill takes what the next pipeline carries: asks of its leader, then of those that wait, by deficit round robin.
func (q *queue) fill(leader *call) *pipeline {
	p := emptyPipelines.Get().(*pipeline)
	now := time.Now()
	p.sent = now
	q.mu.Lock()
	defer q.mu.Unlock()
	size, since := q.pace.size, now.Add(-q.budget/turnShare)
	switch {
	case q.line.empty():
		q.put(p, leader, maxBatch, maxBatch, since) // nobody waits behind it
	case q.line.alone(leader.tenant):
		q.put(p, leader, size/2, size, since)
	default:
		since = now.Add(-q.budget / sharedTurnShare)
		q.put(p, leader, quantum, size, since)
	}
	for !q.line.empty() && q.visit(p, q.line.first, size, since) {
		q.line.rotate()
	}
	if q.line.empty() && len(leader.checks) > 0 && leader.err == nil {
		q.put(p, leader, size, size, since) // what others left
	}
	p.full = !q.line.empty() || len(leader.checks) > 0
	emptied := false
	for i := range p.parts { // calls of which a part goes are at the head of their flows still
		c := p.parts[i].call
		c.part = 0
		if f := c.flow; f != nil {
			f.shift()
			emptied = emptied || f.first == nil
		}
	}
	if emptied {
		q.line.forgetEmpty()
	}
	return p
}

// visit puts calls of the flow whose turn it is into a pipeline, as far as its deficit allows, and reports whether others
// may find room.
func (q *queue) visit(p *pipeline, f *flow, size int, since time.Time) (room bool) {
	if f.next == nil { // nobody else waits
		for f.first != nil && q.put(p, f.first, size/2, size, since) {
			f.shift()
		}
		f.deficit = 0
		return f.first == nil
	}
	f.deficit += quantum
	for c := f.first; c != nil; c = f.first {
		before := p.tiers
		if !q.put(p, c, f.deficit, size, since) {
			return len(c.checks[0].Tiers) <= size-p.tiers
		}
		f.deficit -= p.tiers - before
		if c.err == nil && len(c.checks) > 0 {
			return p.tiers < size // the next visit goes on with it
		}
		f.shift()
	}
	return true
}

// put puts a share of a call's asks into a pipeline, and reports whether there was room for any. A call that was asked
// before since has little time left and would be the end of those that go with it, so it fails instead.
func (q *queue) put(p *pipeline, c *call, share, size int, since time.Time) bool {
	if c.asked.Before(since) {
		c.err = errNoTurn
		p.parts = append(p.parts, part{call: c})
		return true
	}
	n, room := 0, min(share, size-p.tiers)
	for n < len(c.checks) && (len(c.checks[n].Tiers) <= room || p.tiers == 0) {
		room -= len(c.checks[n].Tiers)
		p.tiers += len(c.checks[n].Tiers)
		n++
	}
	if n == 0 {
		return false
	}
	if c.part == 0 {
		p.parts = append(p.parts, part{call: c, checks: c.checks[:0]})
		c.part = len(p.parts)
	}
	own := &p.parts[c.part-1]
	own.checks = own.checks[:len(own.checks)+n]
	c.checks = c.checks[n:]
	if due := c.asked.Add(q.budget); p.deadline.IsZero() || due.Before(p.deadline) {
		p.deadline = due
	}
	return true
}

// fate is what the leader of a pipeline does after its reply.
type fate int

const (
	finished fate = iota
	waits         // it has more asks, and others come first
	again         // it has more asks, and it is its turn
)

// finish wakes the followers that a pipeline has finished, lets those with more asks wait again, and
// chooses the next leader.
func (q *queue) finish(p *pipeline, leader *call) fate {
	now := time.Now()
	if p.err != nil {
		p.blame()
	}
	q.mu.Lock()
	if p.answered {
		q.ended = now
	}
	if p.answered || now.Sub(p.sent) > q.patience() {
		q.pace.learn(p.tiers, p.full, p.sent, now)
	}
	own := finished
	woken := p.parts[:0]
	for _, part := range p.parts {
		c := part.call
		if part.err != nil {
			c.err = part.err
		}
		switch {
		case c.err == nil && len(c.checks) > 0 && q.wait(c, now):
			if c == leader {
				own = waits
			}
		case c != leader:
			woken = append(woken, part)
		}
	}
	next := q.handOn()
	q.mu.Unlock()
	for _, part := range woken {
		part.call.turn <- false
	}
	if next == leader {
		return again
	}
	if next != nil {
		next.turn <- true
	}
	return own
}

// wait puts a call with more asks into the line again, with a new budget, and reports whether there was room.
func (q *queue) wait(c *call, now time.Time) bool {
	c.asked = now
	if !q.line.push(c) {
		c.err = errNoTurn
		return false
	}
	return true
}

// handOn returns the leader of the next pipeline; nil if nobody waits, or if more pipelines are in flight than a few.
func (q *queue) handOn() *call {
	if q.line.empty() || q.inFlight > pipelines {
		q.inFlight--
		return nil
	}
	return q.line.pop()
}

// spillOver starts one more pipeline for calls that have waited too long for one to end.
func (q *queue) spillOver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.line.empty() {
		q.spilling = false
		return
	}
	since := q.line.head().asked
	if q.ended.After(since) {
		since = q.ended
	}
	if left := q.patience() - time.Since(since); left > 0 {
		q.spill.Reset(left)
		return
	}
	if q.inFlight < maxPipelines {
		q.inFlight++
		q.line.pop().turn <- true
	}
	q.spill.Reset(q.patience())
}

func (q *queue) patience() time.Duration { return q.budget / patienceShare }

// errPanicked fails the followers of a leader whose goroutine panicked.
var errPanicked = errors.New("sending the pipeline panicked")

// errNoTurn fails a call that came behind so many others of its tenant that its time was over. It says nothing about
// Redis but that it is slow.
var errNoTurn = fmt.Errorf("waited for a turn: %w", context.DeadlineExceeded)
