package sluice

import "time"

// watch ends the waits of calls at the time-out, and starts another request where those in flight hang. It is one timer for all
// calls, because one for each would be set, waited for and stopped with every check.
type watch struct {
	timer *time.Timer // nil before the first call waits
	runs  bool
}

// start begins to watch, if nobody does. The queue's mu must be held.
func (w *watch) start(q *queue) {
	if w.runs {
		return
	}
	w.runs = true
	if first := q.client.config.Timeout / stallFraction; w.timer == nil {
		w.timer = time.AfterFunc(first, q.look)
	} else {
		w.timer.Reset(first)
	}
}

// look ends what has waited for too long, and says when to look again: no later than a call can stall that comes right after.
func (q *queue) look() {
	q.mu.Lock()
	defer q.mu.Unlock()
	timeout, now := q.client.config.Timeout, time.Now()
	next := timeout / stallFraction
	for len(q.waiting) > 0 && q.waiting[0].timeOut(now, timeout, &next) {
		q.waiting = q.waiting[1:]
	}
	for _, f := range q.flights {
		for _, c := range f.calls {
			if !c.left && !c.timeOut(now, timeout, &next) {
				break
			}
		}
	}
	if q.hasStalled(now, &next) && q.inFlight < mostInFlight && q.failures < failuresUntilProbing {
		q.sendNext(maxBatch)
	}
	if q.watch.runs = len(q.waiting)+len(q.flights) > 0; q.watch.runs {
		q.watch.timer.Reset(next)
	}
}

// timeOut ends the wait of a call if that is due, or else notes in next how long that takes.
func (c *call) timeOut(now time.Time, timeout time.Duration, next *time.Duration) bool {
	if rest := timeout - now.Sub(c.since); rest > 0 {
		*next = min(*next, rest)
		return false
	}
	c.left = true
	c.done <- struct{}{}
	return true
}

// hasStalled reports whether a call has waited for a quarter of the time-out since the last look, or notes in next when one will have.
func (q *queue) hasStalled(now time.Time, next *time.Duration) (has bool) {
	for _, c := range q.waiting {
		if c.stalled {
			continue
		}
		if left := q.client.config.Timeout/stallFraction - now.Sub(c.since); left > 0 {
			*next = min(*next, left)
			break
		}
		c.stalled, has = true, true
	}
	return has
}
