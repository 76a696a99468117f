// Package meter measures the work of a request: the time for which it keeps a processor busy, here or in the database.
// Waits are no work: those for a place, for the network, for the caller.
//
// Go cannot tell the processor time of a goroutine, and PostgreSQL does not tell that of a query. So the time is measured on
// the clock and waits are subtracted. Where processors are the limit, work takes longer and costs more, for all
// callers alike.
//
// A [Meter] travels in the context. Whoever waits in the name of a request calls [Waited]; whoever asks the database calls
// [Asked]. Without a Meter in the context both do nothing.
package meter

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Meter measures one request. It is safe for concurrent use.
type Meter struct {
	began  time.Time
	away   atomic.Int64 // nanoseconds of waits and queries
	remote atomic.Int64 // nanoseconds that the database worked
}

type meterKey struct{}

// With returns a context whose work a new Meter measures.
func With(ctx context.Context) (context.Context, *Meter) {
	m := &Meter{began: time.Now()}
	return context.WithValue(ctx, meterKey{}, m), m
}

// Waited subtracts a wait that began at a time and ends now.
func Waited(ctx context.Context, since time.Time) {
	if m, ok := ctx.Value(meterKey{}).(*Meter); ok {
		m.away.Add(int64(time.Since(since)))
	}
}

// Asked adds a query that took a time, of which the database worked for a part and the rest was the network's.
func Asked(ctx context.Context, took, work time.Duration) {
	if m, ok := ctx.Value(meterKey{}).(*Meter); ok {
		m.away.Add(int64(took))
		m.remote.Add(int64(work))
	}
}

// Worked returns the work so far. Queries in parallel count in full.
func (m *Meter) Worked() time.Duration {
	here := max(0, time.Since(m.began)-time.Duration(m.away.Load()))
	return here + time.Duration(m.remote.Load())
}

// Distance estimates how long the network takes to a server and back, as the time of the fastest of its recent answers. It
// is safe for concurrent use; the zero value knows nothing yet.
type Distance struct {
	mu             sync.Mutex
	since          time.Time // of latest
	latest, former time.Duration
}

// window is how long an answer counts at least. Meanwhile there is always a fast one, since the Watcher asks each second.
const window = 30 * time.Second

// Work returns how much of an answer's time the server worked, and notes the answer.
func (d *Distance) Work(took time.Duration, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.since) >= window {
		d.former, d.latest, d.since = d.latest, took, now
	}
	d.latest = min(d.latest, took)
	nearest := d.latest
	if d.former > 0 {
		nearest = min(nearest, d.former)
	}
	return took - nearest
}
