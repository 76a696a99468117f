package app

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// drain is the time between the order to stop and stopping, in which readyz sends load balancers elsewhere.
type drain struct{ began atomic.Bool }

func (d *drain) draining() bool { return d.began.Load() }

// begin returns a context that ends when a part fails, or the delay after ctx has ended.
func (d *drain) begin(ctx context.Context, delay time.Duration, log *slog.Logger) (*Parts, context.Context) {
	group, failing := NewParts(context.WithoutCancel(ctx), log)
	working, stop := context.WithCancel(failing)
	group.Go("drain", func() error {
		defer stop()
		select {
		case <-failing.Done():
			return nil
		case <-ctx.Done():
		}
		d.began.Store(true)
		if delay == 0 {
			return nil
		}
		log.Info("draining: readyz says 503, and requests are answered until the delay is over", "delay", delay)
		select {
		case <-failing.Done():
		case <-time.After(delay):
		}
		return nil
	})
	return group, working
}
