package sluice

import (
	"context"
	"errors"
	"runtime"
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
}

// call is a check that waits for its share of a request. Its memory is reused if it was answered.
type call struct {
	question
	decision Decision
	failed   *Error
	done     chan struct{} // told when one of them is set; it has room for that, so nobody waits for a caller that left
	timer    *time.Timer
}

var calls = sync.Pool{New: func() any {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &call{done: make(chan struct{}, 1), timer: timer}
}}

// answered returns the answer and gives the memory back.
func (c *call) answered() (Decision, *Error) {
	decision, failed := c.decision, c.failed
	c.timer.Stop()
	c.question, c.decision, c.failed = question{}, Decision{}, nil
	calls.Put(c)
	return decision, failed
}

// ask returns within the time-out, or when ctx ends.
func (q *queue) ask(ctx context.Context, asked *question) (Decision, *Error) {
	c := q.client
	if c.life.Err() != nil {
		return Decision{}, &Error{Kind: KindConnection, Err: errClosed}
	}
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
	waiter.question = *asked
	q.waiting = append(q.waiting, waiter)
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

func (q *queue) wait(ctx context.Context, waiter *call) (Decision, *Error) {
	timeout := q.client.config.Timeout
	waiter.timer.Reset(timeout / stallFraction)
	stalled := false
	for {
		select {
		case <-waiter.done:
			return waiter.answered()
		case <-ctx.Done():
			q.leave(waiter)
			waiter.timer.Stop()
			return Decision{}, failure(ctx.Err())
		case <-waiter.timer.C:
		}
		if stalled {
			q.leave(waiter)
			return Decision{}, failure(context.DeadlineExceeded)
		}
		stalled = true
		waiter.timer.Reset(timeout - timeout/stallFraction)
		q.mu.Lock()
		if q.inFlight < mostInFlight && q.failures < failuresUntilProbing {
			q.sendNext()
		}
		q.mu.Unlock()
	}
}

// leave takes a check out of the queue, so that nothing is taken for a caller that is gone.
func (q *queue) leave(waiter *call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, other := range q.waiting {
		if other == waiter {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			return
		}
	}
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
		q.sendNext()
	}
}

// sendNext sends the checks that wait, as many as fit in a batch. mu must be held.
func (q *queue) sendNext() {
	n, size := 0, 0
	for n < len(q.waiting) && n < maxBatch && (n == 0 || size+len(q.waiting[n].body) < maxBatchBytes) {
		size += len(q.waiting[n].body)
		n++
	}
	if n == 0 || q.client.life.Err() != nil { // Close waits for what is in flight, and nothing is added to that
		return
	}
	batch := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	q.inFlight++
	q.client.work.Go(func() { q.send(batch) })
}

// send asks for several callers. The request is nobody's own, so no caller's context ends it.
func (q *queue) send(batch []*call) {
	ctx, cancel := context.WithTimeout(q.client.life, q.client.config.Timeout)
	defer cancel()
	for len(batch) > 1 {
		failed := q.client.postBatch(ctx, len(batch), func(i int) (*question, *Decision) { return &batch[i].question, &batch[i].decision })
		if failed != nil && failed.Kind == KindRequest {
			// Nothing was taken. Those that are not valid are told, and the others asked again without them.
			if rest := tell(batch, failed); len(rest) < len(batch) {
				batch = rest
				continue
			}
		}
		for _, c := range batch {
			c.failed = failed
			c.done <- struct{}{}
		}
		runtime.Gosched() // those callers' next checks share the next request, instead of one of them going alone
		q.ended(outcomeOf(failed))
		return
	}
	var failed *Error
	for _, c := range batch {
		c.decision, c.failed = q.client.postCheck(ctx, &c.question)
		failed = c.failed
		c.done <- struct{}{}
	}
	q.ended(outcomeOf(failed))
}

// tell ends the calls that a 400 names, each with the pointers of its own check, and returns the others.
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
			c.failed = &named
			c.done <- struct{}{}
		} else {
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
