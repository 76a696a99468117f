package sluice

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Limiter is a token bucket in this process, with which a caller paces its own requests to a service that limits them.
// The bucket begins full. Methods have the names of golang.org/x/time/rate. A Limiter is lock-free and safe for
// concurrent use.
type Limiter struct {
	perToken float64 // nanoseconds
	burst    int
	now      func() time.Time
	start    time.Time
	// fullAt is the whole state (GCRA): when the bucket will be full, in nanoseconds since start.
	fullAt atomic.Int64
}

// NewLimiter returns a bucket of burst tokens that refills continuously. NewLimiter panics unless perSecond is above 0
// and at most 1e9, burst is at least 1, and an empty bucket fills within ten years.
func NewLimiter(perSecond float64, burst int) *Limiter {
	const tenYears = 10 * 365 * 24 * 3600
	if !(perSecond > 0 && perSecond <= 1e9) || burst < 1 || float64(burst)/perSecond > tenYears {
		panic(fmt.Sprintf("sluice: NewLimiter(%v, %d): the rate must be above 0 and at most 1e9, the burst at least "+
			"1, "+
			"and an empty bucket full within ten years", perSecond, burst))
	}
	l := &Limiter{perToken: 1e9 / perSecond, burst: burst, now: time.Now}
	l.start = l.now()
	return l
}

// Allow takes a token, if there is one.
func (l *Limiter) Allow() bool { return l.AllowN(1) }

// AllowN takes n tokens, if there are enough.
func (l *Limiter) AllowN(n int) bool {
	_, ok := l.take(n, 0)
	return ok
}

// Wait waits for a token and takes it.
func (l *Limiter) Wait(ctx context.Context) error { return l.WaitN(ctx, 1) }

var (
	errAboveBurst   = errors.New("sluice: more tokens are asked for than the bucket holds")
	errDeadlineSoon = errors.New("sluice: the context would end before the tokens are there")
)

// WaitN waits for n tokens and takes them, in order of the callers. WaitN takes nothing and returns an error if n
// exceeds the burst, if ctx ends first, or at once if ctx's deadline is too early.
func (l *Limiter) WaitN(ctx context.Context, n int) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sluice: %w", err)
	}
	longest := time.Duration(math.MaxInt64)
	if deadline, ok := ctx.Deadline(); ok {
		longest = deadline.Sub(l.now())
	}
	delay, ok := l.take(n, longest)
	if !ok {
		if n > l.burst {
			return errAboveBurst
		}
		return errDeadlineSoon
	}
	if delay <= 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		l.giveBack(n)
		return fmt.Errorf("sluice: %w", ctx.Err())
	}
}

// Reserve takes a token ahead of time.
func (l *Limiter) Reserve() *Reservation { return l.ReserveN(1) }

// ReserveN takes n tokens ahead of time.
func (l *Limiter) ReserveN(n int) *Reservation {
	delay, ok := l.take(n, math.MaxInt64)
	return &Reservation{limiter: l, n: n, ok: ok, at: l.now().Add(delay)}
}

// Tokens returns the available tokens, below 0 after reservations.
func (l *Limiter) Tokens() float64 {
	now := int64(l.now().Sub(l.start))
	return float64(l.burst) - float64(max(0, l.fullAt.Load()-now))/l.perToken
}

// take takes n tokens that are available within longest, and returns the delay.
func (l *Limiter) take(n int, longest time.Duration) (time.Duration, bool) {
	if n > l.burst || n < 0 {
		return 0, false
	}
	cost := int64(math.Round(float64(n) * l.perToken))
	capacity := int64(math.Round(float64(l.burst) * l.perToken))
	for {
		now := int64(l.now().Sub(l.start))
		before := l.fullAt.Load()
		after := max(before, now) + cost
		delay := max(0, time.Duration(after-now-capacity))
		if delay > longest {
			return 0, false
		}
		if l.fullAt.CompareAndSwap(before, after) {
			return delay, true
		}
	}
}

func (l *Limiter) giveBack(n int) {
	l.fullAt.Add(-int64(math.Round(float64(n) * l.perToken)))
}

// Reservation is tokens taken ahead of time from a [Limiter].
type Reservation struct {
	limiter *Limiter
	n       int
	ok      bool
	at      time.Time
	ended   atomic.Bool
}

// OK reports whether the tokens fit the burst.
func (r *Reservation) OK() bool { return r.ok }

// Delay returns the wait before acting, without OK the longest Duration.
func (r *Reservation) Delay() time.Duration {
	if !r.ok {
		return math.MaxInt64
	}
	return max(0, r.at.Sub(r.limiter.now()))
}

// Cancel returns the tokens, if their time has not come.
func (r *Reservation) Cancel() {
	if r.ok && r.Delay() > 0 && !r.ended.Swap(true) {
		r.limiter.giveBack(r.n)
	}
}
