package sluice

import "time"

// watch ends the waits of calls at the timeout, and starts another request when those in flight hang. All calls share a
// timer, because a timer for each check was too expensive.
type watch struct {
	timer *time.Timer // nil before the first wait
	runs  bool
}

// start requires the queue's mu.
func (w *watch) start(q *queue) {
	if w.runs {
		return
	}
	w.runs = true
	if first := q.client.config.Timeout / stallFraction; w.timer == nil {
		w.timer = time.AfterFunc(first, func() {
			if q.client.recovered("the watch of time-outs", q.look) {
				q.mu.Lock()
				defer q.mu.Unlock()
				w.timer.Reset(first)
			}
		})
	} else {
		w.timer.Reset(first)
	}
}

// look ends overdue waits, and sets the timer for the next, early enough for a call that comes right after.
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

// timeOut ends the wait of an overdue call, or lowers next to the time until then.
func (c *call) timeOut(now time.Time, timeout time.Duration, next *time.Duration) bool {
	if rest := timeout - now.Sub(c.since); rest > 0 {
		*next = min(*next, rest)
		return false
	}
	c.left = true
	c.done <- struct{}{}
	return true
}

// hasStalled reports whether another call has waited for a quarter of the timeout, or lowers next to the time until
// then.
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
