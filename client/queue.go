package sluice

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	inFlight     = 2  // keep the server busy while an answer travels
	mostInFlight = 16 // including those added while others hang
	// stallFraction of the timeout is how long a check waits before it sends a request beside those that hang.
	stallFraction = 4

	leastShare    = 32 // least bound of a batch: so few checks are done soon
	maxBatch      = 256
	maxBatchBytes = 512 << 10 // half of the server's bound

	maxWaiting = 16_384 // of one identity
)

var (
	errProbing  = errors.New("the last requests failed, and it is too early for another one")
	errClosed   = errors.New("the client is closed")
	errTooMany  = errors.New("too many of the same check wait already")
	errPanicked = errors.New("the request panicked") // the caller's transport may
)

// queue batches concurrent checks: those that wait when a request ends share the next one. Identities take turns, so
// that one user's flood delays no other.
type queue struct {
	client *Client

	mu       sync.Mutex
	inFlight int
	breaker  breaker
	batches  breaker           // of askTogether: up to 1,000 checks may take longer than the timeout
	answered time.Time         // the last answer of the server
	groups   map[string]*group // by identity, while checks of it wait or are in flight
	turns    []*group          // those with waiting checks, the next one first
	waiting  int               // in all groups
	flights  []*flight         // batches in flight
	watch    watch
}

// group is the unanswered checks of one identity.
type group struct {
	identity string
	waiting  []*call // in order of arrival
	inTurns  bool
	inFlight int
	answered time.Time // the last answer to one of its checks
	denial   denial    // the last one while others waited
}

// call is a check that waits for a batch. Its memory is reused.
type call struct {
	question
	group    *group
	decision Decision
	failed   *Error
	done     chan struct{}

	since   time.Time // start of the wait
	stalled bool      // the watch saw it wait for a quarter of the timeout
	left    bool      // its caller has left; its request may continue
	landed  bool      // its request has ended, and its caller is about to get the result
}

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

type flight struct{ calls []*call }

// ask returns when the server answers, within the timeout, or when ctx ends.
func (q *queue) ask(ctx context.Context, asked *question) (Decision, *Error) {
	c := q.client
	if c.life.Err() != nil {
		return Decision{}, &Error{Kind: KindConnection, Err: errClosed}
	}
	now := time.Now()
	q.mu.Lock()
	if !q.breaker.admits() {
		q.mu.Unlock()
		return Decision{}, &Error{Kind: KindConnection, Err: errProbing}
	}
	g := q.group(asked.identity)
	switch {
	case c.config.Unbatched || q.inFlight < inFlight:
		q.inFlight++
		g.inFlight++
		q.mu.Unlock()
		return q.alone(ctx, asked, g)
	case len(g.waiting) >= maxWaiting:
		isHealthy := now.Sub(q.answered) < c.config.Timeout
		q.mu.Unlock()
		return tooMany(isHealthy)
	}
	waiter := calls.Get().(*call)
	waiter.question, waiter.since, waiter.group = *asked, now, g
	q.enqueue(waiter)
	q.watch.start(q)
	q.mu.Unlock()
	return q.wait(ctx, waiter)
}

// askTogether sends a caller's own batch in its goroutine.
func (q *queue) askTogether(ctx context.Context, asked []*question, decisions []Decision) *Error {
	q.mu.Lock()
	admitted := q.batches.admits()
	q.mu.Unlock()
	if !admitted {
		return &Error{Kind: KindConnection, Err: errProbing}
	}
	within, cancel := q.client.within(ctx)
	defer cancel()
	failed := q.client.postBatch(within, len(asked),
		func(i int) (*question, *Decision) { return asked[i], &decisions[i] })
	if ctx.Err() == nil { // a caller that left says nothing about the server
		q.mu.Lock()
		q.batches.ended(outcomeOf(failed))
		q.mu.Unlock()
	}
	return failed
}

// tooMany answers a check while maxWaiting equal ones wait. A healthy server would deny it after them.
func tooMany(isHealthy bool) (Decision, *Error) {
	failed := &Error{Kind: KindUnavailable, Err: errTooMany}
	if !isHealthy {
		return Decision{}, failed
	}
	return Decision{
		Status: http.StatusTooManyRequests, Reason: "too_many_waiting", RetryAfter: time.Second,
		Source: FromFailureMode, Err: failed,
	}, nil
}

// group requires mu.
func (q *queue) group(identity string) *group {
	g := q.groups[identity]
	if g == nil {
		g = &group{identity: identity}
		if q.groups == nil {
			q.groups = map[string]*group{}
		}
		q.groups[identity] = g
	}
	return g
}

// enqueue requires mu.
func (q *queue) enqueue(c *call) {
	g := c.group
	g.waiting = append(g.waiting, c)
	q.waiting++
	if !g.inTurns {
		g.inTurns = true
		q.turns = append(q.turns, g)
	}
}

// keep returns the group's calls that keep is false for to their callers. mu must be held.
func (q *queue) keep(g *group, keep func(*call) bool) {
	g.waiting = slices.DeleteFunc(g.waiting, func(c *call) bool {
		if keep(c) {
			return false
		}
		q.waiting--
		c.done <- struct{}{}
		return true
	})
}

// landed ends a group's check in flight. answer is nil without a decision of the server. mu must be held.
func (q *queue) landed(g *group, asked *question, answer *Decision) {
	g.inFlight--
	if answer != nil {
		g.answered = time.Now()
		if !answer.Allowed && asked.cost > 0 && len(g.waiting) > 0 {
			kept := *answer
			kept.Tiers = slices.Clone(answer.Tiers) // the caller may change its own
			g.denial = denial{decision: kept, cost: asked.cost, at: g.answered}
			q.keep(g, func(c *call) (keep bool) {
				recalled, ok := q.client.memory.recall(&c.question)
				c.decision = recalled
				return !ok
			})
		}
	}
	q.forget(g)
}

// forget requires mu.
func (q *queue) forget(g *group) {
	if len(g.waiting) == 0 && g.inFlight == 0 && q.groups[g.identity] == g {
		delete(q.groups, g.identity)
	}
}

func (q *queue) alone(ctx context.Context, asked *question, g *group) (Decision, *Error) {
	within, cancel := q.client.within(ctx)
	defer cancel()
	how := silent // after a panic
	var answer *Decision
	defer func() {
		q.mu.Lock()
		q.landed(g, asked, answer)
		q.mu.Unlock()
		q.ended(how)
	}()
	decision, failed := q.client.postCheck(within, asked)
	if how = outcomeOf(failed); ctx.Err() != nil {
		how = unknown // the caller left, which says nothing about the server
	}
	if failed == nil {
		q.client.memory.learn(asked, &decision)
		answer = &decision
	}
	return decision, failed
}

// wait waits for the batch's sender, or the watch.
func (q *queue) wait(ctx context.Context, waiter *call) (Decision, *Error) {
	select {
	case <-waiter.done:
	case <-ctx.Done():
		if hasAnswer := q.leave(waiter); hasAnswer {
			<-waiter.done
			q.client.ReleaseLater(ctx, waiter.decision.Reservation)
		}
		return Decision{}, failure(ctx.Err())
	}
	if waiter.left { // its memory may still be written to
		return Decision{}, failure(context.DeadlineExceeded)
	}
	decision, failed := waiter.decision, waiter.failed
	*waiter = call{done: waiter.done}
	calls.Put(waiter)
	return decision, failed
}

// leave removes a waiting check whose caller has left, so that it takes no tokens.
func (q *queue) leave(waiter *call) (hasAnswer bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	g := waiter.group
	if i := slices.Index(g.waiting, waiter); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
		q.waiting--
		q.forget(g)
		return false
	}
	if waiter.landed && !waiter.left {
		return true
	}
	waiter.left = true
	return false
}

func (q *queue) ended(how outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inFlight--
	if q.breaker.ended(how); how == answered {
		q.answered = time.Now()
	}
	if q.inFlight < inFlight {
		q.sendNext(q.share())
	}
}

// share keeps batches in flight about equal, because the server idles while a large one is coded.
func (q *queue) share() int {
	all := q.waiting + q.inFlight - len(q.flights)
	for _, f := range q.flights {
		all += len(f.calls)
	}
	return max(leastShare, (all+inFlight-1)/inFlight)
}

// sendNext sends up to most waiting checks, as many as fit in a batch. mu must be held.
func (q *queue) sendNext(most int) {
	if q.waiting == 0 || q.client.life.Err() != nil { // Close waits for requests in flight, and none may be added
		return
	}
	f := &flight{q.take(min(most, maxBatch))}
	q.inFlight++
	q.flights = append(q.flights, f)
	q.client.background("a request", func() { q.send(f) })
}

// take takes up to most calls, one of each group in turn. mu must be held.
func (q *queue) take(most int) (batch []*call) {
	batch = make([]*call, 0, min(most, q.waiting))
	for size := 0; len(q.turns) > 0 && len(batch) < most; {
		g := q.turns[0]
		if len(g.waiting) == 0 {
			q.turns, g.inTurns = q.turns[1:], false
			continue
		}
		c := g.waiting[0]
		if size += len(c.body); len(batch) > 0 && size >= maxBatchBytes {
			return batch
		}
		batch = append(batch, c)
		g.waiting[0] = nil
		g.waiting = g.waiting[1:]
		g.inFlight++
		q.waiting--
		q.turns, g.inTurns = q.turns[1:], len(g.waiting) > 0
		if g.inTurns {
			q.turns = append(q.turns, g)
		}
	}
	return batch
}

func (q *queue) send(f *flight) {
	ctx, cancel := q.client.within(q.client.life)
	defer cancel()
	panicked := &Error{Kind: KindConnection, Err: errPanicked}
	failed := panicked
	defer func() { q.deliver(f, failed) }()
	failed = q.post(ctx, f.calls)
	for q.land(f); len(f.calls) > 1 && failed != nil && failed.Kind == KindRequest; q.land(f) {
		// Nothing was taken, so the valid checks are sent again.
		rest := q.endRefused(f.calls, failed)
		if len(rest) == len(f.calls) {
			break
		}
		if f.calls = rest; len(rest) == 0 {
			break
		}
		q.takeOff(f)
		failed = panicked
		failed = q.post(ctx, rest)
	}
}

func (q *queue) deliver(f *flight, failed *Error) {
	q.land(f)
	q.learn(f.calls, failed)
	for _, c := range f.calls {
		if c.left && failed == nil { // otherwise a slot would stay taken until its max_hold
			q.client.ReleaseLater(q.client.life, c.decision.Reservation)
		}
		c.end(failed)
	}
	// The callers' next checks shall join the next batch. Two turns, because some met at a lock in the first.
	runtime.Gosched()
	runtime.Gosched()
	q.ended(outcomeOf(failed))
}

// learn caches a batch's denials, and ends the waits of checks that they deny.
func (q *queue) learn(batch []*call, failed *Error) {
	if failed == nil {
		for _, c := range batch {
			q.client.memory.learn(&c.question, &c.decision)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range batch {
		var answer *Decision
		if failed == nil {
			answer = &c.decision
		}
		q.landed(c.group, &c.question, answer)
	}
}

func (q *queue) post(ctx context.Context, batch []*call) (failed *Error) {
	if len(batch) > 1 {
		return q.client.postBatch(ctx, len(batch),
			func(i int) (*question, *Decision) { return &batch[i].question, &batch[i].decision })
	}
	batch[0].decision, failed = q.client.postCheck(ctx, &batch[0].question)
	return failed
}

func (q *queue) takeOff(f *flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range f.calls {
		c.landed = false
	}
	q.flights = append(q.flights, f)
}

// land takes calls from the watch, so that none times out or is left any more.
func (q *queue) land(f *flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range f.calls {
		c.landed = true
	}
	if i := slices.Index(q.flights, f); i >= 0 {
		q.flights = slices.Delete(q.flights, i, i+1)
	}
}

func (c *call) end(failed *Error) {
	if !c.left {
		c.failed = failed
		c.done <- struct{}{}
	}
}

// endRefused ends the calls that a 400 names, and returns the others that still wait.
func (q *queue) endRefused(batch []*call, failed *Error) []*call {
	own := make(map[int][]FieldError)
	for _, field := range failed.Fields {
		rest, ok := strings.CutPrefix(field.Pointer, "/checks/")
		if !ok {
			continue
		}
		number, pointer, _ := strings.Cut(rest, "/")
		if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < len(batch) {
			own[i] = append(own[i], FieldError{"/" + pointer, field.Detail})
		}
	}
	if len(own) == 0 {
		return batch
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var rest []*call
	for i, c := range batch {
		fields, ok := own[i]
		if !ok && !c.left {
			rest = append(rest, c)
			continue
		}
		q.landed(c.group, &c.question, nil)
		if ok {
			named := *failed
			named.Fields = fields
			c.end(&named)
		}
	}
	return rest
}
