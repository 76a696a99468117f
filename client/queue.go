package sluice

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// inFlight is the number of concurrent requests; further checks wait for the next batch. Two keep the server busy
	// while an answer travels.
	inFlight = 2
	// mostInFlight bounds the requests that are added while others hang.
	mostInFlight = 16
	// A check that waits a quarter of the timeout starts another request, because those in flight hang.
	stallFraction = 4
	// failuresUntilProbing is the number of consecutive failures after which only one request at a time is sent as a
	// probe, while the failure mode decides the other checks at once.
	failuresUntilProbing = 5

	// leastShare is the minimal bound of a batch: so few checks are done soon.
	leastShare    = 32
	maxBatch      = 256
	maxBatchBytes = 512 << 10 // half of the server's bound
)

var (
	errProbing = errors.New("the last requests failed, and another one is trying")
	errClosed  = errors.New("the client is closed")
	// errPanicked: a transport of the caller's own may panic.
	errPanicked = errors.New("the request panicked")
)

// queue batches concurrent checks: the checks that wait when a request ends share the next one.
type queue struct {
	client *Client

	mu       sync.Mutex
	inFlight int
	failures int // consecutive
	waiting  []*call
	flights  []*flight // batches in flight
	watch    watch
}

// call is a check that waits for a batch. Its memory is reused after an answer.
type call struct {
	question
	decision Decision
	failed   *Error
	// signals the result once; buffered, so that the sender never waits for a caller that left
	done chan struct{}

	since   time.Time // start of the wait
	stalled bool      // the watch saw it wait for a quarter of the timeout
	left    bool      // its caller has left; its request may continue
	landed  bool      // its request has ended, and its caller is about to get the result
}

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

// flight is a batch in flight, with its calls in order of arrival.
type flight struct{ calls []*call }

// ask returns within the timeout, or when ctx ends.
func (q *queue) ask(ctx context.Context, asked *question) (Decision, *Error) {
	c := q.client
	if c.life.Err() != nil {
		return Decision{}, &Error{Kind: KindConnection, Err: errClosed}
	}
	now := time.Now()
	q.mu.Lock()
	switch {
	case q.failures >= failuresUntilProbing && q.inFlight > 0:
		q.mu.Unlock()
		return Decision{}, &Error{Kind: KindConnection, Err: errProbing}
	case c.config.Unbatched || q.inFlight < inFlight:
		q.inFlight++
		q.mu.Unlock()
		return q.alone(ctx, asked)
	}
	waiter := calls.Get().(*call)
	waiter.question, waiter.since = *asked, now
	q.waiting = append(q.waiting, waiter)
	q.watch.start(q)
	q.mu.Unlock()
	return q.wait(ctx, waiter)
}

// alone sends a check in the caller's goroutine.
func (q *queue) alone(ctx context.Context, asked *question) (Decision, *Error) {
	within, cancel := context.WithTimeout(ctx, q.client.config.Timeout)
	defer cancel()
	how := silent // after a panic
	defer func() { q.ended(how) }()
	decision, failed := q.client.postCheck(within, asked)
	if how = outcomeOf(failed); ctx.Err() != nil {
		how = unknown // the caller left, which says nothing about the server
	}
	return decision, failed
}

// wait waits for the sender of the batch, or for the watch.
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

// leave handles a caller that has left. A waiting check is removed from the queue, so that it takes no tokens.
func (q *queue) leave(waiter *call) (hasAnswer bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, other := range q.waiting {
		if other == waiter {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			return false
		}
	}
	if waiter.landed && !waiter.left {
		return true
	}
	waiter.left = true
	return false
}

// ended records the end of a request, and sends the waiting checks.
func (q *queue) ended(how outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.inFlight--
	switch how {
	case answered:
		q.failures = 0
	case silent:
		q.failures++
	}
	if q.inFlight < inFlight {
		q.sendNext(q.share())
	}
}

// share bounds the next batch, so that batches in flight are about equal. A batch with most checks would leave the
// server idle while it is encoded or decoded.
func (q *queue) share() int {
	all := len(q.waiting) + q.inFlight - len(q.flights)
	for _, f := range q.flights {
		all += len(f.calls)
	}
	return max(leastShare, (all+inFlight-1)/inFlight)
}

// sendNext sends up to most waiting checks, as many as fit in a batch. mu must be held.
func (q *queue) sendNext(most int) {
	n, size := 0, 0
	for n < min(len(q.waiting), most, maxBatch) && (n == 0 || size+len(q.waiting[n].body) < maxBatchBytes) {
		size += len(q.waiting[n].body)
		n++
	}
	if n == 0 || q.client.life.Err() != nil { // Close waits for requests in flight, and none may be added
		return
	}
	f := &flight{q.waiting[:n:n]}
	q.waiting = q.waiting[n:]
	q.inFlight++
	q.flights = append(q.flights, f)
	q.client.background("a request", func() { q.send(f) })
}

// send sends a batch. No caller's context ends it.
func (q *queue) send(f *flight) {
	ctx, cancel := context.WithTimeout(q.client.life, q.client.config.Timeout)
	defer cancel()
	panicked := &Error{Kind: KindConnection, Err: errPanicked}
	failed := panicked
	defer func() { q.deliver(f, failed) }()
	failed = q.post(ctx, f.calls)
	for q.land(f); len(f.calls) > 1 && failed != nil && failed.Kind == KindRequest; q.land(f) {
		// Nothing was taken. Invalid checks get their error, and the others are sent again.
		rest := endRefused(f.calls, failed)
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

// deliver ends a request and the waits of its callers.
func (q *queue) deliver(f *flight, failed *Error) {
	q.land(f)
	for _, c := range f.calls {
		if c.left && failed == nil { // otherwise a slot would stay taken until its max_hold
			q.client.ReleaseLater(q.client.life, c.decision.Reservation)
		}
		c.end(failed)
	}
	// The callers' next checks join the next batch. Two turns, because some met at a lock in the first.
	runtime.Gosched()
	runtime.Gosched()
	q.ended(outcomeOf(failed))
}

// post sends one call or several.
func (q *queue) post(ctx context.Context, batch []*call) (failed *Error) {
	if len(batch) > 1 {
		return q.client.postBatch(ctx, len(batch),
			func(i int) (*question, *Decision) { return &batch[i].question, &batch[i].decision })
	}
	batch[0].decision, failed = q.client.postCheck(ctx, &batch[0].question)
	return failed
}

// takeOff returns the calls of a batch to the watch.
func (q *queue) takeOff(f *flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range f.calls {
		c.landed = false
	}
	q.flights = append(q.flights, f)
}

// land takes the calls of a batch from the watch. From then on none of them times out or is left.
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

// end wakes the caller, if it still waits.
func (c *call) end(failed *Error) {
	if !c.left {
		c.failed = failed
		c.done <- struct{}{}
	}
}

// endRefused ends the calls that a 400 names, with the pointers of each, and returns the others that still wait.
func endRefused(batch []*call, failed *Error) []*call {
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
	var rest []*call
	for i, c := range batch {
		if fields, ok := own[i]; ok {
			named := *failed
			named.Fields = fields
			c.end(&named)
		} else if !c.left {
			rest = append(rest, c)
		}
	}
	return rest
}

// outcome is what a request shows about the server.
type outcome int

const (
	answered outcome = iota // decided or refused; a refusal is an answer
	silent
	unknown
)

func outcomeOf(failed *Error) outcome {
	if failed == nil || failed.Kind == KindRequest || failed.Kind == KindKey {
		return answered
	}
	return silent
}
