// Package awake measures time for tests on a busy machine.
//
// A promise such as "within 2 s" assumes that the process gets a processor when it wants one. A [Watch] wakes every
// millisecond and counts at most a few milliseconds each time, so it slows down with its share of a processor.
package awake

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	beat = time.Millisecond
	most = 4 * time.Millisecond // the lateness of timers and the scheduler on an idle machine
)

// Watch is a clock that runs while the process does.
type Watch struct {
	awake   atomic.Int64
	stop    chan struct{}
	running sync.WaitGroup
}

// Start starts a watch.
func Start() *Watch {
	w := &Watch{stop: make(chan struct{})}
	w.running.Go(w.run)
	return w
}

// Stop must be called once.
func (w *Watch) Stop() {
	close(w.stop)
	w.running.Wait()
}

func (w *Watch) run() {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		now := time.Now()
		w.count(now.Sub(last))
		last = now
	}
}

func (w *Watch) count(gap time.Duration) { w.awake.Add(int64(min(gap, most))) }

// Now returns the counted time since Start, up to a beat behind.
func (w *Watch) Now() time.Duration { return time.Duration(w.awake.Load()) }

// Since returns the counted time since an earlier Now.
func (w *Watch) Since(earlier time.Duration) time.Duration { return w.Now() - earlier }
