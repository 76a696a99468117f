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
	// inFlight is how many requests are in flight before checks wait to share the next one. Two keep the server busy
	// while one answer travels.
	inFlight = 2
	// mostInFlight caps the requests that are added while those in flight hang.
	mostInFlight = 16
	// A check that waits a quarter of the time-out starts another request: those in flight hang, and others may not.
	stallFraction = 4
	// failuresUntilProbing is after how many failures in a row only one request at a time is risked, as a probe, and the
	// failure mode decides the other checks at once.
	failuresUntilProbing = 5

	// leastShare is how many checks go together however few are in flight: so few are done with soon.
	leastShare    = 32
	maxBatch      = 256
	maxBatchBytes = 512 << 10 // half of what the server takes
)

var (
	errProbing = errors.New("the last requests failed, and another one is trying")
	errClosed  = errors.New("the client is closed")
)

// queue lets concurrent checks share requests: whatever waits when a request ends goes in one batch.
type queue struct {
	client *Client

	mu       sync.Mutex
	inFlight int
	failures int // in a row
	waiting  []*call
	flights  []*flight // requests in flight for calls that waited
	watch    watch
}

// call is a check that waits for its share of a request. Its memory is reused if it was answered.
type call struct {
	question
	decision Decision
	failed   *Error
	done     chan struct{} // told once, when one of them is set; it has room for that, so nobody waits for a caller that left

	since   time.Time // when it began to wait
	stalled bool      // the watch has seen it wait for a quarter of the time-out
	left    bool      // its caller does not wait any more; its request may go on
	landed  bool      // its request is over, and its caller is about to be told
}

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

// flight is a request in flight, and the calls that share it, in the order in which they came.
type flight struct{ calls []*call }

// ask returns within the time-out, or when ctx ends.
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

// alone asks in the caller's own goroutine.
func (q *queue) alone(ctx context.Context, asked *question) (Decision, *Error) {
	within, cancel := context.WithTimeout(ctx, q.client.config.Timeout)
	defer cancel()
	decision, failed := q.client.postCheck(within, asked)
	if ctx.Err() != nil {
		q.ended(unknown) // the caller left, which says nothing about the server
	} else {
		q.ended(outcomeOf(failed))
	}
	return decision, failed
}

// wait waits for the sender of the call's request, or for the watch.
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

// leave is for a caller that is gone. A check that waits is taken out of the queue, so that nothing is taken for it.
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

// ended counts a request that is over, and sends those that waited for it.
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

// share returns how many checks the next batch has at most, so that those in flight have about as many each. If one had most
// checks, nothing would be done while it is written or read, and the few others would cost a whole request.
func (q *queue) share() int {
	all := len(q.waiting) + q.inFlight - len(q.flights)
	for _, f := range q.flights {
		all += len(f.calls)
	}
	return max(leastShare, (all+inFlight-1)/inFlight)
}

// sendNext sends the checks that wait, up to most, as many as fit in a batch. mu must be held.
func (q *queue) sendNext(most int) {
	n, size := 0, 0
	for n < min(len(q.waiting), most, maxBatch) && (n == 0 || size+len(q.waiting[n].body) < maxBatchBytes) {
		size += len(q.waiting[n].body)
		n++
	}
	if n == 0 || q.client.life.Err() != nil { // Close waits for what is in flight, and nothing is added to that
		return
	}
	f := &flight{q.waiting[:n:n]}
	q.waiting = q.waiting[n:]
	q.inFlight++
	q.flights = append(q.flights, f)
	q.client.work.Go(func() { q.send(f) })
}

// send asks for several callers. The request is nobody's own, so no caller's context ends it.
func (q *queue) send(f *flight) {
	ctx, cancel := context.WithTimeout(q.client.life, q.client.config.Timeout)
	defer cancel()
	failed := q.post(ctx, f.calls)
	for q.land(f); len(f.calls) > 1 && failed != nil && failed.Kind == KindRequest; q.land(f) {
		// Nothing was taken. Those that are not valid are told, and the others asked again without them.
		rest := tell(f.calls, failed)
		if len(rest) == len(f.calls) {
			break
		}
		if f.calls = rest; len(rest) == 0 {
			break
		}
		q.takeOff(f)
		failed = q.post(ctx, rest)
	}
	for _, c := range f.calls {
		if c.left && failed == nil { // else a place would stay taken until its max_hold
			q.client.ReleaseLater(q.client.life, c.decision.Reservation)
		}
		c.end(failed)
	}
	// Those callers' next checks share the next request, instead of waiting for the one after it. Two turns, because some met at a
	// lock in the first.
	runtime.Gosched()
	runtime.Gosched()
	q.ended(outcomeOf(failed))
}

// post asks for one call or several.
func (q *queue) post(ctx context.Context, batch []*call) (failed *Error) {
	if len(batch) > 1 {
		return q.client.postBatch(ctx, len(batch), func(i int) (*question, *Decision) { return &batch[i].question, &batch[i].decision })
	}
	batch[0].decision, failed = q.client.postCheck(ctx, &batch[0].question)
	return failed
}

// takeOff lets the watch know the calls of a request.
func (q *queue) takeOff(f *flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range f.calls {
		c.landed = false
	}
	q.flights = append(q.flights, f)
}

// land takes the calls of a request from the watch. From then on none of them times out, and none is left by its caller.
func (q *queue) land(f *flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range f.calls {
		c.landed = true
	}
	i := slices.Index(q.flights, f)
	q.flights = slices.Delete(q.flights, i, i+1)
}

// end wakes the caller, if it still waits.
func (c *call) end(failed *Error) {
	if !c.left {
		c.failed = failed
		c.done <- struct{}{}
	}
}

// tell ends the calls that a 400 names, each with the pointers of its own check, and returns the others that still wait.
func tell(batch []*call, failed *Error) []*call {
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

// outcome is what a request says about the server.
type outcome int

const (
	answered outcome = iota // it decided, or refused: a refusal is an answer
	silent
	unknown
)

func outcomeOf(failed *Error) outcome {
	if failed == nil || failed.Kind == KindRequest || failed.Kind == KindKey {
		return answered
	}
	return silent
}
