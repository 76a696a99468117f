// Package awake measures time as a test may hold code to it on a machine that others use as well.
//
// A promise such as "within 2 s" is about a process that gets a processor when it wants one. A [Watch] asks for
// one every millisecond, and counts at most a few milliseconds for each time that it gets one: where it is not
// kept waiting it is a clock like any other, and where it gets a tenth of a processor it runs at about a tenth
// of the speed. It is never ahead of real time by more than a beat. So what it finds too slow was too slow; what
// it finds quick enough was that for certain only on a machine with nothing else to do.
//
// It is for tests.
package awake

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	beat = time.Millisecond
	// most is what a beat counts at most. Timers and the scheduler are late by this much at rest, too.
	most = 4 * time.Millisecond
)

// Watch is a clock that runs while the process does. It is safe for concurrent use.
type Watch struct {
	awake   atomic.Int64
	stop    chan struct{}
	running sync.WaitGroup
}

// Start returns a watch that runs until it is stopped.
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

// Now is how long the process was awake since the watch was started. It is behind by up to a beat.
func (w *Watch) Now() time.Duration { return time.Duration(w.awake.Load()) }

// Since is how long the process was awake since an earlier Now.
func (w *Watch) Since(earlier time.Duration) time.Duration { return w.Now() - earlier }
