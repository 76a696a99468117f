// Package combine lets concurrent calls of a store of buckets share round trips (flat combining).
//
// While fewer than Options.InFlight batches are in flight, a call sends its own at once; others queue. When a batch
// ends, one queued call leads the next, and those that fit follow.
//
// After a tenth of the budget without an end of a batch, the store is far away or a connection hangs. Another batch
// then starts, up to Options.MaxInFlight. If batches do end, the store is overloaded, and more would only time out with
// their tokens taken. A call not sent within half of the budget fails with nothing taken, and then overload refuses
// calls that would queue too long.
//
// Tenants take turns (see fairQueue), so an overload fails the calls of tenants above their share.
//
// While other calls of its tenant queue, a call fills at most half of a batch; the rest queues again, in order.
package combine

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/jobs/panics"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// timeoutShare of the budget without an end of a batch starts one more.
	timeoutShare = 10
	// turnShare of the budget is for queueing, the rest the store's.
	turnShare      = 2
	floodTurnShare = 4
)

// Options configure a Combiner; only Shed is optional.
type Options struct {
	Weight func(*enforce.BucketCheck) int
	Budget time.Duration
	// InFlight batches are sent to a quick store, and MaxInFlight at most.
	InFlight, MaxInFlight int
	// FirstBatch and MaxBatch limit a batch, in tiers; a single check may exceed them, and equal values fix the limit.
	FirstBatch, MaxBatch int
	// Send marks the Answered checks of a batch, sets the errors of others, and must not keep the batch.
	Send func(*Batch)
	// Shed gets the number of a call's checks that fail under overload, early before queueing; it must not call the
	// Combiner.
	Shed func(checks int, early bool)
}

// Combiner is safe for concurrent use.
type Combiner struct {
	Options
	callPool sync.Pool

	mu         sync.Mutex
	waiting    fairQueue
	inFlight   int       // batches; nobody waits while there are fewer than InFlight
	lastAnswer time.Time // to any batch
	pace       pace
	overload   overload
	spill      *time.Timer
	spilling   bool
}

// Batch is sent to the store at once, in reused memory.
type Batch struct {
	Calls    []*Call
	Tiers    int       // of all checks
	Deadline time.Time // of the call that has waited longest
	SentAt   time.Time

	Answered bool
	Err      error

	full   bool // more checks waited than it had room for
	shared bool // several tenants waited when it was filled
}

var batchPool = sync.Pool{New: func() any { return &Batch{} }}

func (b *Batch) release() {
	clear(b.Calls[:cap(b.Calls)])
	*b = Batch{Calls: b.Calls[:0]}
	batchPool.Put(b)
}

func (b *Batch) decided() int {
	if b.Answered {
		return b.Tiers
	}
	return 0
}

// Call is one Take, owned by the combiner while queued.
type Call struct {
	Sending  []enforce.BucketCheck
	QueuedAt time.Time
	Err      error

	begun  time.Time             // the call is answered within the budget from then
	checks []enforce.BucketCheck // not sent yet
	tenant rules.TenantID        // whose flow it waits in

	flow        *flow // nil unless it waits
	next        *Call // in the flow
	queuedTiers int   // while it waits

	// turn: true leads the next batch, false ends the call.
	turn chan bool
}

// New returns a Combiner.
func New(options Options) *Combiner {
	q := &Combiner{Options: options, pace: newPace(options)}
	q.callPool.New = func() any { return &Call{turn: make(chan bool, 1)} }
	q.spill = time.AfterFunc(q.Budget, func() {
		if panics.Do(nil, "the timer of batches", q.spillOver) != nil {
			q.spill.Reset(q.timeout())
		}
	})
	q.spill.Stop()
	return q
}

// Submit answers within the budget from begun, which may be before the call; err is that of unanswered checks. Each
// batch of a call has a budget; last is when the last began.
func (q *Combiner) Submit(checks []enforce.BucketCheck, begun time.Time) (last time.Time, err error) {
	c := q.callPool.Get().(*Call)
	defer q.callPool.Put(c)
	c.checks, c.Sending, c.QueuedAt, c.begun, c.Err, c.tenant = checks, nil, time.Now(), begun, nil, tenantOf(checks)
	for leads := q.enter(c) || <-c.turn; leads; {
		switch q.lead(c) {
		case leadAgain:
		case done:
			leads = false
		case waitTurn:
			leads = <-c.turn
		}
	}
	return c.begun, c.Err
}

func tenantOf(checks []enforce.BucketCheck) rules.TenantID {
	for i := range checks {
		if len(checks[i].Tiers) > 0 {
			return checks[i].Tiers[0].Key.Tenant
		}
	}
	return 0
}

func (q *Combiner) weigh(checks []enforce.BucketCheck) (tiers int) {
	for i := range checks {
		tiers += q.Weight(&checks[i])
	}
	return tiers
}

func (q *Combiner) enter(c *Call) (leads bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inFlight < q.InFlight {
		q.inFlight++
		return true
	}
	if now := time.Now(); q.refuses(c, now) || !q.waiting.push(c, q.weigh(c.checks)) {
		q.overload.begin(now)
		q.fail(c, ErrOverloaded)
		c.turn <- false
		return false
	}
	if !q.spilling && q.MaxInFlight > q.InFlight {
		q.spilling = true
		q.spill.Reset(q.timeout())
	}
	return false
}

// If Send panics, followers get an error and the leader the panic.
func (q *Combiner) lead(c *Call) (next afterBatch) {
	runtime.Gosched() // callers that are about to submit join this batch: a third more checks share a script
	b := q.fill(c)
	sent := false
	defer func() {
		if !sent {
			b.Err, c.Err = errPanicked, errPanicked // the leader does not come back for checks that were not sent
		}
		next = q.finish(b, c)
		b.release()
	}()
	q.Send(b)
	sent = true
	return next
}

func (q *Combiner) fill(leader *Call) *Batch {
	b := batchPool.Get().(*Batch)
	now := time.Now()
	b.SentAt = now
	q.mu.Lock()
	defer q.mu.Unlock()
	size := q.pace.size
	switch {
	case q.waiting.empty():
		q.addTo(b, leader, q.MaxBatch, q.MaxBatch) // nobody waits behind it
	case q.waiting.alone(leader.tenant):
		q.addTo(b, leader, size/2, size)
	default:
		b.shared, q.overload.shared = true, now
		q.addTo(b, leader, quantum, size)
	}
	for !q.waiting.empty() && q.visit(b, q.waiting.first, size) {
		q.waiting.rotate()
	}
	if q.waiting.empty() && len(leader.checks) > 0 && leader.Err == nil {
		q.addTo(b, leader, size, size) // into the room that is left
	}
	b.full = !q.waiting.empty() || len(leader.checks) > 0
	emptied := false
	for _, c := range b.Calls { // those with more checks are still first in their flows
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

func (q *Combiner) visit(b *Batch, f *flow, size int) (room bool) {
	if f.next == nil { // no other tenant waits
		for f.first != nil && q.addTo(b, f.first, size/2, size) {
			f.shift()
		}
		f.deficit = 0
		return f.first == nil
	}
	f.deficit += quantum
	for c := f.first; c != nil; c = f.first {
		before := b.Tiers
		if !q.addTo(b, c, f.deficit, size) {
			return q.Weight(&c.checks[0]) <= size-b.Tiers
		}
		f.deficit -= b.Tiers - before
		if c.Err == nil && len(c.checks) > 0 {
			return b.Tiers < size // the next visit goes on with it
		}
		f.shift()
	}
	return true
}

// addTo reports whether there was room. A call that queued too long fails, because the batch would have to end within
// the rest of its budget.
func (q *Combiner) addTo(b *Batch, c *Call, share, size int) bool {
	if turn := q.turn(b.shared, c.tenant); b.SentAt.Sub(c.begun) > turn {
		if b.SentAt.Sub(c.QueuedAt) > turn {
			q.overload.begin(b.SentAt)
		}
		q.fail(c, ErrNoTurn)
		b.Calls = append(b.Calls, c)
		return true
	}
	n, room := 0, min(share, size-b.Tiers)
	for ; n < len(c.checks); n++ {
		weight := q.Weight(&c.checks[n])
		if weight > room && b.Tiers > 0 {
			break
		}
		room -= weight
		b.Tiers += weight
	}
	if n == 0 {
		return false
	}
	if c.Sending == nil {
		b.Calls = append(b.Calls, c)
		c.Sending = c.checks[:0]
	}
	c.Sending = c.Sending[:len(c.Sending)+n]
	c.checks = c.checks[n:]
	if due := c.begun.Add(q.Budget); b.Deadline.IsZero() || due.Before(b.Deadline) {
		b.Deadline = due
	}
	return true
}

// turn is the time within which a call must be sent; shared: several tenants queue.
func (q *Combiner) turn(shared bool, tenant rules.TenantID) time.Duration {
	if shared {
		if f := q.waiting.flowOf(tenant); f != nil && f.tiers > quantum {
			return q.Budget / floodTurnShare
		}
	}
	return q.Budget / turnShare
}

type afterBatch int

const (
	done      afterBatch = iota
	waitTurn             // it has more checks, and others come first
	leadAgain            // it has more checks, and it is its turn
)

// Depth counts queued tiers.
func (q *Combiner) Depth() (tiers int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for f := q.waiting.first; f != nil; f = f.next {
		tiers += f.tiers
	}
	return tiers
}

func (q *Combiner) finish(b *Batch, leader *Call) afterBatch {
	now := time.Now()
	if b.Err != nil {
		for _, c := range b.Calls {
			if c.Err == nil && !allAnswered(c.Sending) {
				c.Err = b.Err
			}
		}
	}
	q.mu.Lock()
	if b.Answered {
		q.lastAnswer = now
	}
	q.overload.record(b.decided(), b.SentAt, now, q.Budget)
	if b.Answered || now.Sub(b.SentAt) > q.timeout() {
		q.pace.record(b.Tiers, b.full, b.SentAt, now)
	}
	own := done
	followers := b.Calls[:0]
	for _, c := range b.Calls {
		c.Sending = nil
		switch {
		case c.Err == nil && len(c.checks) > 0 && q.requeue(c, now):
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

func allAnswered(checks []enforce.BucketCheck) bool {
	for i := range checks {
		if !checks[i].Answered {
			return false
		}
	}
	return true
}

func (q *Combiner) requeue(c *Call, now time.Time) bool {
	c.QueuedAt, c.begun = now, now
	if !q.waiting.push(c, q.weigh(c.checks)) {
		q.overload.begin(now)
		q.fail(c, ErrOverloaded)
		return false
	}
	return true
}

func (q *Combiner) nextLeader() *Call {
	if q.waiting.empty() || q.inFlight > q.InFlight {
		q.inFlight--
		return nil
	}
	return q.waiting.pop()
}

func (q *Combiner) spillOver() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting.empty() {
		q.spilling = false
		return nil
	}
	since := q.waiting.head().QueuedAt
	if q.lastAnswer.After(since) {
		since = q.lastAnswer
	}
	if remaining := q.timeout() - time.Since(since); remaining > 0 {
		q.spill.Reset(remaining)
		return nil
	}
	if q.inFlight < q.MaxInFlight {
		next := q.waiting.pop()
		q.inFlight++
		next.turn <- true
	}
	q.spill.Reset(q.timeout())
	return nil
}

func (q *Combiner) timeout() time.Duration { return q.Budget / timeoutShare }

var errPanicked = errors.New("sending the batch panicked")
