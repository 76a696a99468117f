package sluice

import (
	"slices"
	"time"
)

// watch ends calls at the timeout, and starts another request when those in flight hang. All calls share a timer,
// because one for each check was too expensive.
type watch struct {
	timer *time.Timer // nil before the first wait
	runs  bool
	ends  bool // a goroutine ends overdue waits
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

// look sends another request for stalled calls, ends overdue ones, and sets the timer early enough for a call that
// comes right after.
func (q *queue) look() {
	timeout, now := q.client.config.Timeout, time.Now()
	next := timeout / stallFraction
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turns = slices.DeleteFunc(q.turns, func(g *group) bool {
		g.inTurns = len(g.waiting) > 0
		return !g.inTurns
	})
	due, isOverdue := q.findOverdue(now, &next)
	if q.hasStalled(now, &next) && q.inFlight < mostInFlight && !q.breaker.isOpen() {
		q.sendNext(maxBatch)
	}
	if isOverdue && !q.watch.ends {
		q.watch.ends = true
		go q.client.recovered("the end of overdue checks", func() { q.endWhenCalm(due, now) })
	}
	if q.watch.runs = q.waiting+len(q.flights) > 0; q.watch.runs {
		q.watch.timer.Reset(next)
	}
}

// endWhenCalm ends the waits that were overdue at a time, the last of them since due, when the process is calm.
func (q *queue) endWhenCalm(due, at time.Time) {
	q.client.calm.await(due, q.client.config.Timeout)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.watch.ends = false
	q.endOverdue(at)
}

// isOverdue may lower next to the time until then.
func (c *call) isOverdue(now time.Time, timeout time.Duration, next *time.Duration) bool {
	if rest := timeout - now.Sub(c.since); rest > 0 {
		*next = min(*next, rest)
		return false
	}
	return true
}

// findOverdue reports whether a call is overdue, and since when at most; it may lower next. mu must be held.
func (q *queue) findOverdue(now time.Time, next *time.Duration) (due time.Time, has bool) {
	timeout := q.client.config.Timeout
	find := func(c *call) bool {
		if !c.isOverdue(now, timeout, next) {
			return false
		}
		if at := c.since.Add(timeout); at.After(due) {
			due = at
		}
		has = true
		return true
	}
	for _, g := range q.turns {
		for _, c := range g.waiting {
			if !find(c) {
				break // later ones have waited for less
			}
		}
	}
	for _, f := range q.flights {
		for _, c := range f.calls {
			if !c.left {
				find(c)
			}
		}
	}
	return due, has
}

// endOverdue requires mu.
func (q *queue) endOverdue(now time.Time) {
	timeout, ignored := q.client.config.Timeout, time.Duration(0)
	for _, g := range slices.Clone(q.turns) {
		q.keep(g, func(c *call) (keep bool) {
			if !c.isOverdue(now, timeout, &ignored) {
				return true
			}
			if g.denial.at.After(c.since) && c.cost >= g.denial.cost {
				c.decision = g.denial.decided(time.Now())
				return false
			}
			c.left = !q.waitsOn(c)
			return !c.left
		})
		q.forget(g)
	}
	for _, f := range q.flights {
		for _, c := range f.calls {
			if !c.left && c.isOverdue(now, timeout, &ignored) && !q.waitsOn(c) {
				c.left = true
				c.done <- struct{}{}
			}
		}
	}
}

// waitsOn reports whether an overdue call waits longer: the server answers, and the same check is in flight or was just
// answered. The failure mode would let a flood pass. mu must be held.
func (q *queue) waitsOn(c *call) bool {
	g, timeout, now := c.group, q.client.config.Timeout, time.Now()
	return q.client.life.Err() == nil && now.Sub(c.since) < longTimeouts*timeout && now.Sub(q.answered) < timeout &&
		(g.inFlight > 0 || now.Sub(g.answered) < timeout)
}

// hasStalled reports whether another call has waited for a quarter of the timeout, and may lower next.
func (q *queue) hasStalled(now time.Time, next *time.Duration) (has bool) {
	for _, g := range q.turns {
		for _, c := range g.waiting {
			if c.stalled {
				continue
			}
			if left := q.client.config.Timeout/stallFraction - now.Sub(c.since); left > 0 {
				*next = min(*next, left)
				break
			}
			c.stalled, has = true, true
		}
	}
	return has
}
