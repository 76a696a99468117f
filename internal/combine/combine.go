// Package combine lets concurrent calls of a store of buckets share round trips (flat combining).
//
// While fewer than Options.InFlight batches are in flight, a call sends its own at once, in its own goroutine. Other calls
// wait. When a batch ends, one of them becomes the leader of the next batch, and those that fit become its followers.
// Nobody waits for others to come: a batch holds what came during the last one.
//
// If calls have waited for a tenth of the budget and no batch has ended, the store is far away or a connection hangs. Then
// one more batch is started, up to Options.MaxInFlight, so that a hanging connection delays few checks but its own. If
// batches do end, the store is overloaded and no more are started: their checks would time out inside the store with their
// tokens taken. A call that is not sent within half of the budget fails, with nothing taken.
//
// Once calls failed so, those that would wait too long are refused at once (see overload), so that a saturated store makes nobody
// wait for nothing.
//
// Tenants take turns (see fairQueue), so an overload fails the calls of the tenants that send more than their share.
// Batches shrink then (see pace), so that nobody waits long behind one.
//
// While others of its tenant wait, a call fills at most half of a batch, so that single checks do not wait behind a whole
// large call. The rest of its checks waits again once the first are answered, and so is decided in order.
package combine

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
	"github.com/sluicegate/sluice/internal/rules"
)

const (
	// patienceShare is the part of the budget that calls wait for a batch to end before one more is started.
	patienceShare = 10
	// turnShare is the part of the budget within which a call must be sent; the rest is the store's.
	turnShare = 2
	// floodTurnShare is that part for a tenant with more than a quantum waiting, while other tenants wait. It is smaller
	// because a batch must end within what is left to its oldest call, and all calls of a flooding tenant are old.
	floodTurnShare = 4
)

// Options are the settings of a Combiner. All but Shed are required.
type Options struct {
	// Budget is the time within which a call is answered.
	Budget time.Duration
	// InFlight is how many batches are in flight while the store is quick, and MaxInFlight how many at most.
	InFlight, MaxInFlight int
	// FirstBatch and MaxBatch are the first and the largest limit of a batch in tiers, unless it is a single check. If they
	// are equal, the limit stays.
	FirstBatch, MaxBatch int
	// Send has a batch answered: it marks the checks that are Answered, and sets the errors of the others. It must not keep
	// the batch.
	Send func(*Batch)
	// Shed is told how many checks of a call fail because more waits than the store decides in time: early ones at
	// once, the others after they waited. It must not call the Combiner.
	Shed func(checks int, early bool)
}

// Combiner combines calls. It is safe for concurrent use.
type Combiner struct {
	Options
	callPool sync.Pool

	mu         sync.Mutex
	waiting    fairQueue
	inFlight   int       // batches; nobody waits while there are fewer than InFlight
	lastAnswer time.Time // to any batch
	pace       pace
	overload   overload
	// spill runs while calls wait.
	spill    *time.Timer
	spilling bool
}

// Batch is what a store decides at once. Its memory is reused.
type Batch struct {
	Calls    []*Call
	Tiers    int       // of all checks
	Deadline time.Time // of the call that has waited longest
	SentAt   time.Time

	// Answered: the store answered, if only with an error.
	Answered bool
	// Err is why some checks have no answer, where their Call has no error of its own.
	Err error

	full   bool // more checks waited than it had room for
	shared bool // several tenants waited when it was filled
}

var batchPool = sync.Pool{New: func() any { return &Batch{} }}

// release makes the memory available again.
func (b *Batch) release() {
	clear(b.Calls[:cap(b.Calls)])
	*b = Batch{Calls: b.Calls[:0]}
	batchPool.Put(b)
}

// decided returns how many tiers the store decided.
func (b *Batch) decided() int {
	if b.Answered {
		return b.Tiers
	}
	return 0
}

// Call is one Take in flight. Once it has entered, the combiner owns it until its turn.
type Call struct {
	// Sending are the checks in the batch that is being filled or in flight.
	Sending []enforce.BucketCheck
	// QueuedAt is when the call began to wait for its turn here.
	QueuedAt time.Time
	// Err is why a check has no answer.
	Err error

	begun  time.Time             // the call is answered within the budget from then
	checks []enforce.BucketCheck // not sent yet
	tenant rules.TenantID        // whose flow it waits in

	flow        *flow // nil unless it waits
	next        *Call // in the flow
	queuedTiers int   // while it waits

	// turn wakes a waiting call: true makes it the leader of the next batch, false ends it.
	turn chan bool
}

// New returns a Combiner.
func New(options Options) *Combiner {
	q := &Combiner{Options: options, pace: newPace(options)}
	q.callPool.New = func() any { return &Call{turn: make(chan bool, 1)} }
	q.spill = time.AfterFunc(q.Budget, q.spillOver)
	q.spill.Stop()
	return q
}

// Submit has checks answered within the budget from begun; err says why some were not. A call of several batches has
// a budget for each: last is when that of the last one began. A call may have begun elsewhere, before it came here.
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

// enter reports whether the call leads a batch at once. If not, it waits, or has failed because its tenant has too much
// waiting.
func (q *Combiner) enter(c *Call) (leads bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inFlight < q.InFlight {
		q.inFlight++
		return true
	}
	if now := time.Now(); q.refuses(c, now) || !q.waiting.push(c) {
		q.overload.begin(now)
		q.fail(c, ErrOverloaded)
		c.turn <- false
		return false
	}
	if !q.spilling && q.MaxInFlight > q.InFlight {
		q.spilling = true
		q.spill.Reset(q.patience())
	}
	return false
}

// lead sends a batch and wakes its followers. If send panics, they get an error and the leader gets the panic.
func (q *Combiner) lead(c *Call) (next afterBatch) {
	runtime.Gosched() // callers that are about to submit join this batch: a third more checks share a script
	b := q.fill(c)
	sent := false
	defer func() {
		if !sent {
			b.Err = errPanicked
		}
		next = q.finish(b, c)
		b.release()
	}()
	q.Send(b)
	sent = true
	return next
}

// fill gathers the next batch: checks of its leader, then of waiting calls by deficit round robin.
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

// visit adds calls of a flow to a batch as far as the flow's deficit allows, and reports whether the batch may have room
// for other flows.
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
			return len(c.checks[0].Tiers) <= size-b.Tiers
		}
		f.deficit -= b.Tiers - before
		if c.Err == nil && len(c.checks) > 0 {
			return b.Tiers < size // the next visit goes on with it
		}
		f.shift()
	}
	return true
}

// addTo adds up to share tiers of a call's checks to a batch, and reports whether there was room for any. A call that has
// waited too long fails instead: the batch would have to end in the little time that it has left.
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
	for n < len(c.checks) && (len(c.checks[n].Tiers) <= room || b.Tiers == 0) {
		room -= len(c.checks[n].Tiers)
		b.Tiers += len(c.checks[n].Tiers)
		n++
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

// turn returns the time within which a call of a tenant must be sent; shared says whether several tenants wait.
func (q *Combiner) turn(shared bool, tenant rules.TenantID) time.Duration {
	if shared {
		if f := q.waiting.flowOf(tenant); f != nil && f.tiers > quantum {
			return q.Budget / floodTurnShare
		}
	}
	return q.Budget / turnShare
}

// afterBatch is what the leader of a batch does after its reply.
type afterBatch int

const (
	done      afterBatch = iota
	waitTurn             // it has more checks, and others come first
	leadAgain            // it has more checks, and it is its turn
)

// Depth returns how many tiers wait.
func (q *Combiner) Depth() (tiers int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for f := q.waiting.first; f != nil; f = f.next {
		tiers += f.tiers
	}
	return tiers
}

// finish ends a batch: it wakes the followers that are done, queues calls with more checks, and wakes the next leader.
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
	if b.Answered || now.Sub(b.SentAt) > q.patience() {
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

// requeue makes a call with more checks wait with a new budget, and reports whether there was room.
func (q *Combiner) requeue(c *Call, now time.Time) bool {
	c.QueuedAt, c.begun = now, now
	if !q.waiting.push(c) {
		q.overload.begin(now)
		q.fail(c, ErrOverloaded)
		return false
	}
	return true
}

// nextLeader returns the leader of the next batch; nil if no call waits or enough batches are in flight.
func (q *Combiner) nextLeader() *Call {
	if q.waiting.empty() || q.inFlight > q.InFlight {
		q.inFlight--
		return nil
	}
	return q.waiting.pop()
}

// spillOver starts one more batch if calls have waited too long for one to end.
func (q *Combiner) spillOver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting.empty() {
		q.spilling = false
		return
	}
	since := q.waiting.head().QueuedAt
	if q.lastAnswer.After(since) {
		since = q.lastAnswer
	}
	if remaining := q.patience() - time.Since(since); remaining > 0 {
		q.spill.Reset(remaining)
		return
	}
	if q.inFlight < q.MaxInFlight {
		q.inFlight++
		q.waiting.pop().turn <- true
	}
	q.spill.Reset(q.patience())
}

func (q *Combiner) patience() time.Duration { return q.Budget / patienceShare }

// errPanicked fails the followers of a leader whose goroutine panicked.
var errPanicked = errors.New("sending the batch panicked")
