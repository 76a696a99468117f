// Package jobs runs work that waits in the database: webhooks, mail and replays.
//
// Any number of processes may run the same queue. A process claims due jobs under a lease and attempts them
// concurrently, up to a cap. Nobody else gets a claimed job until its lease ends, because the process that holds it may
// have died. So a job can be attempted twice, but it is never lost.
//
// The claim divides attempts among tenants: each gets its first attempt before any gets its second, and each has a cap
// in all processes together. A receiver that hangs therefore costs its own tenant's places only.
//
// While the database is away nothing is claimed, and the log says so once.
package jobs

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	claimEvery = time.Second
	// lease is longer than any attempt.
	lease = time.Minute

	// MaxAttempts are made within about a day, with pauses that double from firstRetry to maxRetry.
	MaxAttempts = 12
	firstRetry  = 30 * time.Second
	maxRetry    = 4 * time.Hour
)

// Queue is one kind of work.
type Queue[J any] struct {
	// Claim leases up to limit due jobs. A tenant has at most perTenant leases in all processes.
	Claim func(ctx context.Context, now, leaseEnds time.Time, perTenant, limit int) ([]J, error)
	// Attempt does a job and stores the result. It takes less than a minute, or renews its lease itself. If ctx ends, the
	// process is stopping and another one tries after the lease.
	Attempt func(ctx context.Context, job *J, now time.Time)
	// AtOnce caps the attempts in flight of this process, PerTenant those of a tenant in all processes.
	AtOnce, PerTenant int
	// Failing and Recovered are log messages for when jobs cannot be claimed, and can be again.
	Failing, Recovered string
}

// Runner runs a queue.
type Runner[J any] struct {
	queue Queue[J]
	log   *slog.Logger

	slots    chan struct{} // has a token for each attempt in flight
	ended    chan struct{} // has a value when an attempt has ended since the last claim
	attempts sync.WaitGroup
	claiming Outage
}

// NewRunner returns a Runner without attempts in flight.
func NewRunner[J any](queue Queue[J], log *slog.Logger) *Runner[J] {
	return &Runner[J]{
		queue: queue, log: log,
		slots: make(chan struct{}, queue.AtOnce), ended: make(chan struct{}, 1),
		claiming: Outage{Failing: queue.Failing, Recovered: queue.Recovered},
	}
}

// Run claims and attempts jobs until ctx ends, and waits for those in flight.
func (r *Runner[J]) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.Claim(ctx, time.Now())
		r.claiming.Note(ctx, r.log, err)
		room := r.ended
		if err != nil {
			room = nil // only time helps
		}
		select {
		case <-ctx.Done():
		case <-time.After(claimEvery):
		case <-room:
		}
	}
	r.Wait()
}

// Claim claims due jobs, as many as there are free slots, and begins their attempts without waiting for them.
func (r *Runner[J]) Claim(ctx context.Context, now time.Time) error {
	room := cap(r.slots) - len(r.slots)
	if room == 0 {
		return nil
	}
	jobs, err := r.queue.Claim(ctx, now, now.Add(lease), r.queue.PerTenant, room)
	if err != nil {
		return err
	}
	for i := range jobs {
		r.slots <- struct{}{}
		r.attempts.Go(func() {
			defer func() {
				<-r.slots
				select {
				case r.ended <- struct{}{}:
				default:
				}
			}()
			r.queue.Attempt(ctx, &jobs[i], now)
		})
	}
	return nil
}

// Wait waits for the attempts in flight.
func (r *Runner[J]) Wait() { r.attempts.Wait() }

// Pause returns the pause after a number of failed attempts.
func Pause(attempts int) time.Duration {
	pause := firstRetry
	for range attempts - 1 {
		pause = min(2*pause, maxRetry)
	}
	return pause
}

// ShortLine makes an error's text fit to be stored and shown.
func ShortLine(text string) string {
	const most = 500
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// Outage logs when something begins to fail, and when it works again.
type Outage struct {
	Failing, Recovered string // messages
	isFailing          bool
}

// Note takes the result of one try. It is not safe for concurrent use.
func (o *Outage) Note(ctx context.Context, log *slog.Logger, err error) {
	switch {
	case ctx.Err() != nil || o.isFailing == (err != nil):
		return
	case err != nil:
		log.ErrorContext(ctx, o.Failing, "error", err)
	default:
		log.InfoContext(ctx, o.Recovered)
	}
	o.isFailing = err != nil
}
