package sluice

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// calm delays the end of a wait until the process had time to read answers. A process that starts thousands of checks,
// or computes on all processors, sees timers before answers that have arrived.
type calm struct {
	mu sync.Mutex
	at time.Time // start of the last calm pause
}

const (
	// calmPauses in a row must end in time, because reading an answer takes several goroutines.
	calmPauses   = 2
	lateFraction = 8
	maxCalmPause = 2 * time.Millisecond
	maxLatePause = 100 * time.Millisecond
)

// await returns after calmPauses, or after longTimeouts late ones. due is when the wait should have ended.
func (c *calm) await(due time.Time, timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.After(due) { // another wait saw it
		return
	}
	isLate := func(at time.Time) bool { return time.Since(at) > timeout/lateFraction }
	calmPause, latePause := min(timeout/lateFraction, maxCalmPause), min(timeout/stallFraction, maxLatePause)
	pause := calmPause
	if isLate(due) { // the request may not even have been sent
		pause = latePause
	}
	for inTime, late := 0, 0; inTime < calmPauses && late < longTimeouts; inTime++ {
		began := time.Now()
		<-time.After(pause)
		runtime.Gosched() // behind all goroutines that are ready
		if isLate(began.Add(pause)) {
			inTime, late, pause = -1, late+1, latePause
			continue
		}
		if inTime == 0 {
			c.at = began
		}
		pause = calmPause
	}
}

// within bounds a request by the timeout. The second result releases its resources.
func (c *Client) within(ctx context.Context) (context.Context, func()) {
	within, cancel := context.WithCancelCause(ctx)
	due := time.Now().Add(c.config.Timeout)
	timer := time.AfterFunc(c.config.Timeout, func() {
		c.calm.await(due, c.config.Timeout)
		cancel(context.DeadlineExceeded)
	})
	return within, func() {
		timer.Stop()
		cancel(nil)
	}
}
