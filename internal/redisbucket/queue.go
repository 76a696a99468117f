package redisbucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluicegate/sluice/internal/enforce"
)

const (
	// pipelines is how many are under way while Redis is quick: one being executed, and one whose
	// answers are being read. One alone would save a seventh of Redis's time on two shared cores, and with
	// Redis a network away make every check wait for the one before it; more make each smaller.
	pipelines = 2
	// maxPipelines is how many are under way at most.
	maxPipelines = 16
	// patienceShare is the part of the budget that calls in line wait for one of the few to end.
	patienceShare = 10
	// turnShare is the part of the budget in which a call must have its turn; the rest is Redis's.
	turnShare = 2
	// maxPipelineTiers is how many tiers the checks of one pipeline have at most, unless it is a
	// single check: a few milliseconds of Redis's time.
	maxPipelineTiers = 4 * maxKeys
)

// queue lets concurrent calls share pipelines. A call that finds less than a few of them under way
// sends its own at once, in its own goroutine. Others wait, and when a pipeline ends, the one that has
// waited longest sends the next, with all who wait. Nobody waits for others to come: how large a
// pipeline is depends on how many came during the last.
//
// When calls have waited for a tenth of the budget and no pipeline has ended, because Redis is far away
// or a connection hangs, one more is started, up to 16. So a connection that hangs delays hardly anybody
// but those whose checks it carries. When Redis is quick, but asked for more than it can do, no more
// are started: they would only wait inside Redis, and time out there with their tokens taken. A call that
// has no turn within half of the budget fails instead, before anything was sent.
//
// Turns are taken in the order of asking. While others wait, a call has at most half of a pipeline, so
// that single checks never stand behind the whole of a large batch; the rest of it goes to the end of
// the line when the first were answered, and so is taken in order.
type queue struct {
	budget time.Duration
	send   func(*pipeline)
	calls  sync.Pool

	mu       sync.Mutex
	waiting  []*call   // in the order of their turns
	underWay int       // pipelines; nobody waits while there are less than a few
	ended    time.Time // when one was last answered
	// spill runs while calls wait.
	spill    *time.Timer
	spilling bool
}

// call is one Take on its way. It is the queue's from enter until its turn.
type call struct {
	asks []enforce.Ask // what is left to send
	// asked is when the call began to wait for its turn. It is answered within the budget from there.
	asked time.Time
	err   error
	// turn wakes a call in line: with true it is to send the next pipeline, with false it is finished.
	turn chan bool
}

// pipeline is what one turn sends. Its memory is used again.
type pipeline struct {
	parts    []part
	tiers    int       // of all asks
	deadline time.Time // of the call that has waited longest
	err      error     // why some asks were not answered

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
	emptyPipelines.Put(p)
}

// part is the asks of one call that go in one pipeline.
type part struct {
	call *call
	asks []enforce.Ask
	err  error // why some of them were not answered
}

// blame gives each part with asks that were not answered its error: what Redis said of their own script, or else what
// happened to the whole pipeline.
func (p *pipeline) blame() {
	own := map[*enforce.Ask]error{}
	for _, s := range p.scripts {
		if s.err != nil {
			for _, ask := range s.asks {
				own[ask] = s.err
			}
		}
	}
	for i := range p.parts {
		part := &p.parts[i]
		for j := range part.asks {
			if ask := &part.asks[j]; !ask.Answered {
				if part.err = own[ask]; part.err == nil {
					part.err = p.err
				}
				break
			}
		}
	}
}

func newQueue(budget time.Duration, send func(*pipeline)) *queue {
	q := &queue{budget: budget, send: send}
	q.calls.New = func() any { return &call{turn: make(chan bool, 1)} }
	q.spill = time.AfterFunc(budget, q.spillOver)
	q.spill.Stop()
	return q
}

// take has asks answered, within the budget from asked; the error is what kept some of them from it. A call of several
// pipelines has a budget for each: last is when that of the last one began.
func (q *queue) take(asks []enforce.Ask, asked time.Time) (last time.Time, err error) {
	c := q.calls.Get().(*call)
	defer q.calls.Put(c)
	c.asks, c.asked, c.err = asks, asked, nil
	for lead := q.enter(c) || <-c.turn; lead; {
		switch q.lead(c) {
		case again:
		case finished:
			lead = false
		case inLine:
			lead = <-c.turn
		}
	}
	return c.asked, c.err
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

// enter says whether the call may send a pipeline at once. If not, it stands in line.
func (q *queue) enter(c *call) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.underWay < pipelines {
		q.underWay++
		return true
	}
	q.waiting = append(q.waiting, c)
	if !q.spilling {
		q.spilling = true
		q.spill.Reset(q.patience())
	}
	return false
}

// fill takes what the next pipeline carries: asks of the call whose turn it is, then of those in line.
func (q *queue) fill(c *call) *pipeline {
	p := emptyPipelines.Get().(*pipeline)
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	share := maxPipelineTiers
	if len(q.waiting) > 0 {
		share /= 2
	}
	q.put(p, c, share, now)
	taken := 0
	for taken < len(q.waiting) && q.put(p, q.waiting[taken], share, now) {
		taken++
	}
	q.waiting = slices.Delete(q.waiting, 0, taken)
	return p
}

// put puts a share of a call's asks into a pipeline, and says whether there was room for any. A call
// with little time left would be the end of those that go with it, so it fails instead.
func (q *queue) put(p *pipeline, c *call, share int, now time.Time) bool {
	due := c.asked.Add(q.budget)
	if now.Sub(c.asked) > q.budget/turnShare {
		c.err = errNoTurn
		p.parts = append(p.parts, part{call: c})
		return true
	}
	n, room := 0, min(share, maxPipelineTiers-p.tiers)
	for n < len(c.asks) && (len(c.asks[n].Tiers) <= room || p.tiers == 0) {
		room -= len(c.asks[n].Tiers)
		p.tiers += len(c.asks[n].Tiers)
		n++
	}
	if n == 0 {
		return false
	}
	p.parts = append(p.parts, part{call: c, asks: c.asks[:n]})
	c.asks = c.asks[n:]
	if p.deadline.IsZero() || due.Before(p.deadline) {
		p.deadline = due
	}
	return true
}

// fate is what becomes of the call that sent a pipeline.
type fate int

const (
	finished fate = iota
	inLine        // it has more asks, and others come first
	again         // it has more asks, and it is its turn
)

// finish wakes the calls that a pipeline has finished, puts those with more asks in line again, and
// hands the turn on.
func (q *queue) finish(p *pipeline, sender *call) fate {
	now := time.Now()
	if p.err != nil {
		p.blame()
	}
	q.mu.Lock()
	if p.err == nil || isAnswer(p.err) {
		q.ended = now
	}
	own := finished
	woken := p.parts[:0]
	for _, part := range p.parts {
		c := part.call
		if part.err != nil {
			c.err = part.err
		}
		switch {
		case c.err == nil && len(c.asks) > 0:
			c.asked = now // each pipeline has a budget of its own
			q.waiting = append(q.waiting, c)
			if c == sender {
				own = inLine
			}
		case c != sender:
			woken = append(woken, part)
		}
	}
	next := q.handOn()
	q.mu.Unlock()
	for _, part := range woken {
		part.call.turn <- false
	}
	if next == sender {
		return again
	}
	if next != nil {
		next.turn <- true
	}
	return own
}

// handOn takes the call out of the line that is to send the next pipeline; nil if there is none, or if
// more pipelines are under way than a few.
func (q *queue) handOn() *call {
	if len(q.waiting) == 0 || q.underWay > pipelines {
		q.underWay--
		return nil
	}
	next := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	return next
}

// spillOver starts one more pipeline for calls that have waited too long for one to end.
func (q *queue) spillOver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.spilling = false
		return
	}
	since := q.waiting[0].asked
	if q.ended.After(since) {
		since = q.ended
	}
	if left := q.patience() - time.Since(since); left > 0 {
		q.spill.Reset(left)
		return
	}
	if q.underWay < maxPipelines {
		q.underWay++
		next := q.waiting[0]
		q.waiting = slices.Delete(q.waiting, 0, 1)
		next.turn <- true
	}
	q.spill.Reset(q.patience())
}

func (q *queue) patience() time.Duration { return q.budget / patienceShare }

// errPanicked fails the followers of a leader whose goroutine panicked.
var errPanicked = errors.New("sending the pipeline panicked")

// errNoTurn fails a call that came behind so many others that its time was over. It says nothing about
// Redis but that it is slow.
var errNoTurn = fmt.Errorf("waited for a turn: %w", context.DeadlineExceeded)
