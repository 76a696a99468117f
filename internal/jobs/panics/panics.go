// Package panics keeps a panic in one piece of work from ending the process. All our goroutines are started here,
// because
// Go has no other way to recover their panics; a test lists the few exceptions. A nil logger is slog.Default().
package panics

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

//nolint:gochecknoglobals // one metric counts all panics of the process
var caught atomic.Int64

// Caught returns how many panics this process has caught.
func Caught() int64 { return caught.Load() }

// Count counts a panic that its caller has recovered and logged.
func Count() { caught.Add(1) }

// Do does a piece of work, and returns a panic in it as an error.
func Do(log *slog.Logger, what string, work func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			Count()
			cmp.Or(log, slog.Default()).Error("panic", "in", what, "panic", fmt.Sprint(value), "stack",
				string(debug.Stack()))
			err = fmt.Errorf("panic: %v", value)
		}
	}()
	return work()
}

const restartPause = time.Second

// Loop runs a loop until it returns, and restarts it a second after a panic, unless ctx has ended.
func Loop(ctx context.Context, log *slog.Logger, what string, loop func(context.Context)) {
	for {
		err := Do(log, what, func() error { loop(ctx); return nil })
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(restartPause):
		}
	}
}

// Every does a piece of work at once and then once an interval, until ctx ends.
func Every(ctx context.Context, interval time.Duration, work func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		work()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Go does a piece of work in its own goroutine, whose panic only the log reports.
func Go(log *slog.Logger, what string, work func()) {
	go func() { _ = Do(log, what, func() error { work(); return nil }) }()
}

// Group is goroutines to wait for.
type Group struct {
	running sync.WaitGroup
	mu      sync.Mutex
	first   error
}

// Go does a piece of work in a goroutine of the group.
func (g *Group) Go(log *slog.Logger, what string, work func()) {
	g.running.Go(func() {
		if err := Do(log, what, func() error { work(); return nil }); err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.first == nil {
				g.first = err
			}
		}
	})
}

// Loop runs a loop in a goroutine of the group, like the function Loop.
func (g *Group) Loop(ctx context.Context, log *slog.Logger, what string, loop func(context.Context)) {
	g.running.Go(func() { Loop(ctx, log, what, loop) })
}

// Wait waits for the goroutines, and returns the first panic.
func (g *Group) Wait() error {
	g.running.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.first
}
